"""A search that has ended, made without training: data, ledger, table; selection is next.

A photo's bytes hold every model's score, so that reruns, reference and holdout are exact.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from parcel_assets.adapters.store_files import FileStore
from parcel_assets.core.codec import canonical_json
from parcel_assets.core.errors import HoldoutError
from parcel_assets.core.evidence import ArrayPart, SearchBody, SnapshotBody, SplitBody
from parcel_assets.core.final import FinalRequest, judge_holdout
from parcel_assets.core.holdout import holdout_digest, holdout_keys
from parcel_assets.core.ledger import Kind, Lease
from parcel_assets.core.lineage import owner_of
from parcel_assets.core.plan import Plan
from parcel_assets.core.ports import (
    Ledger,
    PartData,
    Pixels,
    Ports,
    Scores,
    Sealed,
    Store,
    Vault,
)
from parcel_assets.core.snapshot import Label, label_rows
from parcel_assets.core.split import part_data
from parcel_assets.core.stage import Evidence, Record, Stage
from parcel_assets.core.statistics import Costs, estimate_cost
from parcel_assets.core.table import pack_scores
from parcel_assets.core.thresholds import choose_threshold, review_decisions
from parcel_assets.core.timestamps import Timestamper
from parcel_assets.core.trial import (
    AttemptEnded,
    AttemptStarted,
    AttemptState,
    Batch,
    MilestoneReported,
    ProposedTrial,
    Verdict,
    trial_id_of,
    trial_seed,
)
from parcel_assets.steps.admission import leased
from parcel_assets.steps.dispatch import TaskResult
from parcel_assets.steps.dispatch_work import Task
from parcel_assets.steps.timestamps import stamp_split
from parcel_assets_tests.core.plans import plan as small_plan
from parcel_assets_tests.fakes import FakeLedger
from parcel_assets_tests.steps.place_trainer import model_bytes, place_scores

REVISION = "search-a"
SIDE = 8
PIN = "ab" * 32
UNUSED = cast("Any", None)
BUDGET = 6
COMPLETED = 4  # trials 1 … 4 complete, 5 is pruned, 6 fails
REFERENCE_PLACE = 60
# how far apart damaged and intact photos score, by trial: 2 is best, then 3, 1, 4
QUALITY = {1: 0.16, 2: 0.21, 3: 0.19, 4: 0.12}
SEEDS = (101, 102, 103)


class FakeVault:
    """A vault in memory; `looks` counts decryptions, `dies` names the moment of one crash."""

    evidence_level = "L1"
    evaluator_digest = "ef" * 32

    def __init__(self, store: FileStore) -> None:
        self._store = store
        self.labels: dict[str, list[list[Any]]] = {}
        self.receipts: dict[str, dict[str, Any]] = {}
        self.looks = 0
        self.dies = ""

    def seal(self, holdout_digest: str, labels: Sequence[Label]) -> Sealed:
        self.labels[holdout_digest] = label_rows(labels)
        return Sealed("cd" * 32, "dc" * 32)

    def receipts_over(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        return [one for one in self.receipts.values() if set(keys) & set(one["keys"])]

    def leave_receipt(self, holdout_digest: str, receipt: Mapping[str, Any]) -> None:
        self._die("before the receipt")
        if self.receipts_over(receipt["keys"]):
            raise HoldoutError("opened", expected="not", where="vault", remedy="No.")
        self.receipts[holdout_digest] = dict(receipt)
        self._die("after the receipt")

    def disclose(self, holdout_digest: str, revision: str) -> dict[str, Any]:
        raise HoldoutError("shut", expected="a real vault", where=revision, remedy="No.")

    def require_key(self, request: Mapping[str, Any]) -> None:
        """Look with a key that is always at hand."""

    def evaluate(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._die("before the look")
        asked = FinalRequest.model_validate(request)
        pixels = np.load(self._store.path(asked.pixels), allow_pickle=False)
        place = int(self._store.get_document(asked.model)["place"])
        scores = place_scores(pixels, place)
        self.looks += 1
        rows = self._store.get_document(asked.rows)
        judged = judge_holdout(asked, rows, self.labels[asked.holdout_digest], scores)
        self._die("after the look")
        return {**judged.document(), "predictions_digest": "aa" * 32, "decryptions": self.looks}

    def _die(self, moment: str) -> None:
        if self.dies == moment:
            self.dies = ""
            raise KeyboardInterrupt(moment)


class FakePictures:
    def contact_sheet(self, pixels: Pixels, captions: Sequence[str], columns: int) -> bytes:
        assert len(pixels) == len(captions)
        return b"PNG " + str(len(pixels)).encode()


class FakeValidator:
    """Passes everything, or fails the one expectation it is told to."""

    def __init__(self) -> None:
        self.fails = False

    def validate(self, rows: Sequence[Mapping[str, Any]], plan: Plan) -> list[dict[str, Any]]:
        numbers = [row["number"] for row in rows] == list(range(1, len(rows) + 1))
        return [
            {
                "name": "numbers_in_order",
                "passed": numbers and not self.fails,
                "sentence": "Numbers run from 1.",
                "unexpected": [],
            }
        ]


@dataclass
class Desk:
    """Ports over one store, and the data that was written there; `trained` lists all trainings."""

    ports: Ports
    plan: Plan
    revision: str
    validation: PartData
    places: dict[str, int]  # canonical configuration -> place of its score
    sealed_labels: list[Label]
    trained: list[str] = field(default_factory=list)
    own_shift: float = 0.0  # how much the own-seed rerun differs from the search

    def run_tasks(self, tasks: Sequence[Task], **given: Any) -> dict[str, TaskResult]:
        """Stand in for the dispatcher: settle one attempt for each task that has none."""
        ledger, lease = given["ports"].ledger, given["lease"]
        results = {}
        for task in tasks:
            place = self.places[canonical_json(dict(task.configuration)).decode()]
            own = task.seed == self._trial_seed(task) or task.purpose == "reference"
            place += 0 if own else 1 + SEEDS.index(task.seed)
            shift = self.own_shift if task.subject.endswith("/own") else 0.0
            scores = np.clip(place_scores(self.validation.pixels, place) + np.float32(shift), 0, 1)
            attempt = f"{task.subject}#1"
            if attempt not in self.trained:
                self.trained.append(attempt)
                entries = attempt_events(task.subject, task.purpose, attempt)
                claim_prefixes(given["ports"].store, lease.revision, entries)
                ledger.append(lease, entries)
            results[task.subject] = self._result(task, attempt, place, scores.astype(np.float32))
        return results

    def _trial_seed(self, task: Task) -> int | None:
        if not task.subject.startswith("rerun/"):
            return None
        number = int(task.subject.split("/")[1].removeprefix("parcel-"))
        return trial_seed(self.plan.search.seed, number)

    def _result(self, task: Task, attempt: str, place: int, scores: Scores) -> TaskResult:
        threshold, cost = threshold_and_cost(self.plan, self.validation, scores)
        store = self.ports.store
        return TaskResult(
            subject=task.subject,
            attempt=attempt,
            model=store.put(model_bytes(place)),
            scores=store.put(pack_scores(scores)),
            cost_per_1000=cost,
            threshold=threshold,
        )

    def events(self, kind: Kind) -> list[Any]:
        return [one for one in self.ports.ledger.events(self.revision) if one.kind == kind]

    def record(self, lease: Lease, stage: Stage, body: Record) -> None:
        ledger, store = self.ports.ledger, self.ports.store
        recorded = {
            str(one.body["stage"]): str(one.body["evidence"])
            for one in self.events(Kind.STAGE_RECORDED)
        }
        evidence = Evidence(
            stage=stage,
            revision=self.revision,
            plan_digest=self.plan.digest,
            inputs=recorded,
            body=body.document(),
        )
        entry = {
            "stage": str(stage),
            "evidence": store.put_document(evidence.document()),
            "inputs": recorded,
        }
        ledger.append(lease, [(Kind.STAGE_RECORDED, entry)])


def desk_plan(**changes: Any) -> Plan:
    usual: dict[str, Any] = {
        "snapshot__digest": PIN,
        "search__budget_trials": BUDGET,
        "rerun": {"seeds": list(SEEDS), "maximum_instability": 0.5},
        "reference": {"configuration": {"learning_rate": 0.01, "width": 16}},
        "final": {
            "target_cost_per_1000": 900.0,
            "minimum_shipments": 50,
            "minimum_damaged_photos": 20,
        },
        "slices__crushed_corner__minimum_damaged_photos": 30,
    }
    return small_plan(**usual | changes)


def make_desk(
    folder: Path,
    *,
    revision: str = REVISION,
    plan: Plan | None = None,
    ledger: Ledger | None = None,
    vault: Vault | None = None,
    weak_corners: tuple[int, ...] = (),
    corner_share: float = 0.4,
    further_shipment: bool = False,
    until: Stage = Stage.SEARCH,
    timestamper: Timestamper | None = None,
) -> Desk:
    """Return a revision whose search has ended; `weak_corners` are trials that miss some damage."""
    plan = plan or desk_plan()
    store = FileStore(folder / "store")
    ports = replace(
        final_ports(folder, ledger or FakeLedger(), vault or FakeVault(store)),
        timestamper=timestamper,
    )
    drawn = {
        "train": draw_part("t", 12, 1, weak_corners, corner_share),
        "validation": draw_part("v", 500, 2, weak_corners, corner_share),
        "holdout": draw_part("h", 200 + further_shipment, 3, weak_corners, corner_share),
    }
    rows, pixels = drawn["validation"]
    places = {canonical_json(dict(plan.reference.configuration)).decode(): REFERENCE_PLACE}
    places |= {canonical_json(configuration_of(one)).decode(): 4 * one for one in QUALITY}
    labels = [
        Label(photo_id=row["photo_id"], damaged=row["damaged"], damage_type=row["damage_type"])
        for row in drawn["holdout"][0]
    ]
    desk = Desk(ports, plan, revision, part_data(rows, pixels), places, labels)
    with leased(ports, revision, "desk") as lease:
        entry = {"plan": plan.document(), "plan_digest": plan.digest}
        ports.ledger.append(lease, [(Kind.PLAN_FROZEN, entry)])
        sheet = ports.store.put(b"PNG of drawn photos", ".png")
        desk.record(lease, Stage.SNAPSHOT, snapshot_body(drawn["train"][0], sheet))
        desk.record(lease, Stage.SPLIT, split_body(desk, lease, drawn))
        stamp_split(lease, ports)
        entries = search_events(desk)
        claim_prefixes(ports.store, lease.revision, entries)
        ports.ledger.append(lease, entries)
        if until == Stage.SEARCH:
            head = ports.ledger.events(revision)[-1].digest
            desk.record(lease, Stage.SEARCH, search_body(plan, head))
    return desk


def final_ports(folder: Path, ledger: Ledger, vault: Vault) -> Ports:
    """Return ports on a folder, those of the stages before the table shut."""
    return Ports(
        ledger=ledger,
        store=FileStore(folder / "store"),
        open_source=UNUSED,
        open_engine=UNUSED,
        sampler=UNUSED,
        measure_identity=UNUSED,
        validator=FakeValidator(),
        vault=vault,
        signer=UNUSED,
        registry=UNUSED,
        serving=UNUSED,
        pictures=FakePictures(),
        verify_packet=UNUSED,
        packets=folder / "packets",
        custodian=folder / "custodian",
        workers=1,
    )


def draw_part(
    prefix: str, shipments: int, seed: int, weak_corners: tuple[int, ...], corner_share: float
) -> tuple[list[dict[str, Any]], Pixels]:
    """Return two rows for each shipment and pixels that hold a score at each model's place."""
    draws = np.random.default_rng(seed)
    photos = 2 * shipments
    damaged = draws.random(photos) < 0.3
    corner = damaged & (draws.random(photos) < corner_share)
    top = draws.random(photos) < 0.5
    unseen = corner & (draws.random(photos) < 0.45)
    noise = draws.normal(0, 0.12, photos)  # what all models err on alike
    flat = np.zeros((photos, SIDE * SIDE * 3))
    qualities = {4 * one: quality for one, quality in QUALITY.items()} | {REFERENCE_PLACE: 0.15}
    for place, quality in qualities.items():
        for seed_place in range(place, place + 1 + len(SEEDS)):
            weak = place // 4 in weak_corners  # better than all others, but for crushed corners
            apart = 0.3 if weak else quality - 0.03 * bool(weak_corners)
            centre = 0.5 + np.where(damaged, apart, -apart)
            centre = np.where(unseen, 0.2, centre) if weak else centre
            flat[:, seed_place] = centre + noise + draws.normal(0, 0.04, photos)
    pixels = np.rint(np.clip(flat, 0, 1) * 255).astype(np.uint8).reshape(photos, SIDE, SIDE, 3)
    rows = [
        {
            "photo_id": f"{prefix}{number:04d}.png",
            "shipment_id": f"{prefix}{number // 2:04d}",
            "pixel_digest": f"{prefix}-pixels-{number}",
            "attributes": {"camera_class": "top" if top[number] else "side"},
            "damaged": bool(damaged[number]),
            "damage_type": (
                ("crushed_corner" if corner[number] else "dent") if damaged[number] else None
            ),
        }
        for number in range(photos)
    ]
    return rows, pixels


