"""What a person sees of each stage: words first, readable numbers, pictures; digests last."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from parcel_assets.core.errors import PlanError
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.defs.metadata import describe
from parcel_assets.defs.metadata_values import costs_shown, facts, plain, readable, table
from parcel_assets.defs.resources import ParcelAssets
from parcel_assets.defs.stage_run import failure
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.release import build_packet
from parcel_assets.wiring import REPOSITORY
from parcel_assets_tests.defs.told import as_told, bend, new_instance, resource_of, run_assets
from parcel_assets_tests.release_story import REVISION, Story, tell


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return tell(tmp_path_factory.mktemp("story"), corners="lost")


def page_of(stage: Stage, story: Story) -> dict[str, Any]:
    evidence = Evidence.model_validate(story.store.get_document(story.evidence[stage]))
    return describe(evidence, story.ports)


def cells(value: Any) -> Iterator[Any]:
    if isinstance(value, dg.TableMetadataValue):
        for record in value.records:
            yield from record.data.values()
    elif isinstance(value, dg.JsonMetadataValue):
        yield from _leaves(value.data)
    else:
        yield value


def _leaves(value: Any) -> Iterator[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        yield from _leaves(one)
    if not isinstance(value, dict | list):
        yield value


@pytest.mark.parametrize("number", [0.00123456, 514.4032921810699, 33.33333333, 12345.678])
def test_a_number_has_four_digits_wherever_it_stands(number: float) -> None:
    shown = readable({"a": number, "b": [number]})
    assert shown == {"a": float(f"{number:.4g}"), "b": [float(f"{number:.4g}")]}
    assert plain(number) == shown["a"]
    inline = table([{"x": number}])
    assert isinstance(inline, dg.TableMetadataValue)
    assert inline.records[0].data == {"x": shown["a"]}


def test_a_slot_that_never_started_stands_in_the_table_beside_those_that_did() -> None:
    shown = table([{"trial": "parcel-01"}, {"trial": "parcel-02", "width": 8, "rate": 0.5}])
    assert isinstance(shown, dg.TableMetadataValue)
    assert [one.name for one in shown.schema.columns] == ["trial", "width", "rate"]
    assert [one.data["width"] for one in shown.records] == [None, 8]
    assert {len(one.data) for one in shown.records} == {3}


def test_no_rows_are_a_word_and_not_an_empty_table() -> None:
    assert table([]) == "none"


def test_facts_keep_their_order_and_leave_out_what_is_nested_or_missing() -> None:
    shown = facts({"mean": 7.00001, "low": 1, "further": {"a": 1}, "none": None})
    assert isinstance(shown, dg.TableMetadataValue)
    assert [tuple(one.data.values()) for one in shown.records] == [("mean", "7"), ("low", "1")]


def test_few_misses_carry_no_decimal_of_a_cost_and_rates_keep_theirs() -> None:
    fields = {"cost_per_1000": 543.21, "upper_bound_guarded": 600.55, "miss_rate": 0.0312}
    few, many = (costs_shown(fields, missed) for missed in (9, 10))
    assert few == {"cost_per_1000": 543.0, "upper_bound_guarded": 601.0, "miss_rate": 0.0312}
    assert many == {"cost_per_1000": 543.2, "upper_bound_guarded": 600.5, "miss_rate": 0.0312}
    assert costs_shown({"mean": None, "trials": 9}, None) == {"mean": None, "trials": 9}


def test_the_page_of_the_choice_calls_the_winner_s_own_cost_no_quality_claim(
    story: Story,
) -> None:
    chain = load_chain(REVISION, story.ports)
    shown = describe(chain.evidence[Stage.RERUN], story.ports)
    assert "expect corrected_cost" in shown["no_quality_claim"]


def test_the_page_of_the_search_names_its_lost_and_quarantined_attempts_and_why(
    story: Story,
) -> None:
    shown = page_of(Stage.SEARCH, story)["attempts_not_counted"]
    rows = [one.data for one in shown.records]
    assert {"expired", "quarantined"} <= {one["state"] for one in rows}
    assert all(one["attempt"] and one["why"] for one in rows)


STAGES_TOLD = [stage for stage in Stage if stage not in {Stage.TABLE, Stage.PACKET, Stage.REGISTRY}]


@pytest.mark.parametrize("stage", STAGES_TOLD)
def test_a_page_shows_readable_numbers_and_ends_with_digests(stage: Stage, story: Story) -> None:
    page = page_of(stage, story)
    names = list(page)
    assert names[-2:] == ["evidence_digest", "plan_digest"]
    assert "digest" not in names[0]
    for value in page.values():
        for cell in cells(value):
            if isinstance(cell, float):
                assert cell == float(f"{cell:.4g}")
            assert cell != ""


def test_a_held_slice_report_says_what_to_do_before_its_numbers(story: Story) -> None:
    page = page_of(Stage.SLICES, story)
    names = list(page)
    assert names.index("next_command") < names.index("slices") < names.index("slice_numbers")
    assert page["next_command"].startswith(f"parcel-assets decide {REVISION}")
    assert page["slice_evidence"] == story.evidence[Stage.SLICES]
    outcomes = {record.data["outcome"] for record in page["slices"].records}
    assert outcomes <= {"PASS", "FAIL", "INSUFFICIENT"}


def test_pictures_open_in_the_page(story: Story) -> None:
    for stage, names in {
        Stage.SNAPSHOT: ["contact_sheet"],
        Stage.SEARCH: ["learning_curves", "cost_curve"],
        Stage.SLICES: ["heat_map", "missed_damage"],
    }.items():
        page = page_of(stage, story)
        for name in names:
            assert "data:image/png;base64," in page[name].value


def test_a_packet_page_leads_to_the_report(tmp_path: Path) -> None:
    ports = as_told(tell(tmp_path))
    page = describe(build_packet(REVISION, ports), ports)
    assert list(page)[:2] == ["verdict", "report"]
    assert Path(page["report"].value).is_file()


# ---- commands on the pages -----------------------------------------------------------------------


def test_a_page_s_commands_name_the_data_folder_that_they_are_about(
    story: Story, tmp_path: Path
) -> None:
    here = ParcelAssets(data_folder=str(tmp_path / "our data"))
    called = f"parcel-assets --data '{tmp_path / 'our data'}'"
    evidence = Evidence.model_validate(story.store.get_document(story.evidence[Stage.SLICES]))
    page = describe(evidence, story.ports, here.called())
    assert page["next_command"].startswith(f"{called} decide {REVISION}")
    refused = failure(
        PlanError("none", expected="one", where="here", remedy="Run `parcel-assets run r1`."), here
    )
    assert f"`{called} run r1`" in str(refused.description)
    assert f"`{called} run r1`" in str(refused.metadata["remedy"].value)
    usual = ParcelAssets(data_folder=str(REPOSITORY / "data"))  # found without being named
    assert usual.called().pasteable("parcel-assets status") == "parcel-assets status"


def test_a_failed_gate_s_page_has_the_command_of_its_own_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARCEL_ASSETS_DATA", str(tmp_path))
    story = tell(tmp_path / "held", corners="lost", decided=True)
    instance = new_instance(tmp_path)
    resource = resource_of(bend(story, Stage.SLICES), tmp_path)
    result = run_assets([str(Stage.SLICES)], resource, instance, stand_in=str(Stage.SLICES))
    (shown,) = (one for one in result.get_asset_check_evaluations() if not one.passed)
    assert f"parcel-assets --data {tmp_path} decide" in str(shown.metadata["what_to_do"].value)
    instance.dispose()
