"""What an attempt proves about its checkpoints, and which attempts a clash involves (S6).

A checkpoint carries its lineage; the ledger says who may have written and resumed what. On a clash
all attempts involved are named; quarantining them and rerunning their trials is the search's.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from parcel_assets.core.attempts import AttemptRecord, History
from parcel_assets.core.codec import digest_value
from parcel_assets.core.errors import CheckpointError
from parcel_assets.core.trial import CheckpointSaved

LINEAGE_PREFIX = "lineage."  # how a checkpoint's header names its lineage fields
HEADER_BYTES_MAXIMUM = 4 * 1024 * 1024
LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """A checkpoint file as found: its digest and the lineage in its header (None: unreadable)."""

    digest: str
    lineage: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class PrefixContent:
    """What lies below an attempt's prefix: owner marker (or None), checkpoints by file name."""

    owner: Mapping[str, Any] | None
    checkpoints: Mapping[str, CheckpointFile] = field(default_factory=dict)


def owner_of(revision: str, attempt: str, subject: str) -> dict[str, str]:
    """Return the owner marker of an attempt's prefix."""
    return {"revision": revision, "attempt": attempt, "subject": subject}


def lineage_of(
    *,
    revision: str,
    plan_digest: str,
    identity_digest: str,
    subject: str,
    attempt: str,
    configuration: Mapping[str, Any],
    seed: int,
    step: int,
    parent_checkpoint: str | None,
) -> dict[str, str]:
    """Return the lineage that a checkpoint carries in its header."""
    return {
        "revision": revision,
        "plan": plan_digest,
        "identity": identity_digest,
        "subject": subject,
        "attempt": attempt,
        "configuration": digest_value(dict(configuration)),
        "seed": str(seed),
        "step": str(step),
        "parent_checkpoint": parent_checkpoint or "",
    }


def read_lineage_header(start: bytes, where: str) -> dict[str, str]:
    """Return the lineage in the first bytes of a safetensors file; raises CheckpointError."""
    length = int.from_bytes(start[:LENGTH_BYTES], "little")
    try:
        # a torn or oversized header is cut here, and then is no JSON
        header = json.loads(start[LENGTH_BYTES:][: min(length, HEADER_BYTES_MAXIMUM)])
        metadata = header["__metadata__"].items()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"no lineage ({error})",
            expected="a safetensors header with lineage",
            where=where,
            remedy="The file is torn or foreign; it is not resumed.",
        ) from error
    cut = len(LINEAGE_PREFIX)
    return {key[cut:]: str(text) for key, text in metadata if key.startswith(LINEAGE_PREFIX)}


def is_below_prefix(file: str) -> bool:
    """Say whether a file name, relative to a prefix, stays below it."""
    path = PurePosixPath(file)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def checkpoint_clash(
    history: History, record: AttemptRecord, saved: CheckpointSaved, lineage: Mapping[str, str]
) -> dict[str, str]:
    """Return attempt -> reason for the attempts that one checkpoint of `record` puts in doubt."""
    if not is_below_prefix(saved.file):
        return _involve(history, record, f"checkpoint {saved.file!r} lies outside its prefix")
    expected_parent = record.started.parent_checkpoint
    for earlier in record.checkpoints:
        if earlier.step < saved.step:
            expected_parent = earlier.checkpoint
    facts = {
        "subject": (lineage.get("subject"), record.subject),
        "attempt": (lineage.get("attempt"), record.attempt),
        "step": (lineage.get("step"), str(saved.step)),
        "parent checkpoint": (lineage.get("parent_checkpoint"), expected_parent or ""),
        "reported parent": (saved.parent_checkpoint or "", expected_parent or ""),
    }
    for name, (found, expected) in facts.items():
        if found != expected:
            reason = (
                f"checkpoint {saved.file} of {record.attempt} has {name} {found!r}, "
                f"expected {expected!r}"
            )
            others = [lineage.get("attempt", ""), *_writers(history, lineage, saved)]
            return _involve(history, record, reason, others)
    return {}


def _writers(history: History, lineage: Mapping[str, str], saved: CheckpointSaved) -> Iterable[str]:
    """Return the attempts that saved one of the digests a checkpoint names as its parent."""
    named = {lineage.get("parent_checkpoint"), saved.parent_checkpoint} - {None, ""}
    for record in history.attempts.values():
        if named & {one.checkpoint for one in record.checkpoints}:
            yield record.attempt


