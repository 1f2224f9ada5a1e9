"""The model can fail: a coordinator that breaks a rule is found by a few seeds, and the rule named.

Each case breaks one rule in the real coordinator, in its ledger or in its store, and lets the
faults strike that need the rule.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.core import search_batches, search_rules
from parcel_assets.core.errors import LedgerError
from parcel_assets.core.ledger import Lease
from parcel_assets.core.ports import PastTrial
from parcel_assets.core.search_charges import Room
from parcel_assets.core.trial import AttemptStarted, Cut, Verdict
from parcel_assets.steps import (
    dispatch_door,
    dispatch_loop,
    dispatch_orders,
    dispatch_reports,
    dispatch_settle,
)
from parcel_assets.steps import search as search_step
from parcel_assets.steps.dispatch_desk import Labels
from parcel_assets_tests.fakes import FakeLedger, FakeStore
from parcel_assets_tests.simulation.model import BrokenRuleError
from parcel_assets_tests.simulation.world import simulate, undisturbed

SEEDS_MAXIMUM = 40
Break = Callable[[pytest.MonkeyPatch], None]


def _slots_started_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        search_step, "next_trial", lambda state: state.trials[1].trial if state.trials else None
    )


def _numbers_off(patch: pytest.MonkeyPatch) -> None:
    def number(plan: Any, state: Any, configurations: Sequence[Any]) -> Any:
        trials = search_batches.number_trials(plan, state, configurations)
        return tuple(one.model_copy(update={"number": one.number + 1}) for one in trials)

    patch.setattr(search_step, "number_trials", number)


def _no_cap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(search_step, "room_for", lambda _plan, _state, _purpose: Room.YES)


def _free_of_charge(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dispatch_settle, "settled_charge", lambda _record, _now: 0.0)


def _downtime_charged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dispatch_settle, "lost_charge", lambda record, **_: 1e9)


def _everybody_admitted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dispatch_door, "first_difference_of", lambda *_: None)


def _any_answer_admitted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dispatch_door.Door, "judge_answer", lambda *_: None)
    patch.setattr(dispatch_door.Door, "judge_ready", lambda *_: None)


def _stale_fence_writes(patch: pytest.MonkeyPatch) -> None:
    def renew(_ledger: FakeLedger, _lease: Lease) -> None:
        """Let anybody write."""

    patch.setattr(FakeLedger, "renew", renew)


def _prefix_shared(patch: pytest.MonkeyPatch) -> None:
    def started(**fields: Any) -> AttemptStarted:
        return AttemptStarted(**(fields | {"prefix": f"shared/{fields['subject']}"}))

    def claim(store: FakeStore, prefix: str, _owner: Mapping[str, Any]) -> Path:
        folder = store.prefix_path(prefix)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    patch.setattr(dispatch_orders, "AttemptStarted", started)
    patch.setattr(FakeStore, "claim_prefix", claim)


def _files_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(search_step, "clashes_of", lambda *_: {})


def _lineage_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dispatch_reports, "checkpoint_clash", lambda *_: {})


def _only_one_quarantined(patch: pytest.MonkeyPatch) -> None:
    entries = dispatch_settle.quarantine_entries

    def first(desk: Any, attempts: Mapping[str, str], found_by: str) -> Any:
        return entries(desk, dict([next(iter(attempts.items()))]), found_by)

    patch.setattr(dispatch_loop, "quarantine_entries", first)


def _never_stopped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dispatch_reports, "verdict_of", lambda *_: (Verdict.CONTINUE, "always"))


def _judged_by_another_step(patch: pytest.MonkeyPatch) -> None:
    def judge(plan: Any, state: Any, subject: str, _step: int, cost: Any) -> Any:
        return search_rules.verdict_of(plan, state, subject, plan.training.milestones[0], cost)

    patch.setattr(dispatch_reports, "verdict_of", judge)


def _cuts_from_running_batches(patch: pytest.MonkeyPatch) -> None:
    def cuts(plan: Any, state: Any, batch: int) -> tuple[Cut, ...]:
        return search_batches.cut_table(plan, state, batch + 1)

    patch.setattr(search_step, "cut_table", cuts)


def _timing_told(patch: pytest.MonkeyPatch) -> None:
    told = search_batches.past_trials

    def all_of_it(plan: Any, state: Any, batch: int) -> list[PastTrial]:
        return told(plan, state, batch + plan.search.lookahead_batches)

    for module in (search_step, search_batches):
        patch.setattr(module, "past_trials", all_of_it, raising=False)


def _seed_by_the_clock(patch: pytest.MonkeyPatch) -> None:
    draws = iter(range(10**9, 2 * 10**9))
    for module in (search_step, search_batches):
        patch.setattr(module, "batch_seed", lambda *_: next(draws), raising=False)


def _losses_use_up(patch: pytest.MonkeyPatch) -> None:
    end = dispatch_settle.end_entry

    def used_up(*values: Any, **named: Any) -> Any:
        return end(*values, **(named | {"own_failure": True}))

    patch.setattr(dispatch_settle, "end_entry", used_up)


def _not_finite_ranks(patch: pytest.MonkeyPatch) -> None:
    measure = Labels.judge

    def judge(labels: Labels, step: int, content: bytes) -> tuple[float | None, float | None]:
        cost, threshold = measure(labels, step, content)
        return (0.0, 0.5) if cost is None else (cost, threshold)

    patch.setattr(Labels, "judge", judge)


def _ends_too_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        search_step, "end_reason", lambda _plan, state, **_: "budget" if state.batches else None
    )


BREAKS: tuple[tuple[str, Break, tuple[str, ...], str], ...] = (
    ("S2", _slots_started_again, (), "usual"),
    ("S2", _numbers_off, (), "usual"),
    ("S3", _no_cap, (), "cap"),
    ("S3", _free_of_charge, (), "usual"),
    ("S3", _downtime_charged, ("death", "crash"), "usual"),
    ("S4", _everybody_admitted, ("other identity",), "usual"),
    ("S4", _any_answer_admitted, ("wrong answer",), "usual"),
    ("S5", _stale_fence_writes, ("stall and rival",), "usual"),
    ("S5", _prefix_shared, ("death",), "usual"),
    ("S6", _files_not_compared, ("theft by copy",), "many attempts"),
    ("S6", _lineage_not_compared, ("theft by parent",), "many attempts"),
    ("S6", _only_one_quarantined, ("theft by copy", "theft by parent"), "many attempts"),
    ("S7", _never_stopped, (), "usual"),
    ("S7", _judged_by_another_step, (), "usual"),
    ("S7", _cuts_from_running_batches, (), "usual"),
    ("S8", _timing_told, (), "usual"),
    ("S8", _seed_by_the_clock, (), "usual"),
    ("S8", _losses_use_up, ("death",), "usual"),
    ("S9", _not_finite_ranks, (), "not finite"),
    ("end", _ends_too_early, (), "usual"),
)


@pytest.mark.parametrize(
    ("rule", "break_it", "faults", "plan"),
    BREAKS,
    ids=[f"{rule}{break_it.__name__.replace('_', ' ')}" for rule, break_it, _, _ in BREAKS],
)
def test_a_broken_rule_is_found_and_named(
    monkeypatch: pytest.MonkeyPatch, rule: str, break_it: Break, faults: tuple[str, ...], plan: str
) -> None:
    undisturbed(plan)  # of a coordinator that is whole
    break_it(monkeypatch)
    named = []
    for seed in range(SEEDS_MAXIMUM):
        try:
            simulate(seed, faults=faults, plan=plan)
        except BrokenRuleError as error:
            named.append(error.rule)
            if error.rule == rule:
                return
        except LedgerError as error:  # what says a thing twice is stopped by the ledger too
            named.append(str(error))
    pytest.fail(f"{SEEDS_MAXIMUM} seeds did not find it; they name {sorted(set(named))}")
