"""The doors to the outside: what steps may ask of ledger, store, engine, trainer, vault, ….

Adapters implement these; steps use nothing else. Arrays are numpy; paths are local files.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from parcel_assets.core.approval import SignatureHolds
from parcel_assets.core.ledger import Event, Kind, Lease
from parcel_assets.core.ledger_audit import LedgerRecord
from parcel_assets.core.plan import Plan, PreprocessPlan, SnapshotPlan, TrainingPlan
from parcel_assets.core.snapshot import BadRow, Label, Photo
from parcel_assets.core.space import Scalar
from parcel_assets.core.timestamps import Timestamper

Pixels = npt.NDArray[np.uint8]
Scores = npt.NDArray[np.float32]
Images = npt.NDArray[np.float32]  # (photos, 3, side, side)
Flags = npt.NDArray[np.bool_]
Message = Mapping[str, Any]  # JSON fields with `kind`


# ---- archive ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArchiveContent:
    """Everything a source found in one pass: photos, their labels, small pixels, refused rows.

    `pixels` is uint8 (photos, side, side, 3) at the plan's image size, in the order of `photos`,
    which are sorted by photo id. `labels` has the same order.
    """

    photos: tuple[Photo, ...]
    labels: tuple[Label, ...]
    pixels: Pixels
    bad_rows: tuple[BadRow, ...]


@dataclass(frozen=True, slots=True)
class ListedPhoto:
    """What the table and a file's bytes say of a photo before it is decoded."""

    photo_id: str
    shipment_id: str
    attributes: Mapping[str, str]
    file_digest: str


class ArchiveSource(Protocol):
    """An archive of photos with a label table under the plan's declared column map."""

    decode_version: str

    def read(self, progress: Callable[[int, int], None] | None = None) -> ArchiveContent:
        """Read, fully decode and normalise every photo once; bad rows are listed, not raised."""
        ...

    def listing(self) -> tuple[ListedPhoto, ...]:
        """Return rows that are good without decoding, sorted by photo id: a cheap second look."""
        ...

    def read_labels(self) -> tuple[Label, ...]:
        """Return the good rows' labels without decoding a photo (the custodian's second look)."""
        ...


# ---- ledger -------------------------------------------------------------------------------------


