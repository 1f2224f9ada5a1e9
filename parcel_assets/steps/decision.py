"""Record a person's decision about a held slice gate: accept, replace or close.

Decides when a decision may be recorded; what it changes is said by admission and selection. It is
refused for evidence that has since changed, once the holdout is open, and for any other gate.
"""

from dataclasses import dataclass
from datetime import date

from parcel_assets.core.approval import approval_fault, approver_fault, signed_bytes
from parcel_assets.core.chain import Chain
from parcel_assets.core.disposition import HOLD_SLICE_QUALITY
from parcel_assets.core.errors import AdmissionError, DecisionError
from parcel_assets.core.ledger import Event, Kind, last_of
from parcel_assets.core.plain_words import odd_character
from parcel_assets.core.ports import Ports
from parcel_assets.core.selection import (
    close_decision,
    day_of,
    frozen_selections,
    replace_decision,
)
from parcel_assets.core.stage import Stage
from parcel_assets.core.trial import Decision
from parcel_assets.steps.admission import admit, leased, load_chain
from parcel_assets.steps.decision_numbers import numbers_seen

REASON_CHARACTERS_MINIMUM = 10
OUTCOMES = ("accept", "replace", "close")


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """A decision on record, what it means in missed photos, and what happens next."""

    decision: Decision
    event: Event
    consequence: str
    next_step: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person answers to a held slice report, and who they say they are.

    `expires_on` is an ISO date, the last day on which an acceptance counts. `slice_evidence` is the
    digest of the report that was seen; by default the current one. `signature` is base64 text.
    """

    outcome: str
    name: str
    role: str
    reason: str
    scope: str = ""
    expires_on: str = ""
    slice_evidence: str | None = None
    signature: str = ""


def record_decision(
    revision: str,
    ports: Ports,
    *,
    outcome: str,
    name: str,
    role: str,
    reason: str,
    scope: str = "",
    expires_on: str = "",
    slice_evidence: str | None = None,
    signature: str = "",
) -> RecordedDecision:
    """Append the decision to the ledger; raises DecisionError where it may not be made.

    Where the plan lists approvers, that is so without the signature of one of them. See `Answer`.
    """
    answer = Answer(outcome, name, role, reason, scope, expires_on, slice_evidence, signature)
    with leased(ports, revision, "quality_decision") as lease:
        chain = load_chain(revision, ports)
        decision = _decision(chain, ports, answer)
        fault = approval_fault(
            chain.plan.approvers,
            revision,
            chain.plan_digest,
            decision,
            ports.signature_holds,
            after=_decided_before(chain),
        )
        if fault is not None:
            listed = bool(chain.plan.approvers)
            remedy = _how_to_sign(revision) if listed else "Decide without a key."
            raise _refused(revision, *fault, remedy)
        (event,) = ports.ledger.append(lease, [(Kind.DECISION_RECORDED, decision.document())])
    return RecordedDecision(
        decision,
        event,
        str(decision.numbers_seen["consequence"]),
        _next_step(answer.outcome, chain),
    )


def bytes_to_sign(revision: str, ports: Ports, answer: Answer) -> bytes:
    """Return what an approver signs for this answer; raises DecisionError where it may not be."""
    chain = load_chain(revision, ports)
    decision = _decision(chain, ports, answer)
    return signed_bytes(revision, chain.plan_digest, decision, after=_decided_before(chain))


def _decided_before(chain: Chain) -> str:
    """Return the digest of the newest decision's event, or "" before the first."""
    event = last_of(chain.events, Kind.DECISION_RECORDED)
    return "" if event is None else event.digest


def _decision(chain: Chain, ports: Ports, answer: Answer) -> Decision:
    """Return the decision that an answer makes; raises DecisionError where it may not be made."""
    revision, outcome = chain.revision, answer.outcome
    name, role = answer.name.strip(), answer.role.strip()
    _require_words(revision, outcome, name=name, role=role, reason=answer.reason)
    _require_plain(revision, name=name, role=role, reason=answer.reason, scope=answer.scope)
    fault = approver_fault(chain.plan.approvers, name, role)
    if fault is not None:
        raise _refused(revision, *fault, "Let one of them decide, in their role.")
    if outcome == "accept":
        today = day_of(ports.ledger.now())
        _require_bounds(revision, answer.scope, answer.expires_on, today)
    _require_shut_holdout(chain)
    _require_undecided(chain, outcome)
    _require_current(chain, answer.slice_evidence)
    _require_slice_hold(chain)
    return Decision(
        outcome=outcome,
        name=name,
        role=role,
        reason=answer.reason.strip(),
        scope=answer.scope.strip() if outcome == "accept" else "",
        expires_on=answer.expires_on if outcome == "accept" else "",
        slice_evidence=chain.digests[Stage.SLICES],
        numbers_seen=numbers_seen(chain, ports),
        signature=answer.signature.strip(),
    )


def _how_to_sign(revision: str) -> str:
    return (
        f"Sign it: `parcel-assets decide {revision} … --key private.pem`; for Dagster's form, the "
        "same with --sign-only prints the signature."
    )


