"""The audit of a ledger: chain, fold, tables, evidence and anchors, down to the first bad event.

Everything read is taken as untrusted: rows of a database, or lines of an exported file. Who reads
them, and the documents that evidence names, is left to the caller.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from parcel_assets.core.anchor import Anchor, lost_anchor
from parcel_assets.core.codec import canonical_json, short
from parcel_assets.core.errors import LedgerError
from parcel_assets.core.ledger import (
    GENESIS,
    Event,
    Kind,
    check_may_append,
    event_digest,
    last_of,
    once_key,
)

FIELDS = ("revision", "sequence", "at_seconds", "kind", "body", "previous", "digest")


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """All that a ledger holds of one revision, read at one moment and not yet believed.

    A row has the fields of an event, its body as JSON text or fields, and `once_key` where it comes
    from a table. `missing_rules` names triggers that the database should have and has not.
    """

    rows: tuple[Mapping[str, Any], ...]
    fence: int | None = None  # of the newest lease
    opening: str | None = None  # digest of the event that opened the holdout
    opened_keys: tuple[str, ...] = ()
    missing_rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditFault:
    """One thing wrong: where, what was found and expected, and at which event if it is one's."""

    place: str  # chain, fold, tables, evidence or anchors
    found: str
    expected: str
    sequence: int | None = None
    kind: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the fault as JSON fields."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class LedgerAudit:
    """What an audit found; `events` are those before the first break of the chain."""

    revision: str
    rows: int
    events: tuple[Event, ...]
    faults: tuple[AuditFault, ...]
    anchors: int = 0

    @property
    def first(self) -> AuditFault | None:
        """The fault at the earliest event; one that is no event's comes last."""
        return min(
            self.faults,
            key=lambda fault: (fault.sequence is None, fault.sequence or 0),
            default=None,
        )

    def document(self) -> dict[str, Any]:
        """Return the audit as JSON fields."""
        head = self.events[-1] if self.events else None
        return {
            "revision": self.revision,
            "sound": not self.faults,
            "rows": self.rows,
            "events": len(self.events),
            "head": head and {"sequence": head.sequence, "digest": head.digest},
            "anchors": self.anchors,
            "first_fault": self.first and self.first.document(),
            "faults": [fault.document() for fault in self.faults],
        }


# ---- the chain ----------------------------------------------------------------------------------


def read_chain(
    revision: str, rows: Sequence[Mapping[str, Any]]
) -> tuple[tuple[Event, ...], AuditFault | None]:
    """Return the events up to the first break of the chain, and what that break is.

    Rows come in order of their sequence in a table, in the order of lines in a file.
    """
    events: list[Event] = []
    kinds: set[Kind] = set()
    keys: set[str] = set()
    for row in rows:
        event, fault = _read_event(row, revision, len(events) + 1)
        if event is not None and fault is None:
            fault = _break(events[-1] if events else None, event)
        if event is not None and fault is None:
            fault = _refused(row, event, kinds, keys)
        if event is None or fault is not None:
            return tuple(events), fault
        kinds.add(event.kind)
        events.append(event)
    return tuple(events), None


def _read_event(
    row: Mapping[str, Any], revision: str, expected: int
) -> tuple[Event | None, AuditFault | None]:
    """Return the event that a row holds, or why it holds none."""
    try:
        body = row["body"]
        fields = json.loads(body) if isinstance(body, str) else body
        event = Event(
            str(row["revision"]),
            int(row["sequence"]),
            float(row["at_seconds"]),
            Kind(row["kind"]),
            dict(fields),
            str(row["previous"]),
            str(row["digest"]),
        )
        as_written = not isinstance(body, str) or body == canonical_json(fields).decode()
    except (KeyError, TypeError, ValueError) as error:
        kind, sequence = str(row.get("kind")), _whole(row.get("sequence"), expected)
        words = f"a row that does not read ({error!r})"
        return None, AuditFault("chain", words, "an event as it was appended", sequence, kind)
    if event.revision != revision:
        words = f"an event of {event.revision}"
        return event, _at(event, "chain", words, f"an event of {revision}")
    if not as_written:
        return event, _at(event, "chain", "a body in other bytes", "its canonical JSON")
    return event, None


