"""A whole search up to its final evaluation, told without training: for packets and reports.

82 trials with pruned, failed, lost and quarantined attempts, real statistics over drawn scores, a
ledger in memory and a store on disk. `tell(...)` returns ports in front of `release_packet`.
"""

import atexit
import copy
import functools
import io
import math
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from parcel_assets.adapters.packet_folder import verify_packet
from parcel_assets.adapters.registry_file import FileRegistry
from parcel_assets.adapters.report_html import render_report
from parcel_assets.adapters.signer_ecdsa import EcdsaSigner
from parcel_assets.adapters.store_files import FileStore
from parcel_assets.core.codec import digest_bytes, digest_value
from parcel_assets.core.comparison import compare_paired_costs, tie_set
from parcel_assets.core.holdout import holdout_digest, holdout_keys
from parcel_assets.core.ledger import Kind, Lease, event_bytes
from parcel_assets.core.plan import Plan
from parcel_assets.core.ports import PartData, Pixels, Ports, Scores
from parcel_assets.core.ranks import area_under_curve
from parcel_assets.core.reruns import judge_reruns
from parcel_assets.core.search import fold_search
from parcel_assets.core.selection import rank_trials
from parcel_assets.core.selection_bias import selection_corrected_cost
from parcel_assets.core.slice_report import (
    ScoredModel,
    judge_slices,
    slice_members,
    slice_rules,
    worst_missed,
)
from parcel_assets.core.split import part_data
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.core.statistics import Costs, estimate_cost
from parcel_assets.core.table import pack_scores, table_digest, table_rows
from parcel_assets.core.thresholds import choose_threshold, review_decisions, threshold_interval
from parcel_assets.core.timestamps import level_of
from parcel_assets.core.trial import trial_id_of, trial_seed
from parcel_assets_tests.core.plans import plan as small_plan
from parcel_assets_tests.fakes import FakeLedger
from parcel_assets_tests.timestamp_authority import FakeTimestamper

REVISION = "story-2026"
SIDE = 32
COSTS = Costs(5.0, 1.0)
DAMAGE_TYPES = ("crushed_corner", "tear", "dent", "stain", "open_flap")
CAMERAS = ("top", "side", "handheld")
SHARE_OF_DAMAGE = (0.2, 0.2, 0.25, 0.2, 0.15)
HARDNESS = {"crushed_corner": 1.1, "tear": 0.2, "dent": 0.5, "stain": 0.1, "open_flap": 0.0}
COLOURS = {"crushed_corner": 60, "tear": 110, "dent": 90, "stain": 40, "open_flap": 150, "": 190}


@dataclass
class Story:
    """The told search: its ports and what tests ask about."""

    ports: Ports
    plan: Plan
    ledger: FakeLedger
    store: FileStore
    winner: str
    evidence: dict[Stage, str] = field(default_factory=dict)

    @property
    def events(self) -> tuple[Any, ...]:
        return self.ledger.events(REVISION)


class FakeVault:
    """Remembers receipts."""

    evidence_level = "L1"
    evaluator_digest = digest_bytes(b"evaluator")

    def __init__(self) -> None:
        self.receipts: list[dict[str, Any]] = []

    def receipts_over(self, keys: Any) -> list[dict[str, Any]]:
        asked = set(keys)
        return [one for one in self.receipts if asked.intersection(one["keys"])]


class FakeServing:
    """Answers as a quiet machine would; writes no ONNX."""

    def __init__(self) -> None:
        self.calls = 0

    def measure(self, model: Path, side_pixels: int) -> dict[str, Any]:
        assert model.is_file()
        self.calls += 1
        return {
            "requests": 300,
            "requests_per_second": 41.2,
            "latency_p50_ms": 22.4,
            "latency_p95_ms": 31.9,
            "latency_p99_ms": 38.0,
            "model_only_p50_ms": 4.1,
            "model_only_p95_ms": 4.9,
            "batch_photos": 16,
            "batch_photos_per_second": 402.5,
            "noisy": False,
            "peak_memory_bytes": 451_248_128,
            "model_bytes": model.stat().st_size,
            "load_seconds": 0.041,
            "conditions": {
                "request": f"one 640 by 480 JPEG, decoded, shrunk to {side_pixels} pixels and "
                "scored; one request at a time, no network",
                "threads": 1,
                "processor": "A drawn processor",
                "processors": 2,
                "load_average_at_start": 0.4,
                "torch": "2.13.0",
                "pillow": "13.0.0",
            },
            "environment": {
                "python": "3.11.7",
                "implementation": "CPython",
                "system": "Linux",
                "machine": "x86_64",
                "packages": {"numpy": "2.4.6", "torch": "2.13.0"},
            },
        }

    def export_onnx(self, model: Path, pixels: Pixels, folder: Path) -> dict[str, Any]:
        return {"files": [], "sentence": "No ONNX file: onnx is not installed here."}


