"""A revision that is ready to be searched, in a folder: plan, pinned photos, split, ledger, store.

`python -m parcel_assets_tests.search_world FOLDER WORKERS FAULTS_JSON [URL]` searches it in a
process of its own, for tests that kill it.
"""

import io
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from parcel_assets.adapters.engine_local import LocalEngine
from parcel_assets.adapters.identity_host import measure_identity
from parcel_assets.adapters.ledger_sql import SqlLedger
from parcel_assets.adapters.store_files import FileStore
from parcel_assets.core.evidence import ArrayPart, SnapshotBody, SplitBody
from parcel_assets.core.ledger import Kind
from parcel_assets.core.plan import Plan
from parcel_assets.core.ports import Engine, Ledger, Ports, Sampler, Store
from parcel_assets.core.search import SearchState, fold_search
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.core.table import table_digest, table_rows
from parcel_assets.core.timestamps import Timestamper
from parcel_assets.steps.admission import load_chain
from parcel_assets.steps.search import run_trial_batches
from parcel_assets_tests.core.plans import plan as make_plan
from parcel_assets_tests.fake_training import FakeSampler

REVISION = "spring"
SNAPSHOT = "a" * 64
PHOTOS = {"train": 48, "validation": 40, "holdout": 6}
SIDE = 16


def small_plan(**changes: Any) -> Plan:
    """Return a plan of 12 short trials in batches of 3, with pruning that bites."""
    settings = {
        "snapshot__digest": SNAPSHOT,
        "preprocess__image_size_pixels": SIDE,
        "metric__milestone_fraction": 0.8,
        "search__budget_trials": 12,
        "search__batch_trials": 3,
        "search__cap_accelerator_hours": 1.0,
        "search__trial_seconds_maximum": 30.0,
        "training": {
            "steps": 10,
            "batch_photos": 8,
            "milestones": [2, 5, 10],
            "checkpoint_every_steps": 3,
        },
        "pruning": {
            "keep_fractions": [0.6, 0.5],
            "minimum_comparable": 3,
            "warm_up_trials": 3,
            "minimum_rank_correlation": -1.0,
        },
        "slices": {},
    }
    return make_plan(**(settings | changes))


class NoVault:
    """A vault that nothing was ever opened from."""

    def receipts_over(self, _keys: Any) -> list[dict[str, Any]]:
        return []


