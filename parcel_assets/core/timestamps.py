"""Timestamps: which event an authority outside has seen, which of them count, and what that says.

A timestamp is over the event right before it: an authority signed that event's digest together with
its own time. Two count. That of the split stands between the split's record and the first trial;
that of the choice is the event right before the opening. Since every event carries the digest of
the one before it, what follows a token was written after the authority had signed it.

Getting tokens and reading their signatures is left to an adapter.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from parcel_assets.core.errors import TimestampError
from parcel_assets.core.ledger import Event, Kind, event_bytes, last_of
from parcel_assets.core.packet import LEVELS, Fault, Files
from parcel_assets.core.stage import Record, Stage

# the ledger's clock and an authority's may differ by this much; order is proven by the chain
CLOCKS_APART_SECONDS = 300.0
SPLIT, CHOICE = "split", "choice"
FOLDER = "timestamps"


class Timestamp(Record):
    """Body of TIMESTAMP_RECORDED, over the event before it."""

    token: str  # store digest of the authority's answer: RFC 3161, DER
    authority: str  # whose certificate signed it
    stamped_at: float  # the authority's own time, in seconds since the epoch


@dataclass(frozen=True, slots=True)
class Token:
    """What an authority's answer says: `digest` is the SHA-256 it saw, in hex."""

    content: bytes
    digest: str
    authority: str
    at_seconds: float


class Timestamper(Protocol):
    """An authority outside that signs, with its own time, that it has seen a digest (RFC 3161)."""

    def stamp(self, message: bytes) -> Token:
        """Return the authority's token over the SHA-256 of the message.

        Raises TimestampError where no answer comes in time, or one that is not over this very
        request or not signed under the root that the operator trusts.
        """
        ...


# an answer's bytes, PEM roots that its reader trusts or None -> what it says; TimestampError
TokenReader = Callable[[bytes, bytes | None], Token]


def require_near(token: Token, event: Event, now_seconds: float) -> None:
    """Raise TimestampError where a token's time is not between its event's and now."""
    fault = _time_fault(token.at_seconds, event.at_seconds, now_seconds)
    if fault is not None:
        raise TimestampError(
            fault,
            expected=f"a time between {moment_words(event.at_seconds)}, when event "
            f"{event.sequence} was written, and now, {moment_words(now_seconds)}",
            where=f"timestamp authority {token.authority}",
            remedy="Set this machine's clock, or ask another authority, and run again: nothing "
            "was recorded.",
        )


def _time_fault(at: float, earliest: float, latest: float) -> str | None:
    if earliest - CLOCKS_APART_SECONDS <= at <= latest + CLOCKS_APART_SECONDS:
        return None
    apart = earliest - at if at < earliest else at - latest
    return f"the time {moment_words(at)}, {apart:.0f} s {'early' if at < earliest else 'late'}"


# ---- which count --------------------------------------------------------------------------------


def split_timestamp(events: Sequence[Event]) -> Event | None:
    """Return the first timestamp after the split's record and before the first trial, or None."""
    recorded = [
        event.sequence
        for event in events
        if event.kind == Kind.STAGE_RECORDED and event.body["stage"] == str(Stage.SPLIT)
    ]
    if not recorded:
        return None
    batches = [event.sequence for event in events if event.kind == Kind.BATCH_OPENED]
    first_trial = batches[0] if batches else len(events) + 1
    between = (
        event
        for event in events
        if event.kind == Kind.TIMESTAMP_RECORDED and recorded[-1] < event.sequence < first_trial
    )
    return next(between, None)


def choice_timestamp(events: Sequence[Event]) -> Event | None:
    """Return the timestamp right before the opening, or None; nothing is chosen in between."""
    opened = last_of(events, Kind.HOLDOUT_OPENED)
    if opened is None or opened.sequence < 2:
        return None
    before = events[opened.sequence - 2]
    return before if before.kind == Kind.TIMESTAMP_RECORDED else None


def counting_timestamps(events: Sequence[Event]) -> dict[str, Event]:
    """Return the timestamps that count, by what they are over."""
    found = {SPLIT: split_timestamp(events), CHOICE: choice_timestamp(events)}
    return {name: event for name, event in found.items() if event is not None}


def level_of(custody: str, events: Sequence[Event]) -> str:
    """Return the evidence level: who could use the key (L1, L3), and L2 where both are stamped."""
    return "L2" if custody == "L1" and len(counting_timestamps(events)) == 2 else custody


# ---- words --------------------------------------------------------------------------------------