def tell(
    folder: Path,
    *,
    outcome: str = "PASS",
    corners: str = "kept",
    decided: bool = False,
    photos: tuple[Pixels, list[str]] | None = None,
    stamped: tuple[str, ...] = (),
    custody: tuple[str, str] | None = None,
) -> Story:
    """Tell a search. `corners` is `kept`, or `lost`: then the winner fails crushed corners.

    `stamped` names what is timestamped: split, choice or both. `custody` is the vault's level and
    its reason; without, the story is one that an earlier release left.
    """
    if photos is not None:
        return _Teller(
            folder,
            outcome,
            corners,
            decided=decided,
            photos=photos,
            stamped=stamped,
            custody=custody,
        ).tell()
    first = _told_once(outcome, corners, decided, stamped, custody)
    shutil.copytree(first.folder, folder, dirs_exist_ok=True)
    ledger, vault = copy.deepcopy((first.ledger, first.vault))
    store = FileStore(folder / "store")
    ports = _ports(folder, ledger, store, vault)
    return Story(ports, first.plan, ledger, store, first.winner, dict(first.evidence))


@functools.cache
def _told_once(
    outcome: str,
    corners: str,
    decided: bool,
    stamped: tuple[str, ...],
    custody: tuple[str, str] | None,
) -> "_Teller":
    """Tell a search aside; every later telling of the same is a copy, which is much faster."""
    aside = Path(tempfile.mkdtemp(prefix="parcel-assets-told-"))
    atexit.register(shutil.rmtree, aside, ignore_errors=True)
    teller = _Teller(
        aside,
        outcome,
        corners,
        decided=decided,
        photos=None,
        stamped=stamped,
        custody=custody,
    )
    teller.tell()
    return teller


def _ports(folder: Path, ledger: FakeLedger, store: FileStore, vault: "FakeVault") -> Ports:
    unused: Any = None
    return Ports(
        ledger=ledger,
        store=store,
        open_source=unused,
        open_engine=unused,
        sampler=unused,
        measure_identity=unused,
        validator=unused,
        vault=vault,  # type: ignore[arg-type]  # only what a release asks of a vault
        signer=EcdsaSigner(folder / "keys"),
        registry=FileRegistry(folder / "registry"),
        serving=FakeServing(),
        pictures=unused,
        verify_packet=verify_packet,
        packets=folder / "packets",
        custodian=folder / "custodian",
        workers=1,
        render_report=render_report,
    )


