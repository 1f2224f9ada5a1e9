"""The first page: every item is there, the counts add up, and every value has its source."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.core.packet import (
    HOLD_FINAL_EVIDENCE,
    REJECTED_PERFORMANCE,
    RELEASED,
    RELEASED_WITH_WAIVER,
    verdict_word,
)
from parcel_assets.core.packet_text import csv_table
from parcel_assets.core.serving import replicas_needed
from parcel_assets_tests.release_packets import published


@pytest.fixture
def page() -> dict[str, Any]:
    page: dict[str, Any] = json.loads((published()[1] / "VERDICT.json").read_bytes())["first_page"]
    return page


def facts_in(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and {"value", "source"} <= value.keys():
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from facts_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from facts_in(one)


def read_again(folder: Path, fact: dict[str, Any]) -> Any:
    """Read a fact's value from its source, with no code of the packet."""
    path, _, pointer = fact["source"].partition("#")
    text = (folder / path).read_text()
    if "rule" in fact:
        rows = [json.loads(line) for line in text.splitlines()]
        rows = [row for row in rows if all(row[k] == v for k, v in fact["where"].items())]
        if fact["rule"] == "count":
            return len(rows)
        return pytest.approx(sum(row[fact["field"]] for row in rows), abs=1e-5)
    value = json.loads(text)
    for place in pointer.split("/")[1:]:
        value = value[int(place)] if isinstance(value, list) else value[place]
    return value


def test_every_value_can_be_read_again_at_its_source(page: dict[str, Any]) -> None:
    folder = published()[1]
    facts = list(facts_in(page))
    assert len(facts) > 120
    for fact in facts:
        assert fact["value"] == read_again(folder, fact), fact


def test_trials_add_up_to_the_budget_and_attempts_to_their_total(page: dict[str, Any]) -> None:
    counts = page["counts"]
    trials = {state: one["value"] for state, one in counts["trials"].items()}
    assert trials.pop("total") == sum(trials.values()) == counts["budget_trials"]["value"] == 82
    assert trials["failed"] == 2
    assert counts["unstarted_trials"]["value"] == trials["waiting"] == 0
    for purpose, attempts in counts["attempts"].items():
        states = {state: one["value"] for state, one in attempts.items()}
        assert states.pop("total") == sum(states.values()) > 0, purpose
    search = {state: one["value"] for state, one in counts["attempts"]["search"].items()}
    assert (search["failed"], search["expired"], search["quarantined"]) == (4, 1, 1)


def test_compute_adds_up_over_the_purposes(page: dict[str, Any]) -> None:
    seconds = {name: one["value"] for name, one in page["compute"]["charged_seconds"].items()}
    total = seconds.pop("total")
    assert total == pytest.approx(sum(seconds.values()))
    assert seconds["rerun"] == 6 * 22.0
    assert seconds["final"] == 9.0
    assert total <= page["compute"]["cap_accelerator_hours"]["value"] * 3600


def test_winner_lineage_rerun_slices_final_and_serving_are_all_there(page: dict[str, Any]) -> None:
    winner = page["winner"]
    assert winner["trial_id"]["value"] == published()[0].winner
    assert winner["attempts"][-1]["state"]["value"] == "completed"
    assert winner["released_parent_checkpoint"]["value"] is None
    assert page["rerun"]["tolerance"]["value"] > 0
    assert {one["outcome"]["value"] for one in page["slices"]["slices"]} <= {
        "pass",
        "fail",
        "insufficient",
    }
    assert page["final"]["evidence_level"]["value"] == "L1"
    assert page["serving"]["replicas"]["value"] == 2


@pytest.mark.parametrize(
    ("outcome", "passed", "accepted", "word"),
    [
        ("PASS", True, False, RELEASED),
        ("PASS", True, True, RELEASED),  # a decision that nothing needed waives nothing
        ("PASS", False, True, RELEASED_WITH_WAIVER),
        ("FAIL", True, False, REJECTED_PERFORMANCE),
        ("FAIL", False, True, REJECTED_PERFORMANCE),
        ("INSUFFICIENT", True, False, HOLD_FINAL_EVIDENCE),
    ],
)
def test_the_verdict_follows_from_outcome_and_decision(
    outcome: str, passed: bool, accepted: bool, word: str
) -> None:
    assert verdict_word(outcome, protected_passed=passed, accepted=accepted) == word


def test_a_cell_that_a_spreadsheet_would_run_is_quoted() -> None:
    rows = [{"a": "=HYPERLINK(1)", "b": -1.5, "c": None}]
    assert csv_table(("a", "b", "c"), rows) == b"a,b,c\n'=HYPERLINK(1),-1.5,\n"


def test_replicas_carry_the_peak_with_headroom_and_never_fewer_than_two() -> None:
    assert replicas_needed(1000.0) == 2
    assert replicas_needed(2.0, peak_photos_per_second=10.0, headroom=0.3) == 7
