"""Tell, from the ledger, what was detected after an injection and what followed from it."""

from parcel_assets.core.ledger import Event, Kind
from parcel_assets.core.trial import AttemptState
from parcel_assets.drills.judge import Scene
from parcel_assets.drills.records import Report

WORDS_MAXIMUM = 400
LINES_MAXIMUM = 12


def tell_ledger(report: Report, scene: Scene) -> None:
    """Fill in what the ledger detected since the first injection, and what was settled again."""
    first = report.injections[0]
    for event in scene.events:
        words = _detection(event)
        if words is not None and event.sequence > first.sequence:
            after = max(0.0, event.at_seconds - first.at_seconds)
            line = f"event {event.sequence}, {after:.1f} s after: {words}"
            report.detected.append(_cut(line))
    _shorten(report.detected)
    for subject in scene.state.subjects.values():
        lost = [one for one in subject.attempts if one.state not in _GOOD]
        if lost:
            ends = [f"{one.attempt} {one.state}" for one in lost]
            finished = subject.finished
            if finished is not None:
                step = finished.started.resume_step
                origin = f"from step {step}" if step else "afresh"
                ends.append(f"{finished.attempt} {finished.state}, trained {origin}")
            report.settled.append(" → ".join(ends))
    _shorten(report.settled)


_GOOD = {AttemptState.COMPLETED, AttemptState.PRUNED}


def _cut(line: str) -> str:
    return line if len(line) <= WORDS_MAXIMUM else f"{line[: WORDS_MAXIMUM - 1]}…"


def _shorten(lines: list[str]) -> None:
    more = len(lines) - LINES_MAXIMUM
    if more > 0:
        lines[LINES_MAXIMUM:] = [f"… and {more} more"]


def _detection(event: Event) -> str | None:
    """Return what an event says was found wrong, or None where it says nothing of the kind."""
    body = event.body
    if event.kind == Kind.WORKER_REFUSED:
        return (
            f"worker {body['worker_id']} refused at the door: {body['field']} = {body['found']}, "
            f"expected {body['expected']}; {body['cause']}"
        )
    if event.kind == Kind.ATTEMPT_QUARANTINED:
        return f"{body['attempt']} quarantined: {body['reason']}"
    if event.kind == Kind.ATTEMPT_ENDED and body["state"] in {
        AttemptState.EXPIRED,
        AttemptState.FAILED,
    }:
        return f"{body['attempt']} {body['state']} at step {body['step']}: {body['reason']}"
    if event.kind == Kind.SEARCH_PAUSED:
        return f"the run stopped, to be gone on with: {body['reason']}"
    if event.kind == Kind.MESSAGE_SET_ASIDE:
        said = str(body["message"]).partition(":")[0]
        return f"a word from {body['worker_id']} set aside ({said}): {body['reason']}"
    return None