def _whole(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise


def _at(event: Event, place: str, found: str, expected: str) -> AuditFault:
    return AuditFault(place, found, expected, event.sequence, str(event.kind))


def _break(previous: Event | None, event: Event) -> AuditFault | None:
    """Return why an event does not follow the one before it, or None."""
    place, head, at = (
        (previous.sequence + 1, previous.digest, previous.at_seconds)
        if previous
        else (1, GENESIS, 0.0)
    )
    if event.sequence != place:
        missing = event.sequence > place
        return AuditFault(
            "chain",
            f"event {event.sequence} in its place" if missing else f"a second {event.sequence}",
            f"event {place}",
            place if missing else event.sequence,
            None if missing else str(event.kind),
        )
    if event.previous != head:
        return _at(
            event,
            "chain",
            f"an event that follows digest {short(event.previous)}",
            f"one that follows {short(head)}, the event before it",
        )
    recomputed = event_digest(
        revision=event.revision,
        sequence=event.sequence,
        at_seconds=event.at_seconds,
        kind=event.kind,
        body=event.body,
        previous=event.previous,
    )
    if event.digest != recomputed:
        return _at(
            event,
            "chain",
            f"digest {short(event.digest)}",
            f"digest {short(recomputed)}, which its time, kind and body have",
        )
    if event.at_seconds < at:
        return _at(event, "chain", f"time {event.at_seconds}", f"time {at} or later")
    return None


def _refused(
    row: Mapping[str, Any], event: Event, kinds: set[Kind], keys: set[str]
) -> AuditFault | None:
    """Return why an event may not stand where it does (H7, S1), or None."""
    try:
        check_may_append(kinds, event.kind, event.revision)
        key = once_key(event.kind, event.body)
    except LedgerError as error:
        return _at(event, "chain", error.found, error.expected)
    except (KeyError, TypeError) as error:
        return _at(event, "chain", f"a body without {error}", "the fields of its kind")
    if key is not None and key in keys:
        return _at(event, "chain", f"a second {key}", "at most one in a revision")
    if "once_key" in row and row["once_key"] != key:
        return _at(event, "tables", f"once-key {row['once_key']}", f"once-key {key}")
    if key is not None:
        keys.add(key)
    return None


# ---- tables and anchors -------------------------------------------------------------------------


def rule_faults(record: LedgerRecord) -> Iterator[AuditFault]:
    """Yield the rules that somebody took from the database."""
    for rule in record.missing_rules:
        yield AuditFault("tables", f"no trigger {rule}", "every trigger of the schema")


def table_faults(
    record: LedgerRecord, events: Sequence[Event], expected_keys: Iterable[str] | None
) -> Iterator[AuditFault]:
    """Yield where lease, openings and keys contradict the chain.

    `expected_keys` are those of the split's holdout; None where its evidence cannot be read.
    """
    starts = [event for event in events if event.kind == Kind.ATTEMPT_STARTED]
    newest = max(starts, key=lambda event: int(event.body["fence"]), default=None)
    if events and record.fence is None:
        yield AuditFault("tables", "no lease", "the lease under which the events were written")
    elif newest is not None and int(newest.body["fence"]) > (record.fence or 0):
        yield _at(
            newest,
            "tables",
            f"fence {newest.body['fence']}, and {record.fence} in the table of leases",
            "a fence that was given out",
        )
    opened = last_of(events, Kind.HOLDOUT_OPENED)
    if (opened.digest if opened else None) != record.opening:
        yield AuditFault(
            "tables",
            f"opening {short(record.opening or 'none')} in the table of openings",
            f"opening {short(opened.digest) if opened else 'none'}, as the chain says",
            opened.sequence if opened else None,
            str(Kind.HOLDOUT_OPENED) if opened else None,
        )
    keys = set(expected_keys or ()) if opened else set()
    if opened and expected_keys is None:
        return
    odd = keys.symmetric_difference(record.opened_keys)
    # keys that an earlier search opened stay with it; a plan that allows that says how many
    reused = int(opened.body.get("reused", {}).get("keys", 0)) if opened else 0
    if odd - keys or len(odd) != reused:
        yield AuditFault(
            "tables",
            f"{len(record.opened_keys)} opened holdout keys, {len(odd)} of them wrong or missing",
            f"{len(keys)}, those of the holdout that was opened",
            opened.sequence if opened else None,
            str(Kind.HOLDOUT_OPENED) if opened else None,
        )


def anchor_faults(events: Sequence[Event], anchors: Sequence[Anchor]) -> Iterator[AuditFault]:
    """Yield the first anchor that the chain does not hold to."""
    lost = lost_anchor(events, anchors)
    if lost is None:
        return
    expected = f"event {lost.sequence} with digest {short(lost.digest)}, as {lost.stage} left it"
    if lost.sequence > len(events):
        words = f"a chain that ends at event {len(events)}"
        yield AuditFault("anchors", words, expected, len(events) + 1)
        return
    event = events[lost.sequence - 1]
    yield _at(event, "anchors", f"digest {short(event.digest)}", expected)
