"""What a worker says beside the protocol changes nothing, and is kept without its secret."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from parcel_assets.adapters.engine_local import LocalEngine
from parcel_assets.core.errors import IdentityError
from parcel_assets.core.identity_data import measure_data
from parcel_assets.core.messages import DEPTH_MAXIMUM, VALUES_MAXIMUM, evidence_of, message_fault
from parcel_assets.core.refusals import refusals_of
from parcel_assets.core.trial import AttemptState
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.dispatch_aside import KEPT_MAXIMUM, MESSAGES_PER_TURN
from parcel_assets.steps.worker import Setup
from parcel_assets_tests.search_world import REVISION, World, setup_of, small_plan
from parcel_assets_tests.simulation.theatre import Case, CaseEngine, Said, Script
from parcel_assets_tests.simulation.worker import IDENTITY

pytestmark = pytest.mark.usefixtures("unflushed")

Adds = Callable[[CaseEngine], Said]


class Talkative(Script):
    """Honest workers, and whatever `adds` says in their names beside it."""

    def __init__(self, adds: Adds) -> None:
        super().__init__()
        self.adds = adds

    def beside(self, engine: CaseEngine) -> Said:
        return self.adds(engine)


def search(folder: Path, adds: Adds) -> tuple[Case, list[tuple[str, dict[str, Any]]]]:
    """Search to the end beside what is added; return what came of it and all orders."""
    limits: dict[str, Any] = {
        "search__trial_seconds_maximum": 6000.0,
        "search__cap_accelerator_hours": 400.0,
    }
    case, script = Case(folder, **limits), Talkative(adds)
    case.search(script)
    return case, script.orders


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> str:
    return search(tmp_path_factory.mktemp("quiet"), lambda _engine: [])[0].table


def report(order: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a plausible report about an order's attempt."""
    said = {
        "kind": "milestone",
        "attempt": order["attempt"],
        "token": order["token"],
        "step": 2,
        "photos_seen": 16,
        "subset": "0" * 64,
        "file": "scores-2.f4",
        "scores": "0" * 64,
    }
    return said | changes


def last_of(engine: CaseEngine, *, mine: bool) -> tuple[str, dict[str, Any]] | None:
    """Return a worker, and the newest order that is or is not its own."""
    live = list(engine.workers)
    for worker_id, order in reversed(engine.script.orders):
        speakers = [one for one in live if (one == worker_id) == mine]
        if speakers:
            return speakers[0], order
    return None


def forged_token(engine: CaseEngine) -> Said:
    found = last_of(engine, mine=True)
    return [] if found is None else [(found[0], report(found[1], token="f" * 64))]


def anothers_attempt(engine: CaseEngine) -> Said:
    """A worker that has even learned another's token speaks for it."""
    found = last_of(engine, mine=False)
    return [] if found is None else [(found[0], report(found[1]))]


def own_secret_for_anothers_attempt(engine: CaseEngine) -> Said:
    found = last_of(engine, mine=True)
    return [] if found is None else [(found[0], report(found[1], attempt="parcel-99/1"))]


def settled_attempt(engine: CaseEngine) -> Said:
    """A worker repeats the secret of its first attempt, long settled."""
    own = [(one, order) for one, order in engine.script.orders if one in engine.workers]
    return [(own[0][0], report(own[0][1]))] if len(engine.script.orders) > 4 and own else []


def second_hello(engine: CaseEngine) -> Said:
    said = {"kind": "hello", "identity": {"plan": "another"}}
    return [(one, said) for one, _ in engine.script.orders[:1]]


def unknown_kind(engine: CaseEngine) -> Said:
    return [(one, {"kind": "promote", "trial": "parcel-01"}) for one in list(engine.workers)[:1]]


def never_started(_engine: CaseEngine) -> Said:
    return [("spring.99.1", {"kind": "hello", "identity": dict(IDENTITY)})]


def before_admission(engine: CaseEngine) -> Said:
    said = {"kind": "finished", "attempt": "parcel-01/1", "token": "", "step": 10}
    return [(one, said) for one in engine.workers] if engine.turn == 1 else []


@pytest.mark.parametrize(
    "adds",
    [
        forged_token, own_secret_for_anothers_attempt, anothers_attempt, settled_attempt,
        second_hello, unknown_kind, never_started, before_admission,
    ],
)  # fmt: skip
def test_it_changes_nothing_and_is_kept_as_evidence(quiet: str, tmp_path: Path, adds: Adds) -> None:
    case, orders = search(tmp_path, lambda engine: adds(engine) if engine.turn % 5 == 1 else [])
    assert case.table == quiet
    kept = case.set_aside
    assert kept
    assert all(one["reason"] for one in kept)
    assert case.state.attempts_by_state.get("failed", 0) == 0
    # no secret of any attempt stands in the ledger or in a file
    secrets = [order["token"].encode() for _, order in orders]
    assert len(set(secrets)) == len(orders)
    assert min(len(one) for one in secrets) >= 64
    told = json.dumps([dict(event.body) for event in case.events]).encode()
    files = [path.read_bytes() for path in case.world.folder.rglob("*") if path.is_file()]
    assert files
    for secret in secrets:
        assert secret not in told
        assert not any(secret in content for content in files)


