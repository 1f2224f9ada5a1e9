"""The report: everything the mission names, nothing from outside, nothing that is not escaped."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.adapters.report_html import render_report
from parcel_assets.adapters.report_html_charts import nice_ticks
from parcel_assets.adapters.report_html_tags import Markup, join, tag
from parcel_assets_tests.release_packets import published, published_with_waiver


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "report.html"
    }


@pytest.fixture
def files() -> dict[str, bytes]:
    return files_of(published()[1])


class Reader(HTMLParser):
    """Collects text, links and open elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.links: list[str] = []
        self.elements: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, element: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(element)
        self.links += [str(value) for key, value in attributes if key in {"href", "src"}]
        if element not in {"meta", "img", "br", "hr", "line", "rect", "circle", "path"}:
            self.open.append(element)

    def handle_endtag(self, element: str) -> None:
        if self.open and self.open[-1] == element:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def test_the_first_page_shows_every_item_that_the_mission_names(files: dict[str, bytes]) -> None:
    text = Reader(render_report(files).decode()).text
    verdict = json.loads(files["VERDICT.json"])
    page = verdict["first_page"]
    for title in (
        "Trials and attempts",
        "Compute, charged against the cap",
        "Winner lineage",
        "Rerun tolerance",
        "Slices against the model in use",
        "Serving estimate",
    ):
        assert title in text
    assert "82 of 82 trial slots accounted for" in text.replace("  ", " ")
    assert page["winner"]["trial_id"]["value"] in text
    assert f"{page['rerun']['tolerance']['value']:.1f}" in text
    assert page["serving"]["sentence"]["value"] in text
    assert page["final"]["sentence"]["value"] in text
    for one in page["slices"]["slices"]:
        assert one["sentence"]["value"].split(": ", 1)[1] in text
    assert "a consistent record of one opening" in text
    assert "self-declared" in text


def test_cost_search_pictures_and_verification_have_their_chapters(
    files: dict[str, bytes],
) -> None:
    reader = Reader(render_report(files).decode())
    for words in (
        "Review everything",
        "Review nothing",
        "Model in use",
        "Winner, corrected",
        "frozen threshold",
        "Learning curves of all trials",
        "What went wrong on the way",
        "Worst pictures",
        "Missed in crushed_corner",
        "Behind it:",
        "cost the same within one paired standard error",
        "between 410 and 512 (95 %)",
        "the other slices of its role counted",
        "Contact sheet",
        "openssl dgst -sha256 -verify release_key.pem",
    ):
        assert words in reader.text, words
    assert reader.elements.count("img") == 3  # one of them of the protected slice
    assert reader.open == []


def test_the_winner_s_own_number_is_called_no_quality_claim_beside_the_corrected_one(
    files: dict[str, bytes],
) -> None:
    text = Reader(render_report(files).decode()).text
    rerun = json.loads(files["evidence/selected_rerun.json"])["body"]
    corrected = rerun["corrected_cost"]["mean"]
    assert "chosen for being low: it is no quality claim" in text
    assert f"The corrected one, {corrected:.0f}, is what to expect on new shipments" in text
    card = files["model_card.md"].decode()
    assert "no quality claim" in card
    assert f"| winner, corrected for the choice, per 1,000 | {corrected:.1f} |" in card


def test_without_a_correction_nothing_is_expected_of_the_winner(files: dict[str, bytes]) -> None:
    bent = bend_rerun(files, lambda body: body.update(corrected_cost=None))
    text = Reader(render_report(bent).decode()).text
    assert "The shipments are too few to correct it" in text
    old = bend_rerun(files, lambda body: body.update(corrected_cost=None, slice_informed=True))
    assert "as a person chose this trial" in Reader(render_report(old).decode()).text


def test_misses_reviews_and_both_plain_policies_are_told_for_both_models(
    files: dict[str, bytes],
) -> None:
    text = Reader(render_report(files).decode()).text
    body = json.loads(files["evidence/selected_rerun.json"])["body"]
    for name in ("validation", "reference_validation"):
        one = body[name]
        assert f"{one['miss_rate']:.1%} ({one['missed']} of {one['damaged_photos']})" in text
        assert f"{one['review_rate']:.1%}" in text
    assert "review everything" in text
    assert "review nothing" in text


@pytest.mark.parametrize(("missed", "decimals"), [(9, 0), (10, 1)])
def test_few_misses_carry_no_decimal_of_a_cost(
    files: dict[str, bytes], missed: int, decimals: int
) -> None:
    bent = bend_rerun(files, lambda body: body["validation"].update(missed=missed))
    text = Reader(render_report(bent).decode()).text
    page = json.loads(files["VERDICT.json"])["first_page"]["rerun"]
    own, mean = (float(page[key]["value"]) for key in ("own_cost_per_1000", "mean"))
    assert f"candidate {own:.{decimals}f} mean of" in text
    assert f"extra seeds {mean:.{decimals}f} " in text


def bend_rerun(files: dict[str, bytes], change: Callable[[Any], None]) -> dict[str, bytes]:
    """Return the files with another body of the rerun's evidence; a report reads, never judges."""
    path = "evidence/selected_rerun.json"
    document = json.loads(files[path])
    change(document["body"])
    return {**files, path: json.dumps(document).encode()}


def test_the_report_needs_nothing_from_outside(files: dict[str, bytes]) -> None:
    page = render_report(files).decode()
    reader = Reader(page)
    assert "://" not in page
    assert "script" not in reader.elements
    for link in reader.links:
        assert link.startswith(("#", "data:image/png;base64,")) or link in files, link
    assert "default-src &#x27;none&#x27;" in page


def test_a_waiver_is_told_with_its_scope_and_expiry() -> None:
    text = Reader(render_report(files_of(published_with_waiver())).decode()).text
    for words in (
        "Released with a waiver",
        "Ada Example",
        "belt cameras of site 2",
        "2030-12-31",
        "A protected slice does not pass.",
    ):
        assert words in text


def test_words_from_outside_cannot_become_markup(files: dict[str, bytes]) -> None:
    plan = json.loads(files["plan.json"])
    plan["purpose"] = "<script>alert(1)</script>\" onload='x'"
    plan["metric"]["unit"] = "<img src=x>"
    page = render_report(files | {"plan.json": json.dumps(plan).encode()}).decode()
    assert "<script" not in page
    assert "<img src=x" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_only_markup_passes_unescaped() -> None:
    assert tag("p", "a < b", title='"') == '<p title="&quot;">a &lt; b</p>'
    assert join("<", Markup("<br>"), None, ["&"]) == "&lt;<br>&amp;"


def test_ticks_are_round_and_inside() -> None:
    assert nice_ticks(0, 1000) == [0, 200, 400, 600, 800, 1000]
    assert nice_ticks(312, 688) == [400, 500, 600]
    assert nice_ticks(3, 3) == [3]


def test_the_same_packet_gives_the_same_report(files: dict[str, bytes]) -> None:
    assert render_report(files) == (published()[1] / "report.html").read_bytes()
