"""The door: a worker that differs in one thing is refused before step 1, whatever it differs in.

Real processes, each of which changes one thing of its own; order and setup are untouched.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parcel_assets
from parcel_assets.adapters.engine_local import LocalEngine
from parcel_assets.core.errors import IdentityError
from parcel_assets.core.identity import (
    DATA_FIELDS,
    FIELDS,
    Difference,
    field_of,
    first_difference_of,
)
from parcel_assets.core.identity_data import (
    answer_challenge,
    challenged_pixels,
    measure_data,
    planned_images,
    sketch_images,
)
from parcel_assets.core.ledger import Kind
from parcel_assets.core.refusals import refusals_of
from parcel_assets.steps import dispatch_door
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.dispatch_desk import Desk
from parcel_assets.steps.dispatch_door import Door, Visit
from parcel_assets.steps.worker import Setup, hello
from parcel_assets_tests.fakes import FakeLedger
from parcel_assets_tests.other_worker import CHANGES, Copy
from parcel_assets_tests.search_world import REVISION, World, small_plan

MODULE = "parcel_assets_tests.other_worker"
# change -> the field that is named, and words of its likely cause
DATA_CHANGES = {
    "newer_archive": ("archive", "an archive with 14 newer photos"),
    "image_byte": ("train_pixels", "the same photos with other pixels"),
    "label": ("validation_rows", "other labels"),
    "random_split": ("split", "in both parts: it split the photos by itself, at random"),
    "other_grouped_split": ("split", "a split of its own"),
    "other_grouping": ("split", "other shipments"),
    "normalisation": ("preprocessing", "mean = [0.4,0.5,0.5] where [0.5,0.5,0.5] is frozen"),
    "metric": ("metric", "missed_damage = "),
    "space": ("space", "another copy of the plan"),
    "training": ("training", "batch_photos = 9 where 8 is frozen"),
    "snapshot": ("plan", "snapshot = "),
}
PROCESS_CHANGES = {
    "own_preprocessing": ("preprocessing", "makes other images of the same photos"),
    "threads": ("hardware", "computes with 2 threads instead of 1"),
    "machine": ("hardware", "another hardware class"),
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.freeze(small_plan(search__budget_trials=1))
    return world


def search(world: World, change: str, environment: Mapping[str, str] | None = None) -> Any:
    """Search with workers that differ in one thing."""
    settings = [f"{name}={value}" for name, value in (environment or {}).items()]
    command = ["env", *settings, sys.executable, "-P", "-m", MODULE, change]
    return world.search(workers=1, engine=lambda: LocalEngine(world.folder / "logs", command))


def refused(world: World, change: str, environment: Mapping[str, str] | None = None) -> Any:
    """Return the one refusal of a search whose workers differ, after checking what it cost."""
    with pytest.raises(IdentityError) as error:
        search(world, change, environment)
    events = world.ledger.events(REVISION)
    kinds = [event.kind for event in events]
    assert Kind.ATTEMPT_STARTED not in kinds, "no slot was spent"
    assert Kind.WORKER_ADMITTED not in kinds
    assert world.state().started == 0
    (refusal,) = refusals_of(events)
    assert refusal.found != refusal.expected
    assert error.value.facts["field"] == refusal.field
    assert refusal.cause in str(error.value)
    return refusal


@pytest.mark.parametrize("change", [*DATA_CHANGES, *PROCESS_CHANGES])
def test_a_worker_that_differs_in_one_thing_is_refused(world: World, change: str) -> None:
    field, words = (DATA_CHANGES | PROCESS_CHANGES)[change]
    refusal = refused(world, change)
    assert refusal.field == field
    assert words in refusal.cause


def test_a_worker_with_its_own_equal_copy_of_everything_is_admitted(world: World) -> None:
    assert search(world, "nothing").body["ended"] == "budget"


def test_other_code_is_refused_and_its_file_named(world: World, tmp_path: Path) -> None:
    source = Path(parcel_assets.__file__).parent
    shutil.copytree(source, tmp_path / "other" / "parcel_assets")
    tests = Path(__file__).parent.parent
    (tmp_path / "other" / tests.name).symlink_to(tests)
    with (tmp_path / "other" / "parcel_assets" / "core" / "split.py").open("a") as file:
        file.write("# one line more\n")
    refusal = refused(world, "-", {"PYTHONPATH": str(tmp_path / "other")})
    assert refusal.field == "code"
    assert "another version of this package: it differs in core/split.py" in refusal.cause


def test_another_package_is_refused_and_both_versions_named(world: World, tmp_path: Path) -> None:
    found = tmp_path / "other" / "scipy-0.0.1.dist-info"
    found.mkdir(parents=True)
    (found / "METADATA").write_text("Metadata-Version: 2.1\nName: scipy\nVersion: 0.0.1\n")
    path = os.pathsep.join([str(found.parent), str(Path(parcel_assets.__file__).parent.parent)])
    refusal = refused(world, "-", {"PYTHONPATH": path})
    assert refusal.field == "packages"
    assert "has scipy 0.0.1 instead of " in refusal.cause


def test_another_container_image_is_refused(world: World) -> None:
    refusal = refused(world, "-", {"PARCEL_ASSETS_IMAGE": "sha256:other"})
    assert (refusal.field, refusal.found) == ("image", "sha256:other")


# ---- the same at the door itself: quick enough to take each comparison away ----------------------


class Visitors:
    """A desk with a frozen identity, its door, and workers that come to it."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder, ledger=FakeLedger())
        self.world.freeze(small_plan())
        ports = self.world.ports(identity=measure_data)
        chain = load_chain(REVISION, ports)
        lease = self.world.ledger.acquire(REVISION, "test")
        self.desk = Desk(chain.plan, chain.plan_digest, lease, ports, chain.split)
        identity = {"identity": self.desk.measure_identity(), "reserved_after_seconds": 0.0}
        self.desk.record((Kind.SEARCH_OPENED, identity))
        fields = {
            "revision": REVISION,
            "plan": self.desk.plan.document(),
            "files": self.desk.files(),
        }
        self.setup = self.world.store.path(self.world.store.put_document(fields))
        self.door = Door(self.desk)

    def come(self, folder: Path, change: str) -> Visit | Difference:
        """Let a worker say hello that differs in one thing."""
        folder.mkdir(exist_ok=True)
        copy = Copy(self.setup, folder)
        CHANGES[change](copy)
        self.other = Setup.read(copy.write())
        data = self.other.load()
        return self.door.examine(hello(measure_data(self.other.plan, data), data))


