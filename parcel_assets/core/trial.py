"""Records of trials and attempts, and the bodies of the ledger's events about them."""

from enum import StrEnum
from typing import Any, Literal

from parcel_assets.core.codec import derive_seed
from parcel_assets.core.stage import Record

Purpose = Literal["search", "rerun", "reference", "final"]


class TrialState(StrEnum):
    """Where a trial stands, computed from its attempts."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETED = "completed"
    PRUNED = "pruned"
    FAILED = "failed"
    QUARANTINED = "quarantined"


class AttemptState(StrEnum):
    """How an attempt ended, or that it has not."""

    RUNNING = "running"
    COMPLETED = "completed"
    PRUNED = "pruned"
    FAILED = "failed"
    EXPIRED = "expired"  # its worker or its coordinator was lost: does not use up the trial
    QUARANTINED = "quarantined"


class Verdict(StrEnum):
    """What the coordinator answers to a milestone report."""

    CONTINUE = "continue"
    STOP = "stop"
    NOT_COMPARABLE = "not comparable"


class ProposedTrial(Record):
    """One slot of the budget: a configuration with its number, id and seed."""

    number: int  # 1 … budget
    trial_id: str
    seed: int
    configuration: dict[str, bool | int | float | str]


class Cut(Record):
    """The value that a trial must reach at one milestone, frozen when its batch opens.

    `cut_cost` is None where nothing is pruned, `reason` then says why. `values` are those the cut
    was made from, as (trial number, cost), so that every decision replays bit for bit.
    """

    step: int
    cut_cost: float | None
    reason: str
    values: tuple[tuple[int, float], ...] = ()


class Batch(Record):
    """Trials proposed together, with the cut table that judges them; body of BATCH_OPENED."""

    batch: int  # from 1
    trials: tuple[ProposedTrial, ...]
    cut_table: tuple[Cut, ...]


class AttemptStarted(Record):
    """Body of ATTEMPT_STARTED. `subject`: a trial id, `rerun/parcel-07/own`, `reference`."""

    attempt: str  # unique in the revision
    subject: str
    purpose: Purpose
    worker_id: str
    fence: int
    prefix: str  # relative to the store's attempts folder; unique
    reserved_seconds: float
    resume_step: int = 0
    parent_checkpoint: str | None = None  # digest of the checkpoint file it resumes
    training: str = ""  # see core.lineage.training_digest


class MilestoneReported(Record):
    """Body of MILESTONE_REPORTED: scores come from the worker, cost and verdict from us."""

    attempt: str
    subject: str
    step: int
    photos_seen: int
    subset_digest: str  # of the photo ids scored, in order
    scores: str  # store digest of the float32 scores
    cost_per_1000: float | None  # None where the scores are not finite (S9)
    threshold: float | None
    verdict: Verdict
    reason: str
    file: str = ""  # of the scores, below the attempt's prefix


class CheckpointSaved(Record):
    """Body of CHECKPOINT_SAVED."""

    attempt: str
    subject: str
    step: int
    file: str  # below the attempt's prefix
    checkpoint: str  # digest of the file
    parent_checkpoint: str | None
    payload: str = ""  # digest of its tensors alone; see core.lineage.FoundFile


class AttemptEnded(Record):
    """Body of ATTEMPT_ENDED: the settlement of a dispatch."""

    attempt: str
    subject: str
    purpose: Purpose
    state: AttemptState
    step: int
    charged_seconds: float
    reason: str = ""
    own_failure: bool = False  # uses up one of the trial's attempts
    model: str | None = None  # store digest of the final weights (safetensors)
    model_file: str = ""  # of those weights, below the attempt's prefix


class TrialRow(Record):
    """One row of the frozen trial table: what the search found about one slot."""

    number: int
    trial_id: str
    seed: int
    configuration: dict[str, bool | int | float | str]
    state: TrialState
    costs: dict[str, float | None]  # step (as text) -> cost per 1,000 of the attempt that counts
    final_cost_per_1000: float | None  # at the last milestone; None unless completed
    threshold: float | None
    scores: str | None  # digest of the validation scores at the last milestone
    lineage_ok: bool


class Decision(Record):
    """Body of DECISION_RECORDED: a person's documented answer to a held slice gate."""

    outcome: Literal["accept", "replace", "close"]
    name: str  # self-declared, unless the plan lists approvers' keys; the page says which
    role: str
    reason: str
    scope: str
    expires_on: str  # ISO date; empty for `close` and `replace`
    slice_evidence: str  # digest of the slice report that was seen
    numbers_seen: dict[str, Any]  # the sentences of the slices in question
    signature: str = ""  # base64, where the plan lists approvers; see core.approval


def trial_id_of(number: int) -> str:
    """Return a trial's id, such as `parcel-07`."""
    return f"parcel-{number:02d}"


def trial_seed(plan_seed: int, number: int) -> int:
    """Return a trial's own seed: a hash of plan seed and trial number."""
    return derive_seed("trial", plan_seed, number)
