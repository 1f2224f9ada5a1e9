"""Which attempts a clash of lineages involves (S6), and what the ledger alone shows.

The ledger's record, the files below a prefix and the chain of parents must agree. On a clash every
attempt involved is named, and all that resumed from one: quarantining them and rerunning their
trials is the search's. Each function looks at one attempt; indexes of the history keep it short.
"""

from collections.abc import Iterable, Mapping, Sequence

from parcel_assets.core.attempts import AttemptRecord, History
from parcel_assets.core.codec import digest_value
from parcel_assets.core.lineage import FoundFile, PrefixContent, is_below_prefix, owner_of
from parcel_assets.core.trial import CheckpointSaved

Clash = dict[str, str]  # attempt -> reason


def checkpoint_clash(
    history: History,
    record: AttemptRecord,
    saved: CheckpointSaved,
    lineage: Mapping[str, str] | None,
) -> Clash:
    """Return the attempts that one reported checkpoint of `record` puts in doubt.

    `lineage` is what the file's header says, None where there is no such file: then what was
    reported of its parent still counts.
    """
    if not is_below_prefix(saved.file):
        return _involve(history, record, f"checkpoint {saved.file!r} lies outside its prefix")
    earlier = [one for one in record.checkpoints if one.step < saved.step]
    parent = earlier[-1].checkpoint if earlier else record.started.parent_checkpoint or ""
    fault = None
    if lineage is not None:
        fault = _lineage_fault(history, record, saved.step, lineage, {parent})
    if fault is None and (saved.parent_checkpoint or "") != parent:
        fault = f"reported parent {saved.parent_checkpoint!r}, expected {parent!r}"
    if fault is not None:
        reason = f"checkpoint {saved.file} of {record.attempt} has {fault}"
        told = _writers(history, [saved.parent_checkpoint or ""])
        return _involve(history, record, reason, [*_named(history, lineage or {}), *told])
    if lineage is None:
        reason = f"checkpoint {saved.file} of {record.attempt} is not below its prefix"
        return _involve(history, record, reason)
    return _copy_clash(history, record, saved.file, [saved.checkpoint, saved.payload])


def prefix_clash(history: History, record: AttemptRecord, content: PrefixContent) -> Clash:
    """Return the attempts that the files below an attempt's prefix put in doubt."""
    expected = owner_of(history.revision, record.attempt, record.subject)
    if content.owner is None and not content.files and not record.spoke:
        return {}  # its coordinator died between the claim in the ledger and the folder
    if content.owner is None or dict(content.owner) != expected:
        named = str((content.owner or {}).get("attempt", ""))
        reason = f"the prefix of {record.attempt} carries the owner marker of {named or 'nobody'}"
        found = [name for file in content.files.values() for name in _origins(history, file)]
        return _involve(history, record, reason, [named, *found])
    clash: Clash = {}
    for name, file in sorted(content.files.items()):
        clash = _file_clash(history, record, content, name, file) | clash
    missing = sorted(set(record.files) - set(content.files))
    if missing:
        clash |= _involve(history, record, f"{missing[0]} of {record.attempt} is gone") | clash
    return clash


def _file_clash(
    history: History, record: AttemptRecord, content: PrefixContent, name: str, file: FoundFile
) -> Clash:
    """Return the attempts that one file below an attempt's prefix puts in doubt."""
    reported = record.files.get(name)
    others = _origins(history, file)
    if file.link_to is not None:
        reason = f"{name} below the prefix of {record.attempt} is no plain file: {file.link_to}"
        return _involve(history, record, reason, others)
    if reported is not None and file.digest != reported:
        reason = f"{name} of {record.attempt} is not the file that was reported"
        return _involve(history, record, reason, others)
    if file.lineage is None:
        is_checkpoint = any(one.file == name for one in record.checkpoints)
        if is_checkpoint:
            reason = f"checkpoint {name} of {record.attempt} is unreadable"
            return _involve(history, record, reason)
    else:
        parents = _parents_found(record, content, _step_in(file.lineage))
        fault = _lineage_fault(history, record, None, file.lineage, parents)
        if fault is not None:
            reason = f"{name} below the prefix of {record.attempt} has {fault}"
            return _involve(history, record, reason, others)
    return _copy_clash(history, record, name, [file.digest, file.payload])


def chain_clash(history: History, record: AttemptRecord) -> Clash:
    """Return the attempts whose facts in the ledger do not agree with those of `record`."""
    sharers = history.prefixes.get(record.started.prefix, [])
    others = [one.attempt for one in sharers if one is not record and one.clean]
    if others:
        reason = f"{record.attempt} and {others[0]} share the prefix {record.started.prefix}"
        return _involve(history, record, reason, others)
    clash: Clash = {}
    for saved in record.checkpoints:
        clash |= _copy_clash(history, record, saved.file, [saved.checkpoint, saved.payload])
    if record.ended is not None and record.ended.model:
        clash |= _copy_clash(history, record, "the model", [record.ended.model])
    parent = record.started.parent_checkpoint
    if clash or parent is None:
        return clash
    writers = [
        one for one in history.writers.get(parent, []) if one.subject == record.subject != ""
    ]
    if not writers:
        reason = f"{record.attempt} resumes a checkpoint that is not its own trial's"
        return _involve(history, record, reason, _writers(history, [parent]))
    if not any(one.clean for one in writers):
        return _involve(history, record, f"{record.attempt} resumes a quarantined checkpoint")
    return {}