@pytest.mark.parametrize("kind", ["alive", "hello", "promote"])
def test_a_flood_from_one_worker_stops_nobody_and_does_not_fill_the_ledger(
    quiet: str, tmp_path: Path, kind: str
) -> None:
    flooded: list[str] = []

    def flood(engine: CaseEngine) -> Said:
        if engine.turn != 6:
            return []
        flooded.append(next(iter(engine.workers)))
        return [(flooded[0], {"kind": kind})] * (MESSAGES_PER_TURN + 1)

    case, orders = search(tmp_path, flood)
    assert case.table == quiet
    assert flooded[0] not in {one for one, _ in orders[4:]}
    assert len(case.set_aside) <= KEPT_MAXIMUM


def test_a_slow_flood_is_given_up_as_well(quiet: str, tmp_path: Path) -> None:
    def drip(engine: CaseEngine) -> Said:
        first = [one for one in engine.workers if one.endswith(".1")]
        return [(one, {"kind": "promote"}) for one in first] * 20

    case, _ = search(tmp_path, drip)
    assert case.table == quiet
    kept = case.set_aside
    assert 0 < len([one for one in kept if one["worker_id"].endswith(".1")]) <= 3 * KEPT_MAXIMUM


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


BROKEN: dict[str, dict[str, Any]] = {
    "not finite": {"kind": "milestone", "step": float("nan")},
    "nested": {"kind": "alive", "more": nested(DEPTH_MAXIMUM)},
    "too many": {"kind": "alive", "more": [0] * VALUES_MAXIMUM},
    "no kind": {"step": 1},
    "long kind": {"kind": "k" * 10_000},
    "half a character": {"kind": "alive", "text": "\ud800"},
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_message_that_is_none_loses_its_worker_and_nothing_else(
    tmp_path: Path, name: str
) -> None:
    assert message_fault(BROKEN[name]) is not None

    def once(engine: CaseEngine) -> Said:
        return [(one, BROKEN[name]) for one in list(engine.workers)[:1]] if engine.turn == 1 else []

    case, orders = search(tmp_path, once)
    assert case.state.ended == "budget"
    assert len({one for one, _ in orders}) == 2
    assert f"{REVISION}.2.1" not in {one for one, _ in orders}


def test_evidence_is_bounded_printable_and_without_the_secret_wherever_it_stands() -> None:
    secret = "5" * 64
    said = {
        "kind": "milestone",
        "token": secret,
        "file": f"{secret}.f4",
        "more": [{"deep": f"x{secret}", "token": "another"}],
        "long": "y" * 100_000,
        "bell": "\x07\x1b[31m",
    }
    text = evidence_of(said)
    assert secret not in text
    assert "another" not in text
    assert len(text) < 2100
    assert text.isprintable()


# ---- pixels that change under a worker ----------------------------------------------------------


def slow_search(world: World, change: Callable[[Path], None]) -> Any:
    """Search with real workers, changing the training photos in place once a trial runs."""
    command = (sys.executable, "-m", "parcel_assets_tests.fake_worker", '{"step_seconds": 0.02}')
    changed: list[Path] = []

    def notify(kind: str, _facts: Mapping[str, Any]) -> None:
        if kind == "progress" and world.state().open_attempts and not changed:
            changed.append(pixels_of(world))
            change(changed[0])

    engine = LocalEngine(world.folder / "logs", command)
    result = world.search(workers=1, engine=lambda: engine, notify=notify)
    assert changed
    return result


def pixels_of(world: World) -> Path:
    return world.store.path(load_chain(REVISION, world.ports()).split.parts["train"].pixels)


def flip(path: Path) -> None:
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))


def test_photos_changed_in_place_while_they_are_trained_on_are_noticed(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.freeze(small_plan(search__budget_trials=3))
    with pytest.raises(IdentityError) as refused:
        slow_search(world, flip)
    assert refused.value.facts["field"] == "train_pixels"
    (first, *_) = refusals_of(world.ledger.events(REVISION))
    assert "changed after it was admitted" in first.cause
    *_, attempt = world.state().attempts.values()  # a trial may have ended before the change
    assert attempt.state == AttemptState.EXPIRED
    assert not attempt.used_up


def test_photos_that_were_only_touched_are_the_same_photos(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.freeze(small_plan(search__budget_trials=3))
    assert slow_search(world, os.utime).body["ended"] == "budget"


def test_measuring_reads_what_is_mapped_and_not_what_the_file_is_called(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.freeze(small_plan())
    setup = Setup.read(setup_of(world))
    data = setup.load()
    before = measure_data(setup.plan, data)
    path = pixels_of(world)
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert measure_data(setup.plan, data) == before, "the old file is still mapped"
    assert measure_data(setup.plan, setup.load()) != before