def configuration_of(number: int) -> dict[str, Any]:
    return {"learning_rate": 0.001 * number, "width": 8, "rare_oversampling": 1.0}


def threshold_and_cost(plan: Plan, part: PartData, scores: Scores) -> tuple[float, float]:
    costs = Costs(plan.metric.missed_damage, plan.metric.needless_review)
    threshold = choose_threshold(scores, part.damaged, costs, plan.metric.threshold_grid_points)
    review = review_decisions(scores, threshold)
    return threshold, estimate_cost(review, part.damaged, part.shipments, costs).cost_per_1000


def snapshot_body(rows: list[dict[str, Any]], sheet: str = "00" * 32) -> SnapshotBody:
    return SnapshotBody(
        archive="test-parcels",
        snapshot_digest=PIN,
        photos_document="00" * 32,
        label_commitment="00" * 32,
        photos=len(rows),
        shipments=len(rows) // 2,
        damaged_photos=sum(row["damaged"] for row in rows),
        bad_rows=(),
        counts={},
        contact_sheet=sheet,
        decode_version="1",
    )


def split_body(
    desk: Desk, lease: Lease, drawn: dict[str, tuple[list[dict[str, Any]], Pixels]]
) -> SplitBody:
    ports, parts, shipments = desk.ports, {}, {}
    for name, (labelled, pixels) in drawn.items():
        kept = [one for one in labelled[0] if name != "holdout" or not one.startswith("damage")]
        rows = [{key: row[key] for key in kept} for row in labelled]
        shipments[name] = sorted({row["shipment_id"] for row in rows})
        parts[name] = ArrayPart(
            photos=len(rows),
            shipments=len(shipments[name]),
            pixels=put_array(ports.store, pixels),
            rows=ports.store.put_document(rows),
        )
    keys = holdout_keys(desk.plan.snapshot.archive, drawn["holdout"][0])
    sealed = ports.vault.seal(holdout_digest(keys), desk.sealed_labels)
    facts = {
        "holdout_digest": holdout_digest(keys),
        "commitment": sealed.commitment,
        "ciphertext_digest": sealed.ciphertext_digest,
    }
    ports.ledger.append(lease, [(Kind.HOLDOUT_SEALED, facts)])
    components = [[one] for part in shipments.values() for one in part]
    return SplitBody(
        split_digest="00" * 32,
        assignment_document=ports.store.put_document(
            {"parts": shipments, "components": components, "quarantined": []}
        ),
        parts=parts,
        components=len(components),
        linked_components=(),
        quarantined=(),
        counts={},
        support=(),
        duplicate_pixels_across_parts=0,
        holdout_digest=holdout_digest(keys),
        holdout_commitment=sealed.commitment,
        holdout_ciphertext=sealed.ciphertext_digest,
        contact_sheet=ports.store.put(b"PNG of drawn photos", ".png"),
    )


