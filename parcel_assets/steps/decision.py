"""Record a person's decision about a held slice gate: accept, replace or close.

Decides when a decision may be recorded; what it changes is said by admission and selection. It is
refused for evidence that has since changed, once the holdout is open, and for any other gate.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass

from parcel_assets.core.approval import approval_fault, approver_fault, signed_bytes
from parcel_assets.core.chain import Chain
from parcel_assets.core.decision_rules import expiry_fault, words_fault
from parcel_assets.core.disposition import HOLD_SLICE_QUALITY
from parcel_assets.core.errors import AdmissionError, DecisionError
from parcel_assets.core.ledger import Event, Kind, last_of
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

WORDS = ("name", "role", "reason", "scope", "expires_on")


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """A decision on record, what accepting means in missed parcels, and what happens next."""

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
    words = str(decision.numbers_seen["consequence"])
    if answer.outcome != "accept":
        words = f"Had it been accepted: {words}"
    return RecordedDecision(decision, event, words, _next_step(answer.outcome, chain))


def bytes_to_sign(revision: str, ports: Ports, answer: Answer) -> bytes:
    """Return what an approver signs for this answer; raises DecisionError where it may not be."""
    chain = load_chain(revision, ports)
    decision = _decision(chain, ports, answer)
    return signed_bytes(revision, chain.plan_digest, decision, after=_decided_before(chain))


def sign_answer(revision: str, ports: Ports, answer: Answer, sign: Callable[[bytes], bytes]) -> str:
    """Return the base64 of an approver's signature of this answer.

    Raises DecisionError where the answer may not be given, or `sign` has another key than the plan
    lists for that name.
    """
    data = bytes_to_sign(revision, ports, answer)
    signature = sign(data)
    listed = load_chain(revision, ports).plan.approvers.get(answer.name.strip())
    if listed is not None and not ports.signature_holds(listed.public_key, data, signature):
        raise _refused(
            revision,
            f"another key than the plan lists for {answer.name.strip()}",
            "the private half of the listed public key",
            "Name the right file with --key: `openssl pkey -in PRIVATE.pem -pubout` must print "
            "what the plan lists.",
        )
    return base64.b64encode(signature).decode()


def _decided_before(chain: Chain) -> str:
    """Return the digest of the newest decision's event, or "" before the first."""
    event = last_of(chain.events, Kind.DECISION_RECORDED)
    return "" if event is None else event.digest


def _decision(chain: Chain, ports: Ports, answer: Answer) -> Decision:
    """Return the decision that an answer makes; raises DecisionError where it may not be made."""
    revision, outcome = chain.revision, answer.outcome
    words = {one: getattr(answer, one).strip() for one in WORDS}
    name, role = words["name"], words["role"]
    fault = words_fault(outcome, words)
    if fault is None and outcome == "accept":
        fault = expiry_fault(words["expires_on"], day_of(ports.ledger.now()))
    if fault is not None:
        raise _refused(revision, *fault)
    who = approver_fault(chain.plan.approvers, name, role)
    if who is not None:
        raise _refused(revision, *who, "Let one of them decide, in their role.")
    _require_shut_holdout(chain)
    _require_undecided(chain, outcome)
    _require_current(chain, answer.slice_evidence)
    _require_slice_hold(chain)
    return Decision(
        outcome=outcome,
        **words,
        slice_evidence=chain.digests[Stage.SLICES],
        numbers_seen=numbers_seen(chain, ports),
        signature=answer.signature.strip(),
    )


def _how_to_sign(revision: str) -> str:
    return (
        f"Sign it: `parcel-assets decide {revision} … --key private.pem`; for Dagster's form, the "
        "same with --sign-only prints the signature."
    )


def _require_shut_holdout(chain: Chain) -> None:
    """Refuse once this search, or another one over the same shipments, has opened the holdout."""
    if chain.is_opening:
        raise _refused(
            chain.revision,
            "an opened holdout",
            "a decision before the final evaluation",
            "The holdout is open, so nothing may be decided any more. Plan a new search revision.",
        )
    receipts = chain.observed.get("receipts", ())
    if receipts and not chain.plan.final.allow_spent:
        others = ", ".join(sorted({str(one.get("revision")) for one in receipts}))
        raise _refused(
            chain.revision,
            f"a holdout that {others} has opened",
            "one that nobody has opened: this search cannot come to a final evaluation any more",
            f"{_ended_by(chain.revision)} Then plan a new search revision.",
        )


def _ended_by(revision: str) -> str:
    return f"End it with `parcel-assets close {revision} --reason TEXT`: its record stays."


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
    if Stage.SLICES not in chain.digests:
        _require_slice_hold(chain)  # says which gate stops the chain before it, if one does
    current = chain.digests[Stage.SLICES]
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
        if facts.get("gate") == "evidence" and Stage.SLICES not in chain.evidence:
            raise _refused(
                chain.revision,
                "no slice report",
                "a held slice gate",
                f"Nothing is held yet: `parcel-assets run {chain.revision}` goes on.",
            ) from error
        raise _refused(
            chain.revision,
            f"gate {facts.get('gate')} not passed",
            "a held slice gate; no decision lifts another gate",
            f"{error.remedy} {_ended_by(chain.revision)}",
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