class World:
    """One folder with one revision; ports on the real adapters, workers with the fake trainer."""

    def __init__(
        self,
        folder: Path,
        *,
        ledger: Ledger | None = None,
        store: Store | None = None,
        revision: str = REVISION,
    ) -> None:
        self.folder = folder
        self.revision = revision
        self.ledger: Ledger = ledger or SqlLedger(f"sqlite:///{folder / 'ledger.db'}")
        self.store: Store = store or FileStore(folder / "store")

    def freeze(self, plan: Plan, *, seed: int = 1, photos: Mapping[str, int] | None = None) -> None:
        """Freeze a plan and record the evidence of snapshot and split."""
        self.photos = dict(photos or PHOTOS)
        lease = self.ledger.acquire(self.revision, "test")
        frozen = {"plan": plan.document(), "plan_digest": plan.digest}
        self.ledger.append(lease, [(Kind.PLAN_FROZEN, frozen)])
        digests: dict[str, str] = {}
        bodies = {Stage.SNAPSHOT: self._snapshot(), Stage.SPLIT: self._split(seed)}
        for stage, body in bodies.items():
            evidence = Evidence(
                stage=stage,
                revision=self.revision,
                plan_digest=plan.digest,
                inputs=dict(digests),
                body=body.document(),
            )
            digest = self.store.put_document(evidence.document())
            entry = {"stage": str(stage), "evidence": digest, "inputs": dict(digests)}
            self.ledger.append(lease, [(Kind.STAGE_RECORDED, entry)])
            digests[str(stage)] = digest
        self.ledger.release(lease)

    def _snapshot(self) -> SnapshotBody:
        total = sum(self.photos.values())
        return SnapshotBody(
            archive="test-parcels",
            snapshot_digest=SNAPSHOT,
            photos_document=self.store.put_document([]),
            label_commitment="c" * 64,
            photos=total,
            shipments=total // 2,
            damaged_photos=total // 2,
            bad_rows=(),
            counts={},
            contact_sheet="",
            decode_version="test",
        )

    def _split(self, seed: int) -> SplitBody:
        generator = np.random.default_rng(seed)
        parts, shipments = {}, {}
        for part, photos in self.photos.items():
            damaged = generator.random(photos) < 0.4
            damaged[:4] = [True, False, True, False]
            pixels = generator.integers(0, 200, (photos, SIDE, SIDE, 3)).astype(np.uint8)
            pixels[damaged, : SIDE // 3] += 6  # a faint trace, so that trials differ
            rows: list[dict[str, Any]] = [
                {
                    "photo_id": f"{part}-{number:03d}",
                    "shipment_id": f"{part}-{number // 2:03d}",
                    "pixel_digest": f"{part}{number}",
                    "attributes": {"camera_class": "top"},
                }
                for number in range(photos)
            ]
            if part != "holdout":
                for row, flag in zip(rows, damaged, strict=True):
                    row["damaged"] = bool(flag)
                    row["damage_type"] = "crushed_corner" if flag else None
            file = io.BytesIO()
            np.save(file, pixels, allow_pickle=False)
            shipments[part] = sorted({str(row["shipment_id"]) for row in rows})
            parts[part] = ArrayPart(
                photos=photos,
                shipments=len(shipments[part]),
                pixels=self.store.put(file.getvalue(), ".npy"),
                rows=self.store.put_document(rows),
            )
        assignment = {"parts": shipments, "components": []}
        return SplitBody(
            split_digest="s" * 64,
            assignment_document=self.store.put_document(assignment),
            parts=parts,
            components=0,
            linked_components=(),
            quarantined=(),
            counts={},
            support=(),
            duplicate_pixels_across_parts=0,
            holdout_digest="h" * 64,
            holdout_commitment="h" * 64,
            holdout_ciphertext="h" * 64,
            contact_sheet="",
        )

    def ports(
        self,
        *,
        workers: int = 2,
        faults: Mapping[str, Any] | None = None,
        worker: str = "fake_worker",
        engine: Callable[[], Engine] | None = None,
        sampler: Sampler | None = None,
        notify: Callable[[str, Mapping[str, Any]], None] = lambda _kind, _facts: None,
        identity: Callable[..., dict[str, str]] = measure_identity,
        timestamper: Timestamper | None = None,
    ) -> Ports:
        """Return ports whose unused doors are shut."""
        module = f"parcel_assets_tests.{worker}"
        command = (sys.executable, "-m", module, json.dumps(dict(faults or {})))
        shut = cast("Any", None)
        return Ports(
            ledger=self.ledger,
            store=self.store,
            open_source=shut,
            open_engine=engine or (lambda: LocalEngine(self.folder / "logs", command)),
            sampler=lambda _name: sampler or FakeSampler(),
            measure_identity=identity,
            validator=shut,
            vault=cast("Any", NoVault()),
            signer=shut,
            registry=shut,
            serving=shut,
            pictures=shut,
            verify_packet=shut,
            packets=self.folder / "packets",
            custodian=self.folder / "custodian",
            workers=workers,
            notify=notify,
            timestamper=timestamper,
        )

    def plan(self) -> Plan:
        """Return the frozen plan."""
        return self._load()[0]

    def _load(self) -> tuple[Plan, str]:
        from parcel_assets.steps.admission import load_plan

        return load_plan(self.revision, self.ports())

    def state(self) -> SearchState:
        """Return what the ledger adds up to now."""
        return fold_search(self.plan(), self.ledger.events(self.revision))

    def table_digest(self) -> str:
        """Return the digest of the trial table."""
        return table_digest(table_rows(self.plan(), self.state()))

    def search(self, **settings: Any) -> Evidence:
        """Search to the end."""
        return run_trial_batches(self.revision, self.ports(**settings))


def setup_of(world: World) -> Path:
    """Return the setup file of the world's workers, as the pool writes it."""
    ports = world.ports()
    plan, split = world.plan(), load_chain(world.revision, ports).split
    files = {
        f"{part}_{kind}": str(ports.store.path(digest))
        for part in ("train", "validation")
        for kind, digest in (
            ("pixels", split.parts[part].pixels),
            ("rows", split.parts[part].rows),
        )
    }
    fields = {"revision": world.revision, "plan": plan.document(), "files": files}
    return ports.store.path(ports.store.put_document(fields))


if __name__ == "__main__":
    url = sys.argv[4] if len(sys.argv) > 4 else ""
    at = World(Path(sys.argv[1]), ledger=SqlLedger(url) if url else None)
    at.search(workers=int(sys.argv[2]), faults=json.loads(sys.argv[3]))
