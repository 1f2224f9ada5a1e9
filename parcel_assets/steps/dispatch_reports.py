"""What a genuine message about an attempt puts into the ledger once all it says is checked.

Raises ReportError where it breaks the protocol, CheckpointError where it puts lineages in doubt
(`facts["attempts"]`: attempt -> reason). What follows for workers is left to the loop.
"""

from collections.abc import Mapping
from typing import Any

from parcel_assets.core.attempts import AttemptRecord
from parcel_assets.core.codec import digest_bytes
from parcel_assets.core.errors import CheckpointError, ReportError, StorageError
from parcel_assets.core.ledger import Kind
from parcel_assets.core.lineage_clash import chain_clash, checkpoint_clash, prefix_clash
from parcel_assets.core.messages import CheckpointMessage, FinishedMessage, MilestoneMessage
from parcel_assets.core.search_rules import check_report, resume_points, verdict_of
from parcel_assets.core.trial import AttemptState, CheckpointSaved, MilestoneReported, Verdict
from parcel_assets.steps.dispatch_desk import Desk, Entry
from parcel_assets.steps.dispatch_settle import end_entry


def take_milestone(desk: Desk, record: AttemptRecord, said: MilestoneMessage) -> Verdict:
    """Note a report with its verdict and return that; a repeated report changes nothing.

    A stop settles the attempt in the same transaction.
    """
    earlier = check_report(
        desk.plan,
        desk.state,
        record,
        step=said.step,
        photos_seen=said.photos_seen,
        scores=said.scores,
    )
    if earlier is not None:
        return earlier.verdict
    content = _bytes_of(desk, record, said.file, said.scores)
    # off a milestone (kept for the curve, never judged) the photos of any milestone will do
    scored_at = {digest: step for step, digest in desk.labels.subsets.items()}
    due = desk.labels.subsets.get(said.step, said.subset)
    if said.subset != due or said.subset not in scored_at:
        raise _doubt(record, f"scores of other photos than the plan's at step {said.step}")
    try:
        cost, threshold = desk.labels.judge(scored_at[said.subset], content)
    except StorageError as error:
        raise ReportError(
            error.found, expected=error.expected, where=error.where, remedy=error.remedy
        ) from error
    verdict, reason = verdict_of(desk.plan, desk.state, record.subject, said.step, cost)
    report = MilestoneReported(
        attempt=record.attempt,
        subject=record.subject,
        step=said.step,
        photos_seen=said.photos_seen,
        subset_digest=said.subset,
        scores=desk.keep(content, ".f4"),
        cost_per_1000=cost,
        threshold=threshold,
        verdict=verdict,
        reason=reason,
        file=said.file,
    )
    entries: list[Entry] = [(Kind.MILESTONE_REPORTED, report.document())]
    if verdict == Verdict.STOP:
        own = cost is None  # NaN never ranks (S9)
        state = AttemptState.FAILED if own else AttemptState.PRUNED
        step = said.step
        entries.append(end_entry(desk, record, state, step=step, reason=reason, own_failure=own))
    desk.note(*entries)
    return verdict


def take_checkpoint(desk: Desk, record: AttemptRecord, said: CheckpointMessage) -> None:
    """Note a checkpoint whose file and lineage are what its worker says.

    A repeated message changes nothing; another checkpoint at a step that is over is refused.
    """
    told = (said.step, said.file, said.checkpoint, said.parent or None)
    known = {(o.step, o.file, o.checkpoint, o.parent_checkpoint) for o in record.checkpoints}
    if told in known:
        return
    path = desk.attempt_file(record, said.file)
    found = desk.reader.file(path)
    saved = CheckpointSaved(
        attempt=record.attempt,
        subject=record.subject,
        step=said.step,
        file=said.file,
        checkpoint=said.checkpoint,
        parent_checkpoint=said.parent or None,
        payload="" if found is None else found.payload,
    )
    lineage = None if found is None else found.lineage or {}
    clash = checkpoint_clash(desk.state, record, saved, lineage)
    if clash:
        raise _clash(record, clash)
    if found is None or found.digest != said.checkpoint:
        raise _doubt(record, f"checkpoint {said.file} is not the file that was reported")
    newest = max([record.started.resume_step, *(one.step for one in record.checkpoints)])
    if said.step <= newest:
        raise ReportError(
            f"a checkpoint at step {said.step} after that of step {newest}",
            expected="checkpoints at later and later steps",
            where=f"checkpoint of {record.attempt}",
            remedy="The attempt is stopped; its worker does not keep the protocol.",
        )
    desk.note((Kind.CHECKPOINT_SAVED, saved.document()))


def take_finish(desk: Desk, record: AttemptRecord, said: FinishedMessage) -> None:
    """Note a completed attempt and keep its weights; without the last report it is none."""
    if said.step != desk.plan.training.steps or said.step not in record.reports:
        raise ReportError(
            f"an end at step {said.step} without that step's report",
            expected=f"the report of step {desk.plan.training.steps} first",
            where=f"end of {record.attempt}",
            remedy="The attempt failed: success without evidence is none.",
        )
    content = _bytes_of(desk, record, said.file, said.model)
    model = desk.keep(content, ".safetensors")
    state, step = AttemptState.COMPLETED, said.step
    desk.note(end_entry(desk, record, state, step=step, model=model, model_file=said.file))


def resume_of(desk: Desk, subject: str) -> dict[str, Any] | None:
    """Return the best checkpoint of a trial that verifies on disk now, or None to start afresh."""
    state = desk.state
    for record, saved in resume_points(desk.plan, state, subject):
        content = desk.reader.content(record)
        found = content.files.get(saved.file)
        if found is None or prefix_clash(state, record, content) or chain_clash(state, record):
            continue  # what does not agree is quarantined when its batch closes
        path = desk.attempt_file(record, saved.file)
        return {"file": str(path), "checkpoint": saved.checkpoint, "step": saved.step}
    return None


def _bytes_of(desk: Desk, record: AttemptRecord, file: str, digest: str) -> bytes:
    path = desk.attempt_file(record, file)
    content = path.read_bytes() if path.is_file() else b""
    if digest_bytes(content) != digest:
        raise _doubt(record, f"{file} is not the file that was reported")
    return content


def _doubt(record: AttemptRecord, reason: str) -> CheckpointError:
    return _clash(record, {record.attempt: f"{record.attempt}: {reason}"})


def _clash(record: AttemptRecord, attempts: Mapping[str, str]) -> CheckpointError:
    return CheckpointError(
        next(iter(attempts.values())),
        expected="files and lineage of the attempt's own",
        where=f"prefix of {record.attempt}",
        remedy="All attempts involved are quarantined, and their trials run again.",
        attempts=dict(attempts),
    )