def moment_words(at_seconds: float) -> str:
    """Return a moment as people and programs read it, in UTC."""
    return datetime.fromtimestamp(at_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def told_timestamps(events: Sequence[Event]) -> dict[str, dict[str, Any] | None]:
    """Return, for split and choice, event, authority and time of what was stamped, or None."""
    counting = counting_timestamps(events)
    return {
        name: None
        if name not in counting
        else {
            "event": counting[name].sequence - 1,
            "digest": counting[name].previous,
            "authority": str(counting[name].body["authority"]),
            "stamped_at": moment_words(float(counting[name].body["stamped_at"])),
            "file": token_file(name),
        }
        for name in (SPLIT, CHOICE)
    }


def timestamp_words(events: Sequence[Event]) -> str:
    """Return in words what of a search an authority has stamped, and what not."""
    told = told_timestamps(events)
    if not any(told.values()):
        return "not timestamped"
    opened = last_of(events, Kind.HOLDOUT_OPENED) is not None
    absent = {SPLIT: "not timestamped", CHOICE: "not timestamped" if opened else "not opened yet"}
    return ", ".join(
        f"{name} {absent[name]}"
        if one is None
        else f"{name} timestamped {one['stamped_at']} by {one['authority']}"
        for name, one in told.items()
    )


def level_words(final: Mapping[str, Any], events: Sequence[Event]) -> str:
    """Return what a final result's evidence level means here, and why it is no other.

    `final` is the body of the evidence; packets of earlier releases gave no reason.
    """
    means = LEVELS.get(str(final["evidence_level"]), "unknown")
    reason = final.get("evidence_level_reason")
    return means if reason is None else f"{means}; {reason}; {timestamp_words(events)}"


# ---- a packet's files ---------------------------------------------------------------------------


def token_file(name: str) -> str:
    """Return where a packet keeps the token over the split or the choice."""
    return f"{FOLDER}/{name}.tsr"


def event_file(name: str) -> str:
    """Return where a packet keeps the event that the token is over, as it was signed."""
    return f"{FOLDER}/{name}.json"


def token_digests(events: Sequence[Event]) -> dict[str, str]:
    """Return the packet's token files and the digests that the ledger names."""
    return {
        token_file(name): str(event.body["token"])
        for name, event in counting_timestamps(events).items()
    }


def stamped_bytes(events: Sequence[Event]) -> dict[str, bytes]:
    """Return the packet's files that tokens are over: an event each, in canonical JSON."""
    return {
        event_file(name): event_bytes(events[event.sequence - 2])
        for name, event in counting_timestamps(events).items()
    }


def read_timestamps(
    files: Files, events: Sequence[Event], read_token: TokenReader, roots: bytes | None
) -> tuple[list[Fault], list[str]]:
    """Return what is wrong with a packet's tokens, and what they say in words.

    With `roots` both tokens must be there and signed under one of them: whoever names a root asks
    for that. Without, their signatures are not checked, and the words say so. A closed search has
    no choice to stamp.
    """
    faults: list[Fault] = []
    words: list[str] = []
    counting = counting_timestamps(events)
    opened = last_of(events, Kind.HOLDOUT_OPENED) is not None
    for name in (SPLIT, CHOICE) if opened else (SPLIT,):
        path, event = token_file(name), counting.get(name)
        if event is None:
            words.append(f"{name}: not timestamped")
            if roots is not None:
                faults.append(Fault(path, f"is absent: the {name} is not timestamped"))
            continue
        try:
            token = read_token(files[path], roots)
        except TimestampError as error:
            faults.append(Fault(path, f"does not hold: {error.found}"))
            continue
        faults += [Fault(path, why) for why in _token_faults(token, event, events)]
        trust = "not checked against a root you trust"
        if roots is not None:
            trust = "signed under a root that you trust"
        words.append(
            f"{name}: stamped by {token.authority} at {moment_words(token.at_seconds)}, {trust}"
        )
    return faults, words if counting else ["Not timestamped."]


def _token_faults(token: Token, event: Event, events: Sequence[Event]) -> list[str]:
    """Return where a token contradicts the event that names it, or its neighbours."""
    body, stamped = event.body, events[event.sequence - 2]
    faults = []
    if token.digest != event.previous:
        faults.append(f"is over {token.digest[:8]}, not over event {stamped.sequence}")
    told = (str(body["authority"]), float(body["stamped_at"]))
    if told != (token.authority, token.at_seconds):
        faults.append("says another authority or time than the ledger")
    late = _time_fault(token.at_seconds, stamped.at_seconds, event.at_seconds)
    if late is not None:
        faults.append(f"has {late} by the ledger's clock")
    return faults