@pytest.fixture
def visitors(tmp_path: Path) -> Visitors:
    return Visitors(tmp_path)


@pytest.mark.parametrize("change", DATA_CHANGES)
def test_without_the_comparison_of_its_fields_that_worker_gets_in(
    visitors: Visitors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    # what the tests above would look like if a field were not compared
    found = visitors.come(tmp_path / "one", change)
    assert isinstance(found, Difference)
    assert (found.field, change) == (DATA_CHANGES[change][0], change)
    differing = {found.field, *found.others}

    def compare_less(
        expected: Mapping[str, str], seen: Mapping[str, str], *more: Any
    ) -> Difference | None:
        left = [
            {name: text for name, text in one.items() if field_of(name) not in differing}
            for one in (expected, seen)
        ]
        return first_difference_of(left[0], left[1], *more)

    monkeypatch.setattr(dispatch_door, "first_difference_of", compare_less)
    assert isinstance(visitors.come(tmp_path / "two", change), Visit)


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_is_compared_and_nothing_else_stands_in_for_it(
    visitors: Visitors, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    frozen = visitors.desk.state.identity or {}
    said = {"kind": "hello", "identity": frozen | {f"{field}.item": "other"}}
    found = visitors.door.examine(said)
    assert isinstance(found, Difference)
    assert (found.field, found.others) == (field, ())
    monkeypatch.setattr(
        dispatch_door,
        "first_difference_of",
        lambda expected, seen, *_: first_difference_of(
            expected, {name: text for name, text in seen.items() if name in expected}
        ),
    )
    assert isinstance(visitors.door.examine(said), Visit), "it gets in where it is not compared"


def test_every_field_of_an_identity_has_a_worker_above_that_differs_in_it() -> None:
    tried = {field for field, _ in (DATA_CHANGES | PROCESS_CHANGES).values()}
    tried |= {"code", "packages", "image"}
    # rules: another version of the package; the two others: the twin parts of those tried
    assert set(FIELDS) - tried == {"rules", "validation_pixels", "train_rows"}
    assert set(DATA_FIELDS) < set(FIELDS)


def test_a_search_opened_under_other_rules_is_refused_in_words(world: World) -> None:
    def older(plan: Any, data: Any) -> dict[str, str]:
        return {"plan": "as measured then", "split": "as measured then"}

    ports = world.ports(identity=older)
    chain = load_chain(REVISION, ports)
    lease = world.ledger.acquire(REVISION, "test")
    desk = Desk(chain.plan, chain.plan_digest, lease, ports, chain.split)
    desk.record((Kind.SEARCH_OPENED, {"identity": older(None, None), "reserved_after_seconds": 0}))
    world.ledger.release(lease)
    with pytest.raises(IdentityError, match="rules 1, by which this search was opened"):
        world.search(workers=1)
    assert world.state().started == 0


# ---- the challenge ------------------------------------------------------------------------------


def visit_of(visitors: Visitors, folder: Path) -> Visit:
    visit = visitors.come(folder, "nothing")
    assert isinstance(visit, Visit)
    return visit


def answer_of(visitors: Visitors, visit: Visit) -> dict[str, Any]:
    data = visitors.other.load()
    return {"digests": answer_challenge(data, nonce=visit.nonce, rows=visit.rows)}


def test_a_right_answer_passes_once_and_is_worth_nothing_to_another(
    visitors: Visitors, tmp_path: Path
) -> None:
    first = visit_of(visitors, tmp_path / "one")
    answer = answer_of(visitors, first)
    assert visitors.door.judge_answer(first, answer) is None
    second = visit_of(visitors, tmp_path / "two")
    assert second.nonce != first.nonce
    same_rows = Visit(second.identity, second.nonce, first.rows)
    replayed = visitors.door.judge_answer(same_rows, answer)
    assert replayed is not None
    assert replayed.field == "challenge"


def test_a_worker_that_reports_a_stolen_identity_does_not_have_the_rows(
    visitors: Visitors, tmp_path: Path
) -> None:
    visitors.door = Door(visitors.desk, draw=lambda count: count - 1)
    visit = visit_of(visitors, tmp_path / "one")
    copy = Copy(visitors.setup, tmp_path / "one")
    CHANGES["image_byte"](copy)
    visitors.other = Setup.read(copy.write())
    found = visitors.door.judge_answer(visit, answer_of(visitors, visit))
    assert found is not None
    assert found.field == "challenge"
    assert "train-047" in found.found, "the photo is named"


@pytest.mark.parametrize("digests", [None, [], "x", ["x"], [None] * 8, [{}] * 8, [1] * 8])
def test_an_answer_that_is_none_is_refused(
    visitors: Visitors, tmp_path: Path, digests: Any
) -> None:
    visit = visit_of(visitors, tmp_path / "one")
    found = visitors.door.judge_answer(visit, {"digests": digests})
    assert found is not None
    assert found.field == "challenge"


def test_rows_are_drawn_afresh_for_each_worker(visitors: Visitors, tmp_path: Path) -> None:
    drawn = [visit_of(visitors, tmp_path / str(n)).rows for n in range(4)]
    assert any(one != drawn[0] for one in drawn)


# ---- what the trainer makes of the rows ---------------------------------------------------------


def ready_of(visitors: Visitors, visit: Visit, **plan_changes: Any) -> dict[str, Any]:
    preprocess = visitors.desk.plan.preprocess.model_copy(update=plan_changes)
    pixels = challenged_pixels(visitors.door.data, visit.rows)
    images = planned_images(preprocess, pixels)
    return {"threads": 1, "sketch": sketch_images(visit.nonce, images)}


def test_the_planned_images_pass(visitors: Visitors, tmp_path: Path) -> None:
    visit = visit_of(visitors, tmp_path / "one")
    assert visitors.door.judge_ready(visit, ready_of(visitors, visit)) is None


@pytest.mark.parametrize(
    "changes",
    [{"mean": (0.5, 0.5, 0.5001)}, {"standard_deviation": (0.25, 0.2501, 0.25)}],
)
def test_images_that_differ_by_a_ten_thousandth_do_not(
    visitors: Visitors, tmp_path: Path, changes: Any
) -> None:
    visit = visit_of(visitors, tmp_path / "one")
    found = visitors.door.judge_ready(visit, ready_of(visitors, visit, **changes))
    assert found is not None
    assert found.field == "preprocessing"


@pytest.mark.parametrize("sketch", [None, [], [1.0], "x", [True] * 8, [np.inf] * 8, [10**400] * 8])
def test_a_sketch_that_is_none_does_not(visitors: Visitors, tmp_path: Path, sketch: Any) -> None:
    visit = visit_of(visitors, tmp_path / "one")
    found = visitors.door.judge_ready(visit, {"threads": 1, "sketch": sketch})
    assert found is not None
    assert found.field == "preprocessing"


@pytest.mark.parametrize("said", [None, [], {"plan": 1}, {1: "x"}, {"plan": "x" * 5000}, "x"])
def test_what_is_no_identity_is_refused(visitors: Visitors, said: Any) -> None:
    found = visitors.door.examine({"kind": "hello", "identity": said})
    assert isinstance(found, Difference)
    assert found.field == "identity"
