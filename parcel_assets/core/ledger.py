"""Events chained by digest, and what may follow what; storing them is left to an adapter.

The ledger is the truth: every status, count and hour is computed from it by a fold.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from parcel_assets.core.codec import canonical_json, digest_value
from parcel_assets.core.errors import LedgerError

GENESIS = "0" * 64


class Kind(StrEnum):
    """What an event can say."""

    PLAN_FROZEN = "plan_frozen"  # plan (document), plan_digest
    STAGE_RECORDED = "stage_recorded"  # stage, evidence (digest), inputs

    SEARCH_OPENED = "search_opened"  # identity (expected, frozen), reserved_after_seconds
    WORKER_ADMITTED = "worker_admitted"  # worker_id, identity
    WORKER_REFUSED = "worker_refused"  # worker_id, field, found, expected, cause
    BATCH_OPENED = "batch_opened"  # batch, trials, cut_table
    ATTEMPT_STARTED = "attempt_started"  # see core.trial.AttemptStarted
    MILESTONE_REPORTED = "milestone_reported"  # see core.trial.MilestoneReported
    CHECKPOINT_SAVED = "checkpoint_saved"  # see core.trial.CheckpointSaved
    ATTEMPT_ENDED = "attempt_ended"  # see core.trial.AttemptEnded
    ATTEMPT_QUARANTINED = "attempt_quarantined"  # attempt, subject, reason, found_by
    # attempts quarantined late, batches, changed (sentences): the replay without their values
    CONTAMINATION_REPLAYED = "contamination_replayed"
    MESSAGE_SET_ASIDE = "message_set_aside"  # a late, stale or impossible message, kept as evidence
    BATCH_CLOSED = "batch_closed"  # batch
    SEARCH_ENDED = "search_ended"  # reason: budget | cap | space | pruned | failed | closed
    SEARCH_CLOSED = "search_closed"  # words: why a person ended the search for good
    SEARCH_PAUSED = "search_paused"  # reason; this run had no worker left, the next one goes on

    SELECTION_FROZEN = "selection_frozen"  # trial, threshold, ranking (trial ids), informed_by
    DECISION_RECORDED = "decision_recorded"  # see core.trial.Decision
    HOLDOUT_SEALED = "holdout_sealed"  # holdout_digest, commitment, ciphertext_digest
    HOLDOUT_OPENED = "holdout_opened"  # holdout_digest, model_digest, evaluator_digest, threshold
    HOLDOUT_EVALUATED = "holdout_evaluated"  # predictions_digest, result (document)
    TIMESTAMP_RECORDED = "timestamp_recorded"  # over the event before: core.timestamps.Timestamp
    HOLDOUT_RELEASED = "holdout_released"  # reason, photos, commitment: labels went to an auditor
    PACKET_PUBLISHED = "packet_published"  # packet_digest
    MODEL_REGISTERED = "model_registered"  # packet_digest, entry


# H7: once the holdout is open, nothing that could have used it may be written any more.
CLOSED_BY_OPENING = frozenset(
    {
        Kind.PLAN_FROZEN,
        Kind.SEARCH_OPENED,
        Kind.BATCH_OPENED,
        Kind.ATTEMPT_STARTED,
        Kind.MILESTONE_REPORTED,
        Kind.CHECKPOINT_SAVED,
        Kind.BATCH_CLOSED,
        Kind.SEARCH_ENDED,
        Kind.SEARCH_CLOSED,
        Kind.SEARCH_PAUSED,
        Kind.SELECTION_FROZEN,
        Kind.DECISION_RECORDED,
        Kind.HOLDOUT_SEALED,
        Kind.HOLDOUT_OPENED,
    }
)
ONCE = frozenset(
    {
        Kind.PLAN_FROZEN,
        Kind.SEARCH_OPENED,
        Kind.SEARCH_ENDED,
        Kind.SEARCH_CLOSED,
        Kind.HOLDOUT_SEALED,
        Kind.HOLDOUT_OPENED,
        Kind.HOLDOUT_EVALUATED,
    }
)


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a revision's chain; `at_seconds` is the ledger's own, monotonic clock."""

    revision: str
    sequence: int
    at_seconds: float
    kind: Kind
    body: Mapping[str, Any]
    previous: str
    digest: str


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to append to one revision; a newer fence makes every older one stale."""

    revision: str
    owner: str
    fence: int


def event_digest(
    *,
    revision: str,
    sequence: int,
    at_seconds: float,
    kind: str,
    body: Mapping[str, Any],
    previous: str,
) -> str:
    """Return the digest that chains an event to the one before it."""
    return digest_value([revision, sequence, at_seconds, str(kind), dict(body), previous])


def event_bytes(event: Event) -> bytes:
    """Return the bytes whose SHA-256 is the event's digest: what can be signed and checked."""
    return canonical_json(
        [
            event.revision,
            event.sequence,
            event.at_seconds,
            str(event.kind),
            dict(event.body),
            event.previous,
        ]
    )


