"""The frozen table: folded from the ledger, named by its digest, judged by the validator."""

from pathlib import Path

import pytest

from parcel_assets.core.errors import AdmissionError
from parcel_assets.core.evidence import TableBody
from parcel_assets.core.ledger import Kind
from parcel_assets.core.trial import TrialRow
from parcel_assets.steps.selection import rerun_selected
from parcel_assets.steps.table import validate_table
from parcel_assets_tests.steps.desk import BUDGET, REVISION, FakeValidator, make_desk


def test_every_slot_has_its_row_and_the_document_is_what_was_validated(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    body = TableBody.model_validate(validate_table(REVISION, desk.ports).body)
    rows = [
        TrialRow.model_validate(row) for row in desk.ports.store.get_document(body.table_document)
    ]
    assert [row.number for row in rows] == list(range(1, BUDGET + 1))
    assert body.trials_by_state == {"completed": 4, "failed": 1, "pruned": 1}
    assert [one["name"] for one in body.expectations] == ["numbers_in_order"]


def test_asked_again_it_records_nothing_new(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    first = validate_table(REVISION, desk.ports)
    assert validate_table(REVISION, desk.ports) == first
    recorded = [one.body["stage"] for one in desk.events(Kind.STAGE_RECORDED)]
    assert recorded.count("validated_trial_table") == 1


def test_a_failed_expectation_stops_the_selection_by_name(tmp_path: Path) -> None:
    desk = make_desk(tmp_path)
    validator = desk.ports.validator
    assert isinstance(validator, FakeValidator)
    validator.fails = True
    validate_table(REVISION, desk.ports)
    with pytest.raises(AdmissionError, match="numbers_in_order") as refused:
        rerun_selected(REVISION, desk.ports)
    assert refused.value.facts["gate"] == "expectations"
    assert not desk.events(Kind.SELECTION_FROZEN)