def _require_words(revision: str, outcome: str, *, name: str, role: str, reason: str) -> None:
    if outcome not in OUTCOMES:
        raise _refused(
            revision, repr(outcome), f"one of {', '.join(OUTCOMES)}", "Pick one of them."
        )
    for field, text in (("name", name), ("role", role)):
        if not text.strip():
            raise _refused(
                revision, f"no {field}", f"the {field} of who decides", f"Give your {field}."
            )
    if len(reason.strip()) < REASON_CHARACTERS_MINIMUM:
        raise _refused(
            revision,
            f"the reason {reason.strip()!r}",
            f"at least {REASON_CHARACTERS_MINIMUM} characters",
            "Say why: the packet prints it.",
        )


def _require_plain(revision: str, **words: str) -> None:
    for field, text in words.items():
        fault = odd_character(text.strip())
        if fault is not None:
            raise _refused(
                revision,
                f"{field} with {fault}",
                "plain text on one line, which every page shows as it is",
                f"Type the {field} anew.",
            )


def _require_bounds(revision: str, scope: str, expires_on: str, today: date) -> None:
    """Refuse an acceptance without scope, without a date, or that has run out already."""
    if not scope.strip():
        raise _refused(revision, "no scope", "where the acceptance counts", "Give its scope.")
    try:
        expiry = date.fromisoformat(expires_on)
    except ValueError as error:
        raise _refused(
            revision, f"expiry {expires_on!r}", "a date such as 2027-06-30", "Give the last day."
        ) from error
    if expiry.isoformat() != expires_on:  # 20270630 and 2027-W26-3 are other words for a day
        raise _refused(
            revision, f"expiry {expires_on!r}", f"{expiry.isoformat()}", "Give the day so."
        )
    if expiry < today:
        raise _refused(
            revision,
            f"an acceptance that expired on {expires_on}",
            f"a date from {today.isoformat()} on",
            "Give a later day, or do not accept.",
        )


def _require_shut_holdout(chain: Chain) -> None:
    others = chain.observed.get("receipts", ()) and not chain.plan.final.allow_spent
    if chain.is_opening or others:
        raise _refused(
            chain.revision,
            "an opened holdout",
            "a decision before the final evaluation",
            "The holdout is open, so nothing may be decided any more. Plan a new search revision.",
        )


def _require_undecided(chain: Chain, outcome: str) -> None:
    """Refuse a decision on top of one that closed the search or that waits to be carried out."""
    if close_decision(chain.events) is not None:
        raise _refused(
            chain.revision,
            "a closed search",
            "one that is still open",
            "Plan a new search revision.",
        )
    replaced = replace_decision(chain.events)
    if replaced is None:
        if outcome == "replace" and not any(one.behind for one in frozen_selections(chain.events)):
            raise _refused(
                chain.revision,
                "no trial behind the chosen one in the frozen ranking",
                "a next one",
                "Accept or close; another candidate needs a new search revision.",
            )
        return
    if outcome == "replace":
        raise _refused(
            chain.revision,
            "a second replacement",
            "at most one",
            "Accept or close; a third candidate needs a new search revision.",
        )
    if replaced.body["slice_evidence"] == chain.digests.get(Stage.SLICES):
        raise _refused(
            chain.revision,
            "a replacement that is not carried out yet",
            "the next candidate's slice report",
            f"`parcel-assets run {chain.revision}`, or materialize selected_rerun and "
            "slice_report.",
        )


def _require_current(chain: Chain, slice_evidence: str | None) -> None:
    current = chain.digests.get(Stage.SLICES)
    if current is None:
        raise _refused(
            chain.revision,
            "no slice report",
            "a held slice gate",
            "Nothing is held. Materialize slice_report first.",
        )
    if slice_evidence is not None and slice_evidence != current:
        raise _refused(
            chain.revision,
            f"a decision about slice report {slice_evidence[:8]}",
            f"one about the current report {current[:8]}",
            "The evidence has changed since. Read the new report, then decide.",
        )


def _require_slice_hold(chain: Chain) -> None:
    """Refuse unless the final evaluation is stopped by a protected slice and nothing else."""
    try:
        admit(Stage.FINAL, chain)
    except AdmissionError as error:
        facts = error.facts
        if facts.get("gate") == "protected_slices" and facts.get("hold") == HOLD_SLICE_QUALITY:
            return
        raise _refused(
            chain.revision,
            f"gate {facts.get('gate')} not passed",
            "a held slice gate; no decision lifts another gate",
            error.remedy,
        ) from error
    # a newer decision may take the place of an acceptance while the holdout is shut
    if chain.slices.protected_passed:
        raise _refused(
            chain.revision,
            "no held slice gate",
            "a candidate held for slice quality",
            "Nothing is held: materialize final_evaluation.",
        )


def _next_step(outcome: str, chain: Chain) -> str:
    if outcome == "accept":
        return "Next: materialize final_evaluation."
    if outcome == "close":
        return "The search is closed without a winner; its record is published like a packet."
    (first,) = frozen_selections(chain.events)
    return (
        f"Next: materialize selected_rerun and slice_report; they take {first.behind[0]}, the next "
        "in the frozen ranking."
    )


def _refused(revision: str, found: str, expected: str, remedy: str) -> DecisionError:
    return DecisionError(
        found, expected=expected, where=f"quality decision of {revision}", remedy=remedy
    )
