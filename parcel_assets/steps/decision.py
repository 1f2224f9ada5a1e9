"""Record a person's decision about a held slice gate: accept, replace or close.

Decides when a decision may be recorded; what it changes is said by admission and selection. It is
refused for evidence that has since changed, once the holdout is open, and for any other gate.
"""

from dataclasses import dataclass
from datetime import date
from typing import Any

from parcel_assets.core.chain import Chain
from parcel_assets.core.disposition import HOLD_SLICE_QUALITY
from parcel_assets.core.errors import AdmissionError, DecisionError
from parcel_assets.core.ledger import Event, Kind
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

REASON_CHARACTERS_MINIMUM = 10
OUTCOMES = ("accept", "replace", "close")


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """A decision on record, what it means in missed photos, and what happens next."""

    decision: Decision
    event: Event
    consequence: str
    next_step: str


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
) -> RecordedDecision:
    """Append the decision to the ledger; raises DecisionError where it may not be made.

    `slice_evidence` is the digest of the slice report that was seen; by default the current one.
    `expires_on` is an ISO date, the last day on which an acceptance counts.
    """
    with leased(ports, revision, "quality_decision") as lease:
        chain = load_chain(revision, ports)
        today = day_of(ports.ledger.now())
        _require_words(revision, outcome, name=name, role=role, reason=reason)
        if outcome == "accept":
            _require_bounds(revision, scope, expires_on, today)
        _require_shut_holdout(chain)
        _require_undecided(chain, outcome)
        _require_current(chain, slice_evidence)
        _require_slice_hold(chain)
        numbers = numbers_seen(chain)
        decision = Decision(
            outcome=outcome,
            name=name.strip(),
            role=role.strip(),
            reason=reason.strip(),
            scope=scope.strip() if outcome == "accept" else "",
            expires_on=expires_on if outcome == "accept" else "",
            slice_evidence=chain.digests[Stage.SLICES],
            numbers_seen=numbers,
        )
        (event,) = ports.ledger.append(lease, [(Kind.DECISION_RECORDED, decision.document())])
    return RecordedDecision(
        decision, event, str(numbers["consequence"]), _next_step(outcome, chain)
    )


def numbers_seen(chain: Chain) -> dict[str, Any]:
    """Return the held slices' sentences and what a release means in missed photos."""
    held = [row for row in chain.slices.slices if row["role"] == "protected" and not row["passed"]]
    candidate, reference = chain.rerun.validation, chain.rerun.reference_validation
    ours, theirs = (1000 * one["missed"] / one["photos"] for one in (candidate, reference))
    whole = (
        f"Of 1,000 photos the candidate lets {ours:.1f} damaged ones pass unreviewed "
        f"(the reference {theirs:.1f})."
    )
    return {
        "slices": [str(row["sentence"]) for row in held],
        "missed_per_1000": round(ours, 3),
        "reference_missed_per_1000": round(theirs, 3),
        "consequence": " ".join([whole, *(_slice_consequence(row) for row in held)]),
    }


def _slice_consequence(row: dict[str, Any]) -> str:
    """Return how many more or fewer of 1,000 damaged photos of the slice are missed."""
    if row["measure"] != "miss_rate" or row["candidate"] is None or row["reference"] is None:
        return f"{row['name']}: judged on cost; see its sentence."
    ours, theirs = 10 * row["candidate"], 10 * row["reference"]
    change = "more" if ours >= theirs else "fewer"
    return (
        f"Of 1,000 damaged photos in {row['name']} it misses {ours:.0f} "
        f"(the reference {theirs:.0f}): {abs(ours - theirs):.0f} {change}."
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
    if expiry < today:
        raise _refused(
            revision,
            f"an acceptance that expired on {expires_on}",
            f"a date from {today.isoformat()} on",
            "Give a later day, or do not accept.",
        )


def _require_shut_holdout(chain: Chain) -> None:
    opened = any(event.kind == Kind.HOLDOUT_OPENED for event in chain.events)
    receipts = [
        one
        for one in chain.observed.get("receipts", ())
        if one["revision"] == chain.revision or not chain.plan.final.allow_spent
    ]
    if opened or receipts:
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
            "Materialize selected_rerun and slice_report first.",
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
        return "The search is closed without a winner; its record stays in the ledger."
    (first,) = frozen_selections(chain.events)
    return (
        f"Next: materialize selected_rerun and slice_report; they take {first.behind[0]}, the next "
        "in the frozen ranking."
    )


def _refused(revision: str, found: str, expected: str, remedy: str) -> DecisionError:
    return DecisionError(
        found, expected=expected, where=f"quality decision of {revision}", remedy=remedy
    )