def chain_event(
    previous: Event | None, *, revision: str, at_seconds: float, kind: Kind, body: Mapping[str, Any]
) -> Event:
    """Return the event that follows `previous`, its clock kept from running backwards."""
    sequence = previous.sequence + 1 if previous else 1
    at_seconds = round(max(at_seconds, previous.at_seconds if previous else 0.0), 6)
    head = previous.digest if previous else GENESIS
    digest = event_digest(
        revision=revision,
        sequence=sequence,
        at_seconds=at_seconds,
        kind=kind,
        body=body,
        previous=head,
    )
    return Event(revision, sequence, at_seconds, kind, body, head, digest)


def verify_chain(events: Iterable[Event]) -> None:
    """Raise LedgerError at the first event whose place or digest is not what the chain says."""
    previous: Event | None = None
    for event in events:
        expected = chain_event(
            previous,
            revision=event.revision,
            at_seconds=event.at_seconds,
            kind=event.kind,
            body=event.body,
        )
        if event != expected:
            raise LedgerError(
                f"event {event.sequence} ({event.kind}) with digest {event.digest[:8]}",
                expected=f"event {expected.sequence} with digest {expected.digest[:8]}",
                where=f"ledger of {event.revision}",
                remedy="The chain was changed from outside. Restore the ledger from a copy.",
                sequence=event.sequence,
            )
        previous = event


def check_may_append(kinds: frozenset[Kind] | set[Kind], kind: Kind, revision: str) -> None:
    """Raise LedgerError where an event may not follow the kinds already in the chain (H7, S1)."""
    if Kind.PLAN_FROZEN not in kinds and kind != Kind.PLAN_FROZEN:
        raise LedgerError(
            f"event {kind} before any plan",
            expected="a frozen plan first",
            where=f"ledger of {revision}",
            remedy="Register the plan: `parcel-assets plan register PLAN`.",
        )
    if Kind.HOLDOUT_OPENED in kinds and kind in CLOSED_BY_OPENING:
        raise LedgerError(
            f"event {kind} after the holdout was opened",
            expected="no trial, threshold, selection or decision after the opening",
            where=f"ledger of {revision}",
            remedy="Start a new search revision with a holdout of its own.",
        )
    if kind in ONCE and kind in kinds:
        raise LedgerError(
            f"a second {kind}",
            expected="at most one in a revision",
            where=f"ledger of {revision}",
            remedy=f"Read the first one: `parcel-assets status {revision}`.",
        )


def once_key(kind: Kind, body: Mapping[str, Any]) -> str | None:
    """Return the key under which an event may be said once in a revision, or None."""
    if kind in ONCE:
        return str(kind)
    if kind == Kind.ATTEMPT_STARTED:
        return f"attempt:{body['attempt']}"
    if kind in {Kind.ATTEMPT_ENDED, Kind.ATTEMPT_QUARANTINED}:
        return f"{kind}:{body['attempt']}"
    if kind == Kind.MILESTONE_REPORTED:
        return f"milestone:{body['attempt']}:{body['step']}"
    if kind in {Kind.BATCH_OPENED, Kind.BATCH_CLOSED}:
        return f"{kind}:{body['batch']}"
    return None


def last_of(events: Sequence[Event], kind: Kind) -> Event | None:
    """Return the newest event of a kind, or None."""
    return next((event for event in reversed(events) if event.kind == kind), None)


def evidence_digests(events: Sequence[Event]) -> dict[str, str]:
    """Return, by stage, the digest of the evidence recorded last."""
    return {
        str(event.body["stage"]): str(event.body["evidence"])
        for event in events
        if event.kind == Kind.STAGE_RECORDED
    }
