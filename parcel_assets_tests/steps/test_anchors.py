"""A chain that grows while it is read against its anchors has lost no event."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from parcel_assets.core.ledger import Event
from parcel_assets.core.ledger_audit import LedgerAudit, LedgerRecord
from parcel_assets.core.ports import Ports
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.ledger import audit_ledger
from parcel_assets_tests.fakes import FakeLedger
from parcel_assets_tests.search_world import REVISION
from parcel_assets_tests.simulation.theatre import Case

Answer = TypeVar("Answer")

pytestmark = pytest.mark.usefixtures("unflushed")


class SlowLedger(FakeLedger):
    """A ledger that is slow to give its first answer: something happens meanwhile."""

    def __init__(self, shared: FakeLedger, meanwhile: Callable[[], object]) -> None:
        super().__init__(shared=shared)
        self._meanwhile: list[Callable[[], object]] = [meanwhile]

    def events(self, revision: str, after: int = 0) -> tuple[Event, ...]:
        return self._slowly(super().events(revision, after))

    def record_of(self, revision: str) -> LedgerRecord:
        return self._slowly(super().record_of(revision))

    def _slowly(self, answer: Answer) -> Answer:
        while self._meanwhile:
            self._meanwhile.pop()()
        return answer


def audited_chain(revision: str, ports: Ports) -> LedgerAudit:
    audit = audit_ledger(revision, ports)
    assert not [one for one in audit.faults if one.place == "anchors"]
    return audit


@pytest.mark.parametrize("read", [load_chain, audited_chain])
def test_a_stage_recorded_in_the_meantime_is_no_event_that_was_dropped(
    tmp_path: Path, read: Callable[[str, Ports], Any]
) -> None:
    case = Case(tmp_path)
    before = len(case.events)
    case.world.ledger = SlowLedger(case.ledger, case.search)
    found = read(REVISION, case.world.ports())
    assert len(found.events) == before < len(case.events)
    assert case.world.store.anchors(REVISION)
