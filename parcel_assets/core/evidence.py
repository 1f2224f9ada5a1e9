"""What each stage's evidence says: the bodies, in pipeline order, in one place.

Numbers that a person reads are plain JSON numbers; large things are named by their store digest.
"""

from typing import Any, Literal

from pydantic import Field

from parcel_assets.core.near_copies import NearCopy
from parcel_assets.core.snapshot import SnapshotBody
from parcel_assets.core.stage import Record

__all__ = ["SnapshotBody"]


class ArrayPart(Record):
    """Decoded pixels and row index of one part, as the store names them."""

    photos: int
    shipments: int
    pixels: str  # store digest of a .npy: uint8, (photos, side, side, 3)
    rows: str  # store digest of the JSON rows: photo_id, shipment_id, …; labels but for the holdout


class SplitBody(Record):
    """Evidence of `grouped_shipment_split`; of the holdout: ids, declared counts, commitment."""

    split_digest: str  # of part -> sorted shipment ids
    assignment_document: str  # store digest of {part: [shipment ids]} and component list
    parts: dict[str, ArrayPart]  # train, validation and holdout (whose rows hold no label)
    components: int
    linked_components: tuple[tuple[str, ...], ...]  # shipments joined by identical image content
    quarantined: tuple[str, ...]  # shipments whose component newly joins two parts
    counts: dict[str, dict[str, dict[str, int]]]  # part -> dimension -> value -> photos (declared)
    support: tuple[dict[str, Any], ...]  # the plan's minimum: asked and found
    duplicate_pixels_across_parts: int
    near_copies_across_parts: int = 0  # pairs that look alike: reported, not refused
    near_copies: tuple[NearCopy, ...] = ()  # the first of them
    holdout_digest: str  # content: component keys and pixel digests
    holdout_commitment: str  # HMAC of the holdout's labels under the sealed salt
    holdout_ciphertext: str  # digest of the sealed file
    contact_sheet: str  # store digest of a PNG of training photos by damage type
    tranche: int | None = None  # the search's own, where the plan holds back tranches
    reserved: tuple[
        dict[str, Any], ...
    ] = ()  # tranches sealed for later searches, with their seals


class SearchBody(Record):
    """Evidence of `trial_batches`: how the search went (the ledger has every detail)."""

    ended: str  # why the search ended
    budget_trials: int
    started_trials: int
    unstarted_trials: int
    trials_by_state: dict[str, int]
    attempts_by_state: dict[str, int]
    charged_seconds_by_purpose: dict[str, float]
    cap_seconds: float
    steps_trained: int
    steps_saved_by_pruning: int
    best_trial: str | None
    best_cost_per_1000: float | None
    ledger_head: str


class TableBody(Record):
    """Evidence of `validated_trial_table`."""

    table_digest: str  # of the rows' canonical JSON; see core.table
    table_document: str  # store digest of the JSON rows
    rows: int
    trials_by_state: dict[str, int]
    expectations: tuple[dict[str, Any], ...]  # name, passed, sentence, unexpected (at most 200)
    ledger_head: str


class TrainedModel(Record):
    """One training after the search: own-seed rerun, extra seed or reference."""

    subject: str
    seed: int
    configuration: dict[str, bool | int | float | str]
    attempt: str
    model: str  # store digest of safetensors
    scores: str  # store digest of float32 validation scores
    cost_per_1000: float
    threshold: float
    parent_checkpoint: None = None  # H3: a rerun resumes nothing


class RerunBody(Record):
    """Evidence of `selected_rerun`: choice, reruns, reference, judgement, the model."""

    selected_trial: str
    selected_cost_per_1000: float
    threshold: float  # frozen at selection
    ranking: tuple[str, ...]  # trial ids, best first
    tie_set: tuple[str, ...]
    corrected_cost: dict[str, float] | None  # selection-corrected estimate: mean, low, high
    slice_informed: bool  # a `replace` decision chose it
    own: TrainedModel
    extra: tuple[TrainedModel, ...]
    reference: TrainedModel
    judgement: dict[str, Any]  # statistics.RerunJudgement as fields
    scores_equal: bool
    largest_score_difference: float
    model: str  # the released artifact: own-seed rerun
    trivial_cost_per_1000: dict[str, float]  # review_all, review_none on validation
    validation: dict[str, Any]  # estimate of the released artifact at its threshold; AUC
    reference_validation: dict[str, Any]


class SliceBody(Record):
    """Evidence of `slice_report`."""

    slices: tuple[dict[str, Any], ...]  # statistics.SliceResult as fields, with `sentence`
    protected_passed: bool
    disposition: str  # by parcel_search_disposition, before any decision
    members: dict[str, Any]  # slice -> photo ids and shipments behind it (worst first, bounded)
    worst_sheet: str | None  # store digest of a PNG: missed damage, worst first
    # the same for each protected slice that missed damage
    worst_sheets: dict[str, str] = Field(default_factory=dict)


class FinalBody(Record):
    """Evidence of `final_evaluation`."""

    disposition: str  # with the decision applied
    holdout_digest: str
    model: str
    evaluator_digest: str
    threshold: float
    opened_event: str  # digest of the opening in the ledger
    predictions_digest: str
    result: dict[str, Any]  # cost, bounds, counts, trivial policies, slices
    outcome: Literal["PASS", "FAIL", "INSUFFICIENT"]
    sentence: str
    evidence_level: Literal["L1", "L2", "L3"]
    evidence_level_reason: str | None = None  # who could use the key; none before release 0.2
    reused_shipments: int  # opened before by an earlier search, which the plan must allow
    reused_times: int = 0  # how many earlier searches looked at some of them


class PacketBody(Record):
    """Evidence of `release_packet`."""

    packet_digest: str  # of SHA256SUMS
    folder: str  # relative to the packets folder
    files: int
    verdict: str  # released | released-with-waiver | rejected:performance | hold:… | closed
    signed_by: str  # fingerprint of the signing key


class RegistryBody(Record):
    """Evidence of `registry_entry`."""

    entry: str  # where the registered version is
    version: int
    packet_digest: str
