"""What a decision must say to count: who, why, and, for an acceptance, where and how long.

Asked when a decision is recorded, when a chain is admitted and when a packet is verified: whoever
writes to the ledger by another way is held to the same words. Who may decide at all is said by
core.approval.
"""

from collections.abc import Mapping
from datetime import date
from typing import Any, NamedTuple

from parcel_assets.core.plain_words import odd_character
from parcel_assets.core.trial import Decision

REASON_CHARACTERS_MINIMUM = 10
OUTCOMES = ("accept", "replace", "close")


class DecisionFault(NamedTuple):
    """What is wrong with a decision's words, and what to do."""

    found: str
    expected: str
    remedy: str


def words_fault(outcome: str, words: Mapping[str, str]) -> DecisionFault | None:
    """Return what is missing or odd in a decision, or None; `words` are its fields in text.

    These are name, role, reason, scope and expires_on.
    """
    if outcome not in OUTCOMES:
        return DecisionFault(repr(outcome), f"one of {', '.join(OUTCOMES)}", "Pick one of them.")
    for field in ("name", "role"):
        if not words[field].strip():
            return DecisionFault(
                f"no {field}", f"the {field} of who decides", f"Give your {field}."
            )
    if len(words["reason"].strip()) < REASON_CHARACTERS_MINIMUM:
        return DecisionFault(
            f"the reason {words['reason'].strip()!r}",
            f"at least {REASON_CHARACTERS_MINIMUM} characters",
            "Say why: the packet prints it.",
        )
    for field in ("name", "role", "reason", "scope"):
        odd = odd_character(words[field].strip())
        if odd is not None:
            return DecisionFault(
                f"{field} with {odd}",
                "plain text on one line, which every page shows as it is",
                f"Type the {field} anew.",
            )
    return _bounds_fault(outcome, words["scope"].strip(), words["expires_on"])


def _bounds_fault(outcome: str, scope: str, expires_on: str) -> DecisionFault | None:
    """Return what is wrong with where and how long a decision counts, or None."""
    if outcome != "accept":
        if scope or expires_on:
            given = "a scope" if scope else "a last day"
            return DecisionFault(
                f"{given} for {outcome}",
                "none: only an acceptance has a scope and a last day",
                "Leave both empty, or accept.",
            )
        return None
    if not scope:
        return DecisionFault("no scope", "where the acceptance counts", "Give its scope.")
    try:
        expiry = date.fromisoformat(expires_on)
    except ValueError:
        found = f"expiry {expires_on!r}" if expires_on else "no expiry"
        return DecisionFault(found, "a date such as 2027-06-30", "Give the last day.")
    if expiry.isoformat() != expires_on:  # 20270630 and 2027-W26-3 are other words for a day
        return DecisionFault(f"expiry {expires_on!r}", expiry.isoformat(), "Give the day so.")
    return None


def expiry_fault(expires_on: str, today: date) -> DecisionFault | None:
    """Return that an acceptance would have run out before it was made, or None."""
    if date.fromisoformat(expires_on) >= today:
        return None
    return DecisionFault(
        f"an acceptance that expired on {expires_on}",
        f"a date from {today.isoformat()} on (days are counted in UTC)",
        "Give a later day, or do not accept.",
    )


def recorded_fault(body: Mapping[str, Any]) -> str | None:
    """Return why a recorded decision counts for nothing, whoever made it, or None."""
    try:
        decision = Decision.model_validate(dict(body))
    except ValueError:
        return "it has not the fields of a decision"
    fields = ("name", "role", "reason", "scope", "expires_on")
    fault = words_fault(decision.outcome, {one: getattr(decision, one) for one in fields})
    return None if fault is None else f"{fault.found}; expected {fault.expected}"
