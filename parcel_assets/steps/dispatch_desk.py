"""What a coordinator works with: plan, lease, ledger state, validation labels, stored files.

Recording an event and folding it are one act here, so that what is decided on is always what the
ledger says. What is decided is left to the rules in `core` and to `dispatch`.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from parcel_assets.core.attempts import AttemptRecord
from parcel_assets.core.codec import digest_bytes
from parcel_assets.core.columns import shipment_codes
from parcel_assets.core.errors import CheckpointError, SplitError
from parcel_assets.core.evidence import SplitBody
from parcel_assets.core.ledger import Event, Kind, Lease
from parcel_assets.core.lineage import is_below_prefix
from parcel_assets.core.plan import Plan
from parcel_assets.core.ports import Ports, TrainingData
from parcel_assets.core.search import SearchState, fold_search
from parcel_assets.core.split import milestone_rows, subset_digests
from parcel_assets.core.statistics import Costs, estimate_cost
from parcel_assets.core.table import unpack_scores
from parcel_assets.core.thresholds import choose_threshold, review_decisions
from parcel_assets.steps.dispatch_lineage import PrefixReader, set_aside_quarantined
from parcel_assets.steps.worker import PARTS, Setup

Entry = tuple[Kind, Mapping[str, Any]]


@dataclass(slots=True)
class Desk:
    """One revision at work under one lease."""

    plan: Plan
    plan_digest: str
    lease: Lease
    ports: Ports
    split: SplitBody
    state: SearchState = field(init=False)
    labels: "Labels" = field(init=False)
    _sequence: int = field(init=False, default=0)  # of the newest event, noted ones included
    _noted: list[Entry] = field(init=False, default_factory=list)
    _kept: list[tuple[bytes, str]] = field(init=False, default_factory=list)
    reader: PrefixReader = field(init=False)
    _set_aside: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self._read_ledger()
        self.reader = PrefixReader(self.ports.store)
        rows = self.ports.store.get_document(self.split.parts["validation"].rows)
        self.labels = Labels(self.plan, rows)

    @property
    def revision(self) -> str:
        """The search revision."""
        return self.lease.revision

    def record(self, *entries: Entry) -> None:
        """Append events durably, with all that was noted before them, and fold them."""
        self.note(*entries)
        self.flush()

    def note(self, *entries: Entry) -> None:
        """Fold events now and append them with the next flush; until then nobody acts on them."""
        now = self.now()
        for kind, body in entries:
            self._sequence += 1
            self.state.apply(Event(self.revision, self._sequence, now, kind, body, "", ""))
        self._noted += entries

    def keep(self, content: bytes, suffix: str) -> str:
        """Return the digest of an object that the next flush stores before it appends events."""
        self._kept.append((content, suffix))
        return digest_bytes(content)

    def flush(self) -> None:
        """Make durable what was kept and noted: objects first, then events in one transaction.

        Where that is refused, the state goes back to what the ledger says.
        """
        noted, kept = self._noted, self._kept
        self._noted, self._kept = [], []
        if not noted:
            return
        try:
            self.ports.store.put_many(kept)
            events = self.ports.ledger.append(self.lease, noted)
        except BaseException:
            self._read_ledger()
            raise
        self.state.head = events[-1].digest
        if events[-1].sequence != self._sequence:  # a stage appended beside this desk
            self._read_ledger()

    def _read_ledger(self) -> None:
        events = self.ports.ledger.events(self.revision)
        self.state = fold_search(self.plan, events)
        self._sequence = events[-1].sequence if events else 0

    def now(self) -> float:
        """Return the ledger's clock."""
        return self.ports.ledger.now()

    def files(self) -> dict[str, str]:
        """Return the local paths of what workers load: pixels and rows, never the holdout's."""
        found = {}
        for part in PARTS:
            array = self.split.parts[part]
            found[f"{part}_pixels"] = str(self.ports.store.path(array.pixels))
            found[f"{part}_rows"] = str(self.ports.store.path(array.rows))
        return found

    def data(self) -> TrainingData:
        """Return what workers load, as they load it."""
        return Setup(self.revision, self.plan, self.files()).load()

    def photo_ids(self, part: str) -> list[str]:
        """Return the photos of a part, the holdout included: its rows hold no label."""
        rows = self.ports.store.get_document(self.split.parts[part].rows)
        return [str(row["photo_id"]) for row in rows]

    def measure_identity(self) -> dict[str, str]:
        """Measure what a worker on this machine, on this split, would be."""
        identity = self.ports.measure_identity(self.plan, self.data())
        if self.plan.worker.image != "record":
            identity["image"] = self.plan.worker.image
        return identity

    # ---- files of attempts ----------------------------------------------------------------------

    def attempt_file(self, record: AttemptRecord, file: str) -> Path:
        """Return the path of an attempt's file; raises CheckpointError outside its prefix."""
        folder = self.ports.store.prefix_path(record.started.prefix)
        path = folder / file
        # realpath and not resolve: a link that leads to itself is a file outside, not a crash
        real, below = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
        if not is_below_prefix(file) or path.is_symlink() or not real.is_relative_to(below):
            raise CheckpointError(
                repr(file),
                expected="a file below the attempt's own prefix",
                where=f"prefix of {record.attempt}",
                remedy="The attempt is quarantined: its worker writes where it must not.",
            )
        return path

    def set_aside_quarantined(self) -> None:
        """Move the prefixes of quarantined attempts away, each with a note; once per attempt."""
        set_aside_quarantined(self.state, self.ports.store, self._set_aside)


class Labels:
    """Validation labels, and the cost of scores against them under the plan's one policy.

    Raises SplitError where a milestone's photos lack damaged or intact ones: no cost could be told.
    """

    def __init__(self, plan: Plan, rows: Sequence[Mapping[str, Any]]) -> None:
        self._plan = plan
        self._costs = Costs(plan.metric.missed_damage, plan.metric.needless_review)
        self._damaged = np.array([bool(row["damaged"]) for row in rows], dtype=np.bool_)
        shipments = [str(row["shipment_id"]) for row in rows]
        self._shipments: npt.NDArray[np.int64] = shipment_codes(shipments)
        self.rows = milestone_rows(plan, shipments)
        self.subsets = subset_digests([str(row["photo_id"]) for row in rows], self.rows)
        for step, chosen in self.rows.items():
            damaged = int(self._damaged[chosen].sum())
            if damaged in {0, len(chosen)}:
                raise SplitError(
                    f"{damaged} damaged photos among the {len(chosen)} scored at step {step}",
                    expected="damaged and intact ones",
                    where="validation part",
                    remedy="Raise metric.milestone_fraction or the validation part's size, under "
                    "a new search revision.",
                )

    def judge(self, step: int, content: bytes) -> tuple[float | None, float | None]:
        """Return cost per 1,000 photos and threshold of stored scores; None where not finite.

        Raises StorageError where they are not the scores of the milestone's photos.
        """
        chosen = self.rows[step]
        scores = unpack_scores(content, len(chosen))
        if not np.isfinite(scores).all():
            return None, None
        damaged = self._damaged[chosen]
        points = self._plan.metric.threshold_grid_points
        threshold = choose_threshold(scores, damaged, self._costs, points)
        review = review_decisions(scores, threshold)
        estimate = estimate_cost(review, damaged, self._shipments[chosen], self._costs)
        return estimate.cost_per_1000, threshold