class _Teller:
    def __init__(
        self,
        folder: Path,
        outcome: str,
        corners: str,
        *,
        decided: bool,
        photos: tuple[Pixels, list[str]] | None,
        stamped: tuple[str, ...],
        custody: tuple[str, str] | None,
    ) -> None:
        self.stamped = stamped
        self.level = custody[0] if custody else "L1"
        self.level_reason = custody[1] if custody else None
        self.outcome, self.corners, self.decided, self.photos = outcome, corners, decided, photos
        self.random = np.random.default_rng(82)
        self.ledger = FakeLedger()
        self.ledger.clock_seconds = 1_795_000_000.0
        self.authority = FakeTimestamper(self.ledger.now)
        self.store = FileStore(folder / "store")
        self.vault = FakeVault()
        self.evidence: dict[Stage, str] = {}
        self.folder = folder
        self.rows = self._photo_rows()
        self.snapshot_digest = digest_value([row["photo_id"] for row in self.rows["train"]])
        self.plan = small_plan(
            purpose="Find a damage model for the sample parcels that is better than the one in "
            "use, "
            "corners included.",
            snapshot__digest=self.snapshot_digest,
            snapshot__archive="sample-parcels",
            metric__unit="minutes of work",
            search__cap_accelerator_hours=4.0,
            search__trial_seconds_maximum=120.0,
            final__target_cost_per_1000=self._target(),
            final__minimum_shipments=200 if outcome != "INSUFFICIENT" else 5000,
            slices__damage_types={"dimension": "damage_type"},
        )
        self.lease: Lease = self.ledger.acquire(REVISION, "telling")

    def say(self, kind: Kind, **body: Any) -> Any:
        (event,) = self.ledger.append(self.lease, [(kind, body)])
        return event

    def stamp(self, name: str) -> None:
        if name not in self.stamped:
            return
        token = self.authority.stamp(event_bytes(self.ledger.events(REVISION)[-1]))
        self.say(
            Kind.TIMESTAMP_RECORDED,
            token=self.store.put(token.content, ".tsr"),
            authority=token.authority,
            stamped_at=token.at_seconds,
        )

    def wait(self, seconds: float) -> None:
        self.ledger.clock_seconds += seconds
        self.ledger.renew(self.lease)

    def tell(self) -> Story:
        self.say(Kind.PLAN_FROZEN, plan=self.plan.document(), plan_digest=self.plan.digest)
        self._snapshot()
        self._split()
        self.stamp("split")
        self._search()
        self._rerun()
        self._slices()
        self._final()
        self.ledger.release(self.lease)
        ports = _ports(self.folder, self.ledger, self.store, self.vault)
        return Story(ports, self.plan, self.ledger, self.store, self.winner, self.evidence)

    def record(self, stage: Stage, body: dict[str, Any], **further: str) -> None:
        inputs = {str(one): self.evidence[one] for one in stage.earlier} | further
        evidence = Evidence(
            stage=stage,
            revision=REVISION,
            plan_digest=self.plan.digest,
            inputs=inputs,
            body=body,
        )
        self.evidence[stage] = self.store.put_document(evidence.document())
        self.say(
            Kind.STAGE_RECORDED, stage=str(stage), evidence=self.evidence[stage], inputs=inputs
        )
        self.wait(2)

    def _target(self) -> float:
        if self.outcome == "FAIL":
            return 200.0
        return 640.0 if self.corners == "lost" else 480.0

    # ---- data ----------------------------------------------------------------------------------

    def _photo_rows(self) -> dict[str, list[dict[str, Any]]]:
        rows: dict[str, list[dict[str, Any]]] = {"train": [], "validation": [], "holdout": []}
        sizes = {"train": 500, "validation": 1000, "holdout": 400}
        number = 0
        for part, shipments in sizes.items():
            for _ in range(shipments):
                number += 1
                damaged = bool(self.random.random() < 0.3)
                kind = str(self.random.choice(DAMAGE_TYPES, p=SHARE_OF_DAMAGE)) if damaged else None
                for frame in range(1, int(self.random.integers(2, 5))):
                    camera = str(self.random.choice(CAMERAS))
                    photo_id = f"images/{number:013d}_{frame}_{camera}.jpg"
                    row: dict[str, Any] = {
                        "photo_id": photo_id,
                        "shipment_id": f"{number:013d}",
                        "pixel_digest": digest_bytes(photo_id.encode()),
                        "attributes": {"camera_class": camera},
                    }
                    if part != "holdout":
                        row |= {"damaged": damaged, "damage_type": kind}
                    rows[part].append(row)
        return rows

    def _pixels(self, rows: list[dict[str, Any]]) -> Pixels:
        values = [COLOURS[row.get("damage_type") or ""] for row in rows]
        noise = self.random.integers(0, 60, (len(rows), SIDE, SIDE, 1), dtype=np.uint8)
        flat = np.array(values, dtype=np.uint8).reshape(-1, 1, 1, 1)
        pixels: Pixels = np.repeat(flat + noise, 3, axis=3)
        return pixels

    def _snapshot(self) -> None:
        everything = [row for part in self.rows.values() for row in part]
        damaged = sum(bool(row.get("damaged")) for row in everything)
        self.record(
            Stage.SNAPSHOT,
            {
                "archive": self.plan.snapshot.archive,
                "snapshot_digest": self.snapshot_digest,
                "photos_document": self.store.put_document(everything),
                "label_commitment": digest_bytes(b"labels"),
                "photos": len(everything),
                "shipments": len({row["shipment_id"] for row in everything}),
                "damaged_photos": damaged,
                "bad_rows": [],
                "counts": {"camera_class": dict.fromkeys(CAMERAS, 1)},
                "contact_sheet": self.store.put(self._sheet(range(12)), ".png"),
                "decode_version": "story/1",
            },
        )

    def _sheet(self, rows: Any, part: str = "train") -> bytes:
        side, columns = (64, 6) if self.photos else (SIDE, 6)
        rows = list(rows)
        height = math.ceil(len(rows) / columns)
        canvas = Image.new("RGB", (columns * (side + 4), height * (side + 4)), "white")
        pixels = self.photos[0] if self.photos else self._pixels(self.rows[part])
        for place, row in enumerate(rows):
            tile = Image.fromarray(np.asarray(pixels[int(row) % len(pixels)]))
            corner = (place % columns * (side + 4) + 2, place // columns * (side + 4) + 2)
            canvas.paste(tile, corner)
        text = io.BytesIO()
        canvas.save(text, "PNG")
        return text.getvalue()

    def _split(self) -> None:
        shipments = {
            part: sorted({row["shipment_id"] for row in rows}) for part, rows in self.rows.items()
        }
        parts = {}
        for part, rows in self.rows.items():
            array = io.BytesIO()
            np.save(array, self._pixels(rows), allow_pickle=False)
            parts[part] = {
                "photos": len(rows),
                "shipments": len(shipments[part]),
                "pixels": self.store.put(array.getvalue(), ".npy"),
                "rows": self.store.put_document(rows),
            }
        self.keys = holdout_keys(self.plan.snapshot.archive, self.rows["holdout"])
        self.sealed = {
            "holdout_digest": holdout_digest(self.keys),
            "commitment": digest_bytes(b"salted labels"),
            "ciphertext_digest": digest_bytes(b"sealed labels"),
        }
        self.say(Kind.HOLDOUT_SEALED, **self.sealed)
        self.record(
            Stage.SPLIT,
            {
                "split_digest": digest_value(shipments),
                "assignment_document": self.store.put_document(
                    {
                        "parts": shipments,
                        "components": [[one] for p in shipments.values() for one in p],
                    }
                ),
                "parts": parts,
                "components": sum(map(len, shipments.values())),
                "linked_components": [],
                "quarantined": [],
                "counts": {"holdout": {"camera_class": {"top": 300, "side": 310}}},
                "support": [{"met": True, "sentence": "train: 500 shipments, 1 asked."}],
                "duplicate_pixels_across_parts": 0,
                "holdout_digest": self.sealed["holdout_digest"],
                "holdout_commitment": self.sealed["commitment"],
                "holdout_ciphertext": self.sealed["ciphertext_digest"],
                "contact_sheet": self.store.put(self._sheet(range(24)), ".png"),
            },
        )

    # ---- search --------------------------------------------------------------------------------

    def _scores(self, quality: float, *, hardness: float = 0.5) -> Scores:
        rows = self.rows["validation"]
        centre = np.array(
            [
                quality - hardness * HARDNESS[row["damage_type"]] if row["damaged"] else -quality
                for row in rows
            ]
        )
        logits = self.shared + centre + self.random.normal(0, 0.55, len(rows))
        scores: Scores = (1 / (1 + np.exp(-logits))).astype(np.float32)
        return scores

    def _cost(self, scores: Scores) -> tuple[float, float]:
        threshold = choose_threshold(scores, self.damaged, COSTS)
        review = review_decisions(scores, threshold)
        return estimate_cost(review, self.damaged, self.shipments, COSTS).cost_per_1000, threshold

    def _search(self) -> None:
        rows = self.rows["validation"]
        self.damaged = np.array([row["damaged"] for row in rows], dtype=np.bool_)
        self.shipments = [row["shipment_id"] for row in rows]
        self.shared = self.random.normal(0, 1.0, len(rows))
        self.subset = digest_value([row["photo_id"] for row in rows])
        self.say(
            Kind.SEARCH_OPENED,
            identity={"code": digest_bytes(b"code"), "image": "story"},
            reserved_after_seconds=self.plan.after_search_seconds,
        )
        self.stored: dict[str, Scores] = {}
        for batch in range(1, 12):
            numbers = range(8 * batch - 7, min(8 * batch, 82) + 1)
            cut = self._cut(batch)
            trials = [
                {
                    "number": number,
                    "trial_id": trial_id_of(number),
                    "seed": trial_seed(self.plan.search.seed, number),
                    "configuration": {
                        "learning_rate": round(float(10 ** self.random.uniform(-4, -1)), 6),
                        "width": int(self.random.choice([4, 8, 12, 16])),
                        "rare_oversampling": float(self.random.choice([1.0, 4.0])),
                    },
                }
                for number in numbers
            ]
            self.say(Kind.BATCH_OPENED, batch=batch, trials=trials, cut_table=cut)
            for trial in trials:
                self._trial(trial, cut)
            self.say(Kind.BATCH_CLOSED, batch=batch)
        self.say(Kind.SEARCH_ENDED, reason="budget")
        state = fold_search(self.plan, self.ledger.events(REVISION))
        self.record(
            Stage.SEARCH,
            {
                "ended": "budget",
                "budget_trials": 82,
                "started_trials": state.started,
                "unstarted_trials": state.unstarted,
                "trials_by_state": state.trials_by_state,
                "attempts_by_state": state.attempts_by_state,
                "charged_seconds_by_purpose": state.charged_seconds_by_purpose,
                "cap_seconds": self.plan.cap_seconds,
                "steps_trained": state.steps_trained,
                "steps_saved_by_pruning": state.steps_saved_by_pruning,
                "best_trial": state.best_trial,
                "best_cost_per_1000": state.best_cost_per_1000,
                "ledger_head": self.ledger.events(REVISION)[-1].digest,
            },
        )
        self.table = table_rows(self.plan, state)
        documents = [row.document() for row in self.table]
        self.record(
            Stage.TABLE,
            {
                "table_digest": table_digest(self.table),
                "table_document": self.store.put_document(documents),
                "rows": 82,
                "trials_by_state": dict(sorted(Counter(str(r.state) for r in self.table).items())),
                "expectations": [
                    {"name": "row_count", "passed": True, "sentence": "82 rows.", "unexpected": []}
                ],
                "ledger_head": self.ledger.events(REVISION)[-1].digest,
            },
        )

    def _cut(self, batch: int) -> list[dict[str, Any]]:
        if batch < 4:
            reason = "fewer than 12 comparable values"
            return [
                {"step": step, "cut_cost": None, "reason": reason, "values": []} for step in (9, 27)
            ]
        state = fold_search(self.plan, self.ledger.events(REVISION))
        cuts = []
        for step, keep in ((9, 0.75), (27, 0.5)):
            values = [
                [number, record.reports[step].cost_per_1000 or 0.0]
                for number, record in state.trials.items()
                if step in record.reports and record.batch is not None and record.batch <= batch - 2
            ]
            costs = sorted(float(cost) for _, cost in values)
            cut = costs[max(0, math.ceil(keep * len(costs)) - 1)]
            cuts.append(
                {
                    "step": step,
                    "cut_cost": cut,
                    "reason": f"the best {keep:.0%} of {len(costs)} go on",
                    "values": values,
                }
            )
        return cuts

    def _trial(self, trial: dict[str, Any], cut: list[dict[str, Any]]) -> None:
        number = int(trial["number"])
        quality = float(self.random.normal(1.0, 0.14)) + 0.12 * (number > 30)
        if number in {13, 55}:  # fails twice
            for attempt in (1, 2):
                self._attempt(trial["trial_id"], attempt, end=("failed", 5, "loss is not finite"))
            return
        if number == 21:  # lost with its worker, resumed from its checkpoint
            parent = self._attempt(
                trial["trial_id"], 1, end=("expired", 44, "worker lost"), quality=quality
            )
            self._train(trial, 2, quality, cut, resume=(40, parent))
            return
        if number == 34:  # quarantined in time, rerun cleanly
            name = self._attempt(trial["trial_id"], 1, end=("completed", 82, ""))
            self.say(
                Kind.ATTEMPT_QUARANTINED,
                attempt=f"{trial['trial_id']}-a1",
                trial=trial["trial_id"],
                reason="a checkpoint of parcel-33-a1 lies in its prefix",
            )
            assert name
            self._train(trial, 2, quality, cut)
            return
        self._train(trial, 1, quality, cut)

    def _train(
        self,
        trial: dict[str, Any],
        attempt: int,
        quality: float,
        cut: list[dict[str, Any]],
        resume: tuple[int, str] | None = None,
    ) -> None:
        subject, name = trial["trial_id"], f"{trial['trial_id']}-a{attempt}"
        self._start(subject, attempt, "search", resume)
        curve = {9: 0.45, 27: 0.75, 82: 1.0}
        parent, last = (resume[1] if resume else None), 0
        for step, share in curve.items():
            if resume and step < resume[0]:
                continue
            scores = self._scores(quality * share + float(self.random.normal(0, 0.03)))
            cost, _ = self._cost(scores)
            limit = next((one["cut_cost"] for one in cut if one["step"] == step), None)
            stop = limit is not None and cost > limit
            self.wait(4 * share)
            reason = f"{cost:.1f} against a cut of {limit:.1f}" if limit else "nothing to compare"
            verdict = "stop" if stop else "continue"
            self._report(subject, name, step, scores, verdict=verdict, reason=reason)
            last = step
            if stop:
                break
            if step != 82:
                parent = self._checkpoint(subject, name, step, parent)
            else:
                self.stored[subject] = scores
        charged = round(0.25 * (last - (resume[0] if resume else 0)) + 1.5, 3)
        self.say(
            Kind.ATTEMPT_ENDED,
            attempt=name,
            subject=subject,
            purpose="search",
            state="completed" if last == 82 else "pruned",
            step=last,
            charged_seconds=charged,
            reason="" if last == 82 else "above the cut",
            own_failure=False,
            model=digest_bytes(name.encode()) if last == 82 else None,
        )

    def _start(
        self, subject: str, attempt: int, purpose: str, resume: tuple[int, str] | None = None
    ) -> str:
        name = f"{subject.replace('/', '-')}-a{attempt}"
        self.say(
            Kind.ATTEMPT_STARTED,
            attempt=name,
            subject=subject,
            purpose=purpose,
            worker_id=f"worker-{int(self.random.integers(1, 3))}",
            fence=1,
            prefix=f"{REVISION}/{name}",
            reserved_seconds=120.0,
            resume_step=resume[0] if resume else 0,
            parent_checkpoint=resume[1] if resume else None,
        )
        return name

    def _checkpoint(self, subject: str, name: str, step: int, parent: str | None) -> str:
        digest = digest_bytes(f"{name}/{step}".encode())
        self.say(
            Kind.CHECKPOINT_SAVED,
            attempt=name,
            subject=subject,
            step=step,
            file=f"step-{step:04d}.safetensors",
            checkpoint=digest,
            parent_checkpoint=parent,
        )
        return digest

    def _report(self, subject: str, name: str, step: int, scores: Scores, **judged: str) -> None:
        cost, threshold = self._cost(scores)
        self.say(
            Kind.MILESTONE_REPORTED,
            attempt=name,
            subject=subject,
            step=step,
            photos_seen=step * 64,
            subset_digest=self.subset,
            scores=self.store.put(pack_scores(scores), ".f32"),
            cost_per_1000=cost,
            threshold=threshold,
            **judged,
        )

    def _attempt(
        self, subject: str, attempt: int, end: tuple[str, int, str], quality: float = 0.0
    ) -> str:
        name = self._start(subject, attempt, "search")
        state, step, reason = end
        if quality:
            for milestone, share in ((9, 0.45), (27, 0.75)):
                scores = self._scores(quality * share)
                judged = {"verdict": "continue", "reason": "nothing to compare"}
                self._report(subject, name, milestone, scores, **judged)
        parent = ""
        if step >= 40:
            parent = self._checkpoint(subject, name, 40, None)
        self.wait(5)
        self.say(
            Kind.ATTEMPT_ENDED,
            attempt=name,
            subject=subject,
            purpose="search",
            state=state,
            step=step,
            charged_seconds=round(0.25 * step + 1.5, 3),
            reason=reason,
            own_failure=state == "failed",
            model=None,
        )
        return parent

    # ---- choice and slices ----

    def _trained(self, subject: str, seed: int, purpose: str, scores: Scores, config: Any) -> Any:
        name = self._start(subject, 1, purpose)
        model = self.store.put(f"weights of {subject}".encode() * 400, ".safetensors")
        cost, threshold = self._cost(scores)
        self.wait(20)
        self.say(
            Kind.ATTEMPT_ENDED,
            attempt=name,
            subject=subject,
            purpose=purpose,
            state="completed",
            step=82,
            charged_seconds=22.0,
            reason="",
            own_failure=False,
            model=model,
        )
        return {
            "subject": subject,
            "seed": seed,
            "configuration": config,
            "attempt": name,
            "model": model,
            "scores": self.store.put(pack_scores(scores), ".f32"),
            "cost_per_1000": cost,
            "threshold": threshold,
            "parent_checkpoint": None,
        }

    def _estimate(self, model: ScoredModel) -> dict[str, Any]:
        estimate = estimate_cost(model.review, self.damaged, self.shipments, COSTS)
        return {
            **estimate.as_document(),
            "threshold": model.threshold,
            "area_under_curve": area_under_curve(model.scores, self.damaged),
        }

    def _rerun(self) -> None:
        ranked = rank_trials(self.table)
        best = ranked[0]
        self.winner = best.trial_id
        scores = self.stored[self.winner]
        if self.corners == "lost":
            scores = self.stored[self.winner].copy()
            corner = np.array(
                [r["damage_type"] == "crushed_corner" for r in self.rows["validation"]]
            )
            scores[corner & (self.random.random(len(scores)) < 0.75)] *= np.float32(0.05)
        threshold = float(best.threshold or 0)
        self.say(
            Kind.SELECTION_FROZEN,
            trial=self.winner,
            threshold=threshold,
            ranking=[row.trial_id for row in ranked],
            informed_by=None,
            table_digest=table_digest(self.table),
        )
        config = dict(best.configuration)
        own = self._trained(f"rerun/{self.winner}/own", best.seed, "rerun", scores, config)
        extra = [
            self._trained(f"rerun/{self.winner}/{seed}", seed, "rerun", self._scores(1.17), config)
            for seed in self.plan.rerun.seeds
        ]
        base_scores = self._scores(0.93, hardness=1.0)
        reference = self._trained(
            "reference", 1, "reference", base_scores, dict(self.plan.reference.configuration)
        )
        self.candidate = ScoredModel(scores, threshold)
        self.reference = ScoredModel(base_scores, reference["threshold"])
        numbers = self._estimate(self.candidate)
        paired = compare_paired_costs(
            self.candidate.review, self.reference.review, self.damaged, self.shipments, COSTS
        )
        reviews = {
            row.trial_id: review_decisions(self.stored[row.trial_id], float(row.threshold or 0))
            for row in ranked
        }
        corrected = selection_corrected_cost(
            np.stack([self.stored[row.trial_id] for row in ranked]),
            self.damaged,
            self.shipments,
            COSTS,
            seed=1,
            draws=60,
        )
        judgement = judge_reruns(
            float(best.final_cost_per_1000 or 0),
            own["cost_per_1000"],
            [one["cost_per_1000"] for one in extra],
            [float(row.final_cost_per_1000 or 0) for row in ranked],
        )
        self.model = own["model"]
        self.record(
            Stage.RERUN,
            {
                "selected_trial": self.winner,
                "selected_cost_per_1000": best.final_cost_per_1000,
                "threshold": threshold,
                "ranking": [row.trial_id for row in ranked],
                "tie_set": list(tie_set(reviews, self.damaged, self.shipments, COSTS, self.winner)),
                "corrected_cost": {
                    "mean": corrected.cost_per_1000,
                    "low": corrected.range_low,
                    "high": corrected.range_high,
                },
                "slice_informed": False,
                "own": own,
                "extra": extra,
                "reference": reference,
                "judgement": judgement.as_document(),
                "scores_equal": True,
                "largest_score_difference": 0.0,
                "model": self.model,
                "trivial_cost_per_1000": {
                    "review_all": numbers["review_all_cost_per_1000"],
                    "review_none": numbers["review_none_cost_per_1000"],
                },
                "validation": numbers
                | {
                    "against_reference": paired.as_document(),
                    "display_interval": {"low": 410.5, "high": 512.5},
                    "threshold_interval": threshold_interval(
                        self.candidate.scores,
                        self.damaged,
                        self.shipments,
                        COSTS,
                        threshold=self.candidate.threshold,
                    ).as_document(),
                },
                "reference_validation": self._estimate(self.reference),
            },
        )

    def _slices(self) -> None:
        rows = self.rows["validation"]
        part: PartData = part_data(rows, self._pixels(rows))
        rules = slice_rules(self.plan.slices, part.attributes)
        results = judge_slices(rules, part, self.candidate, self.reference, COSTS)
        passed = all(one.passed for one in results if one.role == "protected")
        worst = worst_missed(part, self.candidate, 24)
        self.protected_passed = passed
        self.record(
            Stage.SLICES,
            {
                "slices": [one.as_document() | {"passed": one.passed} for one in results],
                "protected_passed": passed,
                "disposition": "evaluate:final-holdout" if passed else "hold:slice-quality",
                "members": {one.name: slice_members(one, part, self.candidate) for one in rules},
                "worst_sheet": self.store.put(self._sheet(worst, "validation"), ".png"),
                "worst_sheets": {
                    rule.name: self.store.put(self._sheet(missed, "validation"), ".png")
                    for rule in rules
                    if rule.role == "protected"
                    and len(missed := worst_missed(part, self.candidate, 24, rule))
                },
            },
        )
        if self.decided:
            self.say(
                Kind.DECISION_RECORDED,
                outcome="accept",
                name="Ada Example",
                role="quality owner",
                reason="Belt cameras of site 2 see few crushed corners, and all of them are lifted "
                "by hand anyway.",
                scope="belt cameras of site 2",
                expires_on="2030-12-31",
                slice_evidence=self.evidence[Stage.SLICES],
                numbers_seen={
                    "slices": [o.sentence for o in results if o.role == "protected"],
                    "missed_per_1000": 31.0,
                    "reference_missed_per_1000": 28.5,
                    "consequence": "Of 1,000 photos the candidate lets 31.0 damaged ones pass "
                    "unreviewed (the reference 28.5).",
                },
            )

    def _final(self) -> None:
        threshold = self.candidate.threshold
        identity = {
            **self.sealed,
            "model": self.model,
            "model_digest": self.model,
            "threshold": threshold,
            "evaluator_digest": self.vault.evaluator_digest,
            "freeze_event": self.ledger.events(REVISION)[-1].digest,
            "request_digest": digest_bytes(b"request"),
        }
        self.vault.receipts.append(
            {**identity, "revision": REVISION, "at_seconds": 1.0, "keys": list(self.keys)}
        )
        self.stamp("choice")
        opened = self.ledger.open_holdout(self.lease, identity, self.keys)
        words = {
            "PASS": "The target is met.",
            "FAIL": "The target is missed.",
            "INSUFFICIENT": "Not enough evidence to say that the target is met.",
        }[self.outcome]
        result = {
            **self._estimate(self.candidate),
            "target_cost_per_1000": self.plan.final.target_cost_per_1000,
            "slices": [
                {
                    "name": "crushed_corner",
                    "sentence": "crushed_corner: 12 shipments, 25 damaged photos, 9 missed (36 %, "
                    "at most 58 % with 95 % confidence).",
                }
            ],
        }
        sentence = (
            f"Final holdout: 400 shipments, 236 damaged photos, 61 missed. Cost "
            f"{result['cost_per_1000']:.1f} per 1,000 photos, at most "
            f"{result['upper_bound_guarded']:.1f} with 95 % confidence; target "
            f"{result['target_cost_per_1000']:g}. {words}"
        )
        self.wait(9)
        predictions = digest_bytes(b"predictions")
        reason = {"evidence_level_reason": self.level_reason} if self.level_reason else {}
        self.say(
            Kind.HOLDOUT_EVALUATED,
            predictions_digest=predictions,
            outcome=self.outcome,
            sentence=sentence,
            result=result,
            charged_seconds=9.0,
            **({"evidence_level": self.level} | reason if self.level_reason else {}),
        )
        further = {"decision": digest_bytes(b"decision")} if self.decided else {}
        self.record(
            Stage.FINAL,
            {
                "disposition": "evaluate:final-holdout",
                "holdout_digest": self.sealed["holdout_digest"],
                "model": self.model,
                "evaluator_digest": self.vault.evaluator_digest,
                "threshold": threshold,
                "opened_event": opened.digest,
                "predictions_digest": predictions,
                "result": result,
                "outcome": self.outcome,
                "sentence": sentence,
                "evidence_level": level_of(self.level, self.ledger.events(REVISION)),
                "reused_shipments": 0,
                **reason,
            },
            **further,
        )


__all__ = ["REVISION", "FakeServing", "FakeVault", "Story", "tell"]