def prefix_clash(
    history: History, revision: str, record: AttemptRecord, content: PrefixContent
) -> dict[str, str]:
    """Return attempt -> reason for what the files below an attempt's prefix put in doubt."""
    expected = owner_of(revision, record.attempt, record.subject)
    if content.owner is None and not content.checkpoints and not record.spoke:
        return {}  # its coordinator died between the claim in the ledger and the folder
    if content.owner is None or dict(content.owner) != expected:
        named = str((content.owner or {}).get("attempt", ""))
        reason = f"the prefix of {record.attempt} carries the owner marker of {named or 'nobody'}"
        return _involve(history, record, reason, [named])
    recorded = {one.file: one for one in record.checkpoints}
    for file, found in sorted(content.checkpoints.items()):
        fault = _file_fault(record, file, found, recorded.get(file))
        if fault is not None:
            return _involve(history, record, fault, [(found.lineage or {}).get("attempt", "")])
    missing = sorted(set(recorded) - set(content.checkpoints))
    if missing:
        return _involve(history, record, f"checkpoint {missing[0]} of {record.attempt} is gone")
    return {}


def _file_fault(
    record: AttemptRecord, file: str, found: CheckpointFile, reported: CheckpointSaved | None
) -> str | None:
    """Return what is wrong with one file below an attempt's prefix, or None."""
    if reported is not None and found.digest != reported.checkpoint:
        return f"checkpoint {file} of {record.attempt} is not the file that was reported"
    if found.lineage is None:  # a torn file that nobody reported is none at all
        return None if reported is None else f"checkpoint {file} of {record.attempt} is unreadable"
    if (found.lineage.get("attempt"), found.lineage.get("subject")) == (
        record.attempt,
        record.subject,
    ):
        return None
    writer = found.lineage.get("attempt") or "nobody"
    return f"a checkpoint of {writer} lies in the prefix of {record.attempt}"


def chain_clash(history: History, record: AttemptRecord) -> dict[str, str]:
    """Return attempt -> reason where the ledger's own facts about an attempt do not agree."""
    for other in history.attempts.values():
        if other is record or not other.clean:
            continue
        if other.started.prefix == record.started.prefix:
            reason = f"{record.attempt} and {other.attempt} share the prefix {other.started.prefix}"
            return _involve(history, record, reason, [other.attempt])
        shared = {one.checkpoint for one in record.checkpoints} & {
            one.checkpoint for one in other.checkpoints
        }
        if shared and other.subject != record.subject:
            reason = f"{record.attempt} and {other.attempt} report the same checkpoint"
            return _involve(history, record, reason, [other.attempt])
    parent = record.started.parent_checkpoint
    if parent is not None:
        writers = [
            one
            for one in history.subjects[record.subject].attempts
            if any(saved.checkpoint == parent for saved in one.checkpoints)
        ]
        if not writers:
            return _involve(history, record, f"{record.attempt} resumes a checkpoint of nobody")
        if not any(one.clean for one in writers):
            return _involve(history, record, f"{record.attempt} resumes a quarantined checkpoint")
    return {}


def _involve(
    history: History, record: AttemptRecord, reason: str, others: Iterable[str] = ()
) -> dict[str, str]:
    """Return all attempts involved: the one found, those named, and all that resumed from them."""
    involved = {record.attempt: reason}
    involved |= {name: reason for name in others if name in history.attempts}
    queue = list(involved)
    while queue:
        source = history.attempts[queue.pop()]
        files = {one.checkpoint for one in source.checkpoints}
        for attempt in history.subjects[source.subject].attempts:
            if attempt.started.parent_checkpoint in files and attempt.attempt not in involved:
                involved[attempt.attempt] = f"it resumed a checkpoint of {source.attempt}: {reason}"
                queue.append(attempt.attempt)
    return {name: why for name, why in involved.items() if history.attempts[name].clean}


def faults_of(history: History) -> tuple[str, ...]:
    """Return what the ledger alone shows against lineages that count, in order of the attempts.

    A quarantine before its batch closed is no fault: the contamination reached nothing. One that
    was found later is: proposals and cut tables may have seen it.
    """
    faults: list[str] = []
    prefixes: dict[str, str] = {}
    writers: dict[str, str] = {}
    for record in history.attempts.values():
        if record.quarantined_late:
            faults.append(f"{record.attempt} was quarantined late: {record.quarantined}")
        if not record.clean:
            continue
        owner = prefixes.setdefault(record.started.prefix, record.attempt)
        if owner != record.attempt:
            faults.append(f"{owner} and {record.attempt} share the prefix {record.started.prefix}")
        parent = record.started.parent_checkpoint
        if parent is not None and writers.get(parent) != record.subject:
            faults.append(f"{record.attempt} resumes a checkpoint that is not its own trial's")
        expected = parent
        for saved in record.checkpoints:
            if not is_below_prefix(saved.file):
                faults.append(f"{record.attempt} wrote {saved.file!r} outside its prefix")
            if saved.parent_checkpoint != expected:
                faults.append(f"the parents of {record.attempt}'s checkpoints are broken")
            expected = saved.checkpoint
            writer = writers.setdefault(saved.checkpoint, record.subject)
            if writer != record.subject:
                faults.append(f"{writer} and {record.subject} report the same checkpoint")
    return tuple(faults)