class Ledger(Protocol):
    """Append-only event chains, leases with fences, registers of assignments and openings."""

    def now(self) -> float:
        """Return the ledger's clock in seconds since the epoch; it never runs backwards."""
        ...

    def revisions(self) -> tuple[str, ...]:
        """Return all revisions that have a chain, in order of their first event."""
        ...

    def events(self, revision: str, after: int = 0) -> tuple[Event, ...]:
        """Return the chain's events with a sequence above `after`."""
        ...

    def record_of(self, revision: str) -> LedgerRecord:
        """Return all that is held of a revision, as it is and at one moment, for an audit."""
        ...

    def acquire(self, revision: str, purpose: str) -> Lease:
        """Return the revision's lease with a new fence.

        Raises LeaseHeldError while another live process holds it; a dead one on this host is taken
        over at once, one elsewhere when its lease has run out.
        """
        ...

    def renew(self, lease: Lease) -> None:
        """Prolong the lease; raises StaleFenceError where it was taken over."""
        ...

    def release(self, lease: Lease) -> None:
        """Give the lease back; a stale one is ignored."""
        ...

    def append(
        self, lease: Lease, entries: Sequence[tuple[Kind, Mapping[str, Any]]]
    ) -> tuple[Event, ...]:
        """Append events in one transaction, durably, and prolong the lease.

        Raises StaleFenceError for a stale lease and LedgerError where core.ledger refuses a kind.
        """
        ...

    def assignments(self, archive: str) -> Mapping[str, str]:
        """Return shipment id -> part of all shipments ever assigned in the archive."""
        ...

    def tranches(self, archive: str) -> Mapping[str, int]:
        """Return shipment id -> tranche of all holdout shipments that were ever dealt to one."""
        ...

    def assign(
        self,
        lease: Lease,
        archive: str,
        parts: Mapping[str, str],
        dealt: Mapping[str, int] | None = None,
    ) -> None:
        """Add shipments to the register, and holdout shipments to their tranches, in one step.

        Raises SplitError, changing nothing, if one is there under another part or tranche.
        """
        ...

    def open_holdout(self, lease: Lease, body: Mapping[str, Any], keys: Sequence[str]) -> Event:
        """Append HOLDOUT_OPENED and insert its revision and every key under unique keys at once.

        Raises HoldoutError, changing nothing, where the revision or one key was opened before.
        """
        ...

    def opened_by(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Return key -> revision for those of the keys that were opened before."""
        ...

    def note_archive_version(self, archive: str, version: str, facts: Mapping[str, Any]) -> bool:
        """Register an archive version once; return whether it was new."""
        ...


# ---- store --------------------------------------------------------------------------------------


class Store(Protocol):
    """Content-addressed objects, and a private prefix for each attempt."""

    def put(self, data: bytes, suffix: str = "") -> str:
        """Write bytes once, atomically and read-only; return their digest."""
        ...

    def put_many(self, objects: Sequence[tuple[bytes, str]]) -> tuple[str, ...]:
        """Write several objects, given with their suffixes, at once; return their digests."""
        ...

    def put_file(self, source: Path, suffix: str = "") -> str:
        """Copy a local file in; return its digest."""
        ...

    def get(self, digest: str) -> bytes:
        """Return an object's bytes; raises StorageError where absent or not what its name says."""
        ...

    def path(self, digest: str) -> Path:
        """Return the local path of an object (not verified); raises StorageError where absent."""
        ...

    def put_document(self, value: Any) -> str:
        """Write a JSON value in canonical form; return its digest."""
        ...

    def get_document(self, digest: str) -> Any:
        """Return a verified JSON value."""
        ...

    def leave_anchor(self, revision: str, anchor: Mapping[str, Any]) -> None:
        """Keep where a chain stood (a core.anchor.Anchor document), once, durably and read-only.

        Raises StorageError where another anchor was left at the same event.
        """
        ...

    def anchors(self, revision: str) -> tuple[Mapping[str, Any], ...]:
        """Return the anchors of a revision, in order of their events."""
        ...

    def claim_prefix(self, prefix: str, owner: Mapping[str, Any]) -> Path:
        """Make an attempt's folder with its owner marker, atomically; raises if it exists (S5)."""
        ...

    def prefix_path(self, prefix: str) -> Path:
        """Return the folder of a prefix."""
        ...

    def set_aside(self, prefix: str, note: Mapping[str, Any]) -> Path:
        """Move a prefix in doubt to where nothing is resumed from, marked with a note why."""
        ...


# ---- sampler ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PastTrial:
    """What a sampler may know of an earlier trial; `cost` is None while it counts as running."""

    number: int
    configuration: Mapping[str, Scalar]
    state: str  # completed | pruned | failed | running
    cost: float | None
    costs_by_step: Mapping[int, float] = field(default_factory=dict)


class Sampler(Protocol):
    """Proposes configurations as a function of its arguments alone."""

    def propose(
        self, plan: Plan, *, seed: int, past: Sequence[PastTrial], count: int
    ) -> list[dict[str, Scalar]]:
        """Return up to `count` configurations inside the plan's space; fewer if it is exhausted."""
        ...


# ---- training -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartData:
    """One part's photos: pixels (N, side, side, 3), flags and attributes, all in row order."""

    photo_ids: tuple[str, ...]
    shipments: tuple[str, ...]
    pixels: Pixels
    damaged: Flags
    attributes: Mapping[str, tuple[str, ...]]  # damage_type ("" where intact), camera_class, …


@dataclass(frozen=True, slots=True)
class TrainingData:
    """What a trainer receives: it has no field for the holdout."""

    train: PartData
    validation: PartData


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """One training, fully determined: batches and augmentation are functions of (seed, step)."""

    configuration: Mapping[str, Scalar]
    seed: int
    training: TrainingPlan
    preprocess: PreprocessPlan
    milestone_rows: Mapping[
        int, npt.NDArray[np.int64]
    ]  # milestone step -> validation rows to score
    resume_from: Path | None = None  # a verified checkpoint of the same trial


class TrainingObserver(Protocol):
    """Hears of a training as it goes."""

    def at_step(self, step: int) -> None:
        """Hear that a step is done; may raise to stop at once."""
        ...

    def at_milestone(self, step: int, photos_seen: int, scores: Scores) -> bool:
        """Hear the scores of the milestone's rows; return whether to go on."""
        ...

    def at_checkpoint(self, step: int, save: Callable[[Path, Mapping[str, str]], None]) -> None:
        """Be offered a checkpoint: call `save(path, lineage)` to write it as safetensors."""
        ...


class Trainer(Protocol):
    """Trains one configuration, deterministically, and scores photos with finished weights."""

    def train(
        self,
        task: TrainingTask,
        data: TrainingData,
        observer: TrainingObserver,
        save_model: Path,
    ) -> int:
        """Train to the end or until the observer stops it; return the last step done.

        Writes the weights as safetensors (what rebuilds the network is in the header) to
        `save_model` when the last step was reached. Raises TrainingError for the trial's own
        failures, CheckpointError where `resume_from` does not fit.
        """
        ...

    def rehearse(
        self, training: TrainingPlan, preprocess: PreprocessPlan, pixels: Pixels
    ) -> tuple[Images, int]:
        """Return photos as networks get them, without augmentation, and the threads in force."""
        ...

    def score(self, model: Path, pixels: Pixels) -> Scores:
        """Return the damage score in 0..1 of each photo, (N,) float32, under saved weights."""
        ...

    def read_lineage(self, checkpoint: Path) -> Mapping[str, str]:
        """Return the lineage in a checkpoint's header; raises CheckpointError for other files."""
        ...


# ---- engine -------------------------------------------------------------------------------------


class Engine(Protocol):
    """Starts workers, carries messages and stops workers; decides nothing and retries nothing.

    A message from a worker is a JSON mapping with `kind`; those of one worker keep their order. The
    engine says `{"kind": "lost", "reason": …}` once, after a worker's last message, when it ends by
    itself or can no longer speak. A worker id is used once; one never started is a SettingError.
    """

    def start(self, worker_id: str, setup: Path) -> None:
        """Start a fresh worker process on the setup document.

        Raises SettingError where that is not possible; an engine that learns it later says `lost`.
        """
        ...

    def send(self, worker_id: str, message: Message) -> None:
        """Send a message without waiting; a worker that is gone is reported as lost, not raised."""
        ...

    def receive(self, timeout_seconds: float) -> list[tuple[str, dict[str, Any]]]:
        """Return the messages that have come, waiting at most `timeout_seconds` for the first."""
        ...

    def stop(self, worker_id: str) -> None:
        """End a worker at once and wait until it is gone; nothing more is heard of it."""
        ...

    def close(self) -> None:
        """End all workers and whatever they started; a closed engine starts no more."""
        ...


# ---- table, vault, packet, registry -------------------------------------------------------------


class TableValidator(Protocol):
    """Validates the frozen trial table."""

    def validate(self, rows: Sequence[Mapping[str, Any]], plan: Plan) -> list[dict[str, Any]]:
        """Return one result per expectation: name, passed, sentence, unexpected (at most 200)."""
        ...


@dataclass(frozen=True, slots=True)
class Sealed:
    """What leaves the custodian about sealed holdout labels."""

    commitment: str
    ciphertext_digest: str


class Vault(Protocol):
    """The only code that can read the holdout's labels."""

    @property
    def evaluator_digest(self) -> str:
        """The digest of the code that evaluates."""
        ...

    def seal(self, holdout_digest: str, labels: Sequence[Label]) -> Sealed:
        """Encrypt labels and their fresh salt to the key-holder; idempotent per holdout digest."""
        ...

    def receipts_over(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """Return the receipts beside any sealed file that share one of the keys."""
        ...

    def leave_receipt(self, holdout_digest: str, receipt: Mapping[str, Any]) -> None:
        """Create the receipt beside the sealed file; raises HoldoutError if one exists."""
        ...

    def evaluate(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Decrypt, check the commitment, score and judge in a subprocess of its own.

        `request` is a core.final.FinalRequest document, for which a receipt was left. Returns
        `predictions_digest`, `outcome`, `sentence`, `result`, `evidence_level` (L1 or L3: what may
        be claimed of who could read the key) and `evidence_level_reason`; raises HoldoutError.
        """
        ...

    def disclose(self, holdout_digest: str, revision: str) -> dict[str, Any]:
        """Return `salt`, `labels` and `request` of a holdout that the revision has judged.

        Raises HoldoutError where no result of it is kept: nothing is disclosed before the look.
        """
        ...

    def require_key(self, request: Mapping[str, Any]) -> None:
        """Raise HoldoutError where the key is not here, or an L3 to be had would be lost."""
        ...


class Signer(Protocol):
    """Signs a packet's manifest with the release key."""

    def sign(self, data: bytes) -> bytes:
        """Return the signature of the bytes."""
        ...

    def public_key(self) -> bytes:
        """Return the public key in PEM."""
        ...


class Registry(Protocol):
    """Where released models are registered."""

    def register(self, name: str, packet: Path, facts: Mapping[str, Any]) -> tuple[str, int]:
        """Register a verified packet; return place and version. The same packet gives the same."""
        ...


class ServingBench(Protocol):
    """Measures what serving a model costs, in a fresh process."""

    def measure(self, model: Path, side_pixels: int) -> dict[str, Any]:
        """Return latency, throughput and memory figures with the conditions of the reading."""
        ...

    def export_onnx(self, model: Path, pixels: Pixels, folder: Path) -> dict[str, Any]:
        """Write model.onnx with golden inputs and outputs of the pixels into a folder.

        Returns `files` (names written, none where this machine cannot) and a `sentence`.
        """
        ...


class Pictures(Protocol):
    """Draws contact sheets and charts as PNG bytes."""

    def contact_sheet(self, pixels: Pixels, captions: Sequence[str], columns: int) -> bytes:
        """Return a PNG of the photos in a grid."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """All doors that the composition root opened; steps take them from here."""

    ledger: Ledger
    store: Store
    open_source: Callable[[SnapshotPlan, int], ArchiveSource]  # section, side in pixels
    open_engine: Callable[[], Engine]
    sampler: Callable[[str], Sampler]
    measure_identity: Callable[[Plan, TrainingData], dict[str, str]]
    validator: TableValidator
    vault: Vault
    signer: Signer
    registry: Registry
    serving: ServingBench
    pictures: Pictures
    # folder, expected packet digest, public key (PEM) -> {faults, signature_ok, signature_sentence}
    verify_packet: Callable[[Path, str | None, bytes | None], dict[str, Any]]
    packets: Path  # the folder of published packets
    custodian: Path  # the custodian's private folder: salts until the split has sealed them
    workers: int
    # a packet's other files (relative path -> bytes) -> its report.html; None: no packet is built
    render_report: Callable[[Mapping[str, bytes]], bytes] | None = None
    notify: Callable[[str, Mapping[str, Any]], None] = lambda _kind, _facts: None
    # public key as a plan lists it, signed bytes, signature -> whether it holds; usually none does
    signature_holds: SignatureHolds = lambda _key, _data, _signature: False
    timestamper: Timestamper | None = None  # None: no authority is set
    timestamps_declined: bool = False  # the operator goes on without one after a stamped split