def put_array(store: Any, pixels: Pixels) -> str:
    buffer = io.BytesIO()
    np.save(buffer, pixels, allow_pickle=False)
    digest: str = store.put(buffer.getvalue(), ".npy")
    return digest


def search_events(desk: Desk) -> list[tuple[Kind, dict[str, Any]]]:
    plan = desk.plan
    trials = tuple(
        ProposedTrial(
            number=number,
            trial_id=trial_id_of(number),
            seed=trial_seed(plan.search.seed, number),
            configuration=configuration_of(number),
        )
        for number in range(1, BUDGET + 1)
    )
    batch = Batch(batch=1, trials=trials, cut_table=())
    events: list[tuple[Kind, dict[str, Any]]] = [
        (Kind.SEARCH_OPENED, {"identity": {}, "reserved_after_seconds": 0.0}),
        (Kind.BATCH_OPENED, batch.document()),
    ]
    for trial in trials:
        if trial.number <= COMPLETED:
            scores = place_scores(desk.validation.pixels, 4 * trial.number)
            stored = desk.ports.store.put(pack_scores(scores))
            threshold, cost = threshold_and_cost(plan, desk.validation, scores)
            report = MilestoneReported(
                attempt=f"{trial.trial_id}#1",
                subject=trial.trial_id,
                step=plan.training.steps,
                photos_seen=1,
                subset_digest="00" * 32,
                scores=stored,
                cost_per_1000=cost,
                threshold=threshold,
                verdict=Verdict.CONTINUE,
                reason="",
            )
            events += attempt_events(
                trial.trial_id, "search", f"{trial.trial_id}#1", reports=(report,)
            )
        else:
            state = AttemptState.PRUNED if trial.number == COMPLETED + 1 else AttemptState.FAILED
            for attempt in (1, 2) if state == AttemptState.FAILED else (1,):
                events += attempt_events(
                    trial.trial_id, "search", f"{trial.trial_id}#{attempt}", state=state
                )
    closing: list[tuple[Kind, dict[str, Any]]] = [
        (Kind.BATCH_CLOSED, {"batch": 1}),
        (Kind.SEARCH_ENDED, {"reason": "budget"}),
    ]
    return events + closing