def faults_of(history: History) -> tuple[str, ...]:
    """Return what the ledger alone shows against lineages that count, in order of the attempts.

    A quarantine before its batch closed is no fault: the contamination reached nothing. One that
    was found later is, until a replay has shown that it decided nothing.
    """
    faults: list[str] = []
    prefixes: dict[str, str] = {}
    writers: dict[str, str] = {}
    for record in history.attempts.values():
        if record.quarantined_late and not record.cleared:
            found = f"{record.attempt} was quarantined late: {record.quarantined}"
            faults.append(f"{found} ({record.replayed})" if record.replayed else found)
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


# ---- what a lineage must say --------------------------------------------------------------------


def _lineage_fault(
    history: History,
    record: AttemptRecord,
    reported_step: int | None,
    lineage: Mapping[str, str],
    parents: set[str],
) -> str | None:
    """Return what a header says that is not true of the attempt, in words; None where all is."""
    step = _step_in(lineage)
    if step is None or (reported_step is not None and step != reported_step):
        return f"step {lineage.get('step')!r}, expected {reported_step or 'a number'}"
    shared = history.shared_lineage | {"subject": record.subject, "attempt": record.attempt}
    identity = history.identities.get(record.started.worker_id)
    if identity is not None:
        shared["identity"] = identity
    for name, expected in shared.items():
        if lineage.get(name) != expected:
            return f"{name} {lineage.get(name)!r}, expected {expected!r}"
    training = digest_value([lineage.get("configuration"), lineage.get("seed")])
    if record.started.training and training != record.started.training:
        return "the configuration or the seed of another trial"
    if lineage.get("parent_checkpoint", "") not in parents:
        found, expected = lineage.get("parent_checkpoint"), sorted(parents)[0]
        return f"parent checkpoint {found!r}, expected {expected!r}"
    return _step_fault(history, record, step)


def _step_fault(history: History, record: AttemptRecord, step: int) -> str | None:
    """Return why the attempt cannot have a checkpoint of a step, as far as it reported."""
    start = record.started.resume_step
    if step <= start:
        return f"step {step}, but the attempt began after step {start}"
    due = [one for one in history.milestones if start < one <= step and one not in record.reports]
    if due:
        return f"step {step}, but milestone {due[0]} was not reported"
    if history.milestones and step > history.milestones[-1]:
        return f"step {step}, but the training ends at {history.milestones[-1]}"
    return None


def _step_in(lineage: Mapping[str, str]) -> int | None:
    text = lineage.get("step", "")
    return int(text) if text.isdecimal() else None


def _parents_found(record: AttemptRecord, content: PrefixContent, step: int | None) -> set[str]:
    """Return the digests that a file of a step may name as its parent: its nearest earlier ones."""
    known = [(one.step, one.checkpoint) for one in record.checkpoints]
    for file in content.files.values():
        found = _step_in(file.lineage) if file.lineage else None
        if found is not None and file.lineage and file.lineage.get("attempt") == record.attempt:
            known.append((found, file.digest))
    earlier = [pair for pair in known if step is not None and pair[0] < step]
    if not earlier:
        return {record.started.parent_checkpoint or ""}
    nearest = max(one for one, _ in earlier)
    return {digest for one, digest in earlier if one == nearest}


# ---- who is involved ----------------------------------------------------------------------------


def _copy_clash(
    history: History, record: AttemptRecord, name: str, digests: Sequence[str]
) -> Clash:
    """Return a clash where another training reported this very content before."""
    others = [
        one.attempt
        for digest in digests
        if digest
        for one in history.writers.get(digest, [])
        if one.training != record.training
    ]
    if not others:
        return {}
    reason = f"{name} of {record.attempt} holds what {others[0]} reported"
    return _involve(history, record, reason, others)


def _origins(history: History, file: FoundFile) -> list[str]:
    """Return the attempts that a file came from, by what it says and by what it is."""
    found = [*_named(history, file.lineage or {}), *_writers(history, [file.digest, file.payload])]
    place = file.link_to or ""
    while place and place not in history.prefixes:
        place = place.rpartition("/")[0]
    return [*found, *(one.attempt for one in history.prefixes.get(place, []))]


def _named(history: History, lineage: Mapping[str, str]) -> list[str]:
    """Return the attempt that a lineage names, and those that wrote the parent it names."""
    parent = lineage.get("parent_checkpoint", "")
    return [lineage.get("attempt", ""), *_writers(history, [parent])]


def _writers(history: History, digests: Iterable[str]) -> list[str]:
    return [one.attempt for digest in digests for one in history.writers.get(digest, []) if digest]


def _involve(
    history: History, record: AttemptRecord, reason: str, others: Iterable[str] = ()
) -> Clash:
    """Return all attempts involved: the one found, those named, and all that resumed from them."""
    involved = {record.attempt: reason}
    involved |= {name: reason for name in others if name in history.attempts}
    queue = list(involved)
    while queue:
        source = history.attempts[queue.pop()]
        for saved in source.checkpoints:
            for child in history.children.get(saved.checkpoint, []):
                if child.attempt not in involved:
                    why = f"it resumed a checkpoint of {source.attempt}: {reason}"
                    involved[child.attempt] = why
                    queue.append(child.attempt)
    return {name: why for name, why in involved.items() if history.attempts[name].clean}