def claim_prefixes(
    store: Store, revision: str, entries: Sequence[tuple[Kind, dict[str, Any]]]
) -> None:
    """Give each attempt that is started the prefix that it would have had, with its folder."""
    for kind, body in entries:
        if kind == Kind.ATTEMPT_STARTED:
            body["prefix"] = f"{revision}/{body['attempt'].replace('#', '-')}"
            if not store.prefix_path(body["prefix"]).exists():  # a new ledger over an old store
                owner = owner_of(revision, body["attempt"], body["subject"])
                store.claim_prefix(body["prefix"], owner)


def attempt_events(
    subject: str,
    purpose: Any,
    attempt: str,
    *,
    state: AttemptState = AttemptState.COMPLETED,
    reports: tuple[MilestoneReported, ...] = (),
) -> list[tuple[Kind, dict[str, Any]]]:
    started = AttemptStarted(
        attempt=attempt,
        subject=subject,
        purpose=purpose,
        worker_id="w1",
        fence=1,
        prefix="",
        reserved_seconds=60.0,
    )
    ended = AttemptEnded(
        attempt=attempt,
        subject=subject,
        purpose=purpose,
        state=state,
        step=1,
        charged_seconds=1.0,
        own_failure=state == AttemptState.FAILED,
    )
    middle = [(Kind.MILESTONE_REPORTED, one.document()) for one in reports]
    return [
        (Kind.ATTEMPT_STARTED, started.document()),
        *middle,
        (Kind.ATTEMPT_ENDED, ended.document()),
    ]


def search_body(plan: Plan, head: str) -> SearchBody:
    return SearchBody(
        ended="budget",
        budget_trials=plan.search.budget_trials,
        started_trials=BUDGET,
        unstarted_trials=0,
        trials_by_state={"completed": 4, "pruned": 1, "failed": 1},
        attempts_by_state={"completed": 4, "pruned": 1, "failed": 2},
        charged_seconds_by_purpose={"search": 7.0},
        cap_seconds=plan.cap_seconds,
        steps_trained=7,
        steps_saved_by_pruning=81,
        best_trial="parcel-02",
        best_cost_per_1000=1.0,
        ledger_head=head,
    )


def with_ports(desk: Desk, **changes: Any) -> Desk:
    """Return the desk with some of its ports replaced."""
    return replace(desk, ports=replace(desk.ports, **changes))
