"""Choose on validation and freeze the choice; then rerun, compare and report it slice by slice.

The choice is on record before any rerun starts and before any slice is looked at (H2). Which trial
it is, is decided in core.selection; every number comes from core.statistics and core.slices.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from parcel_assets.core.attempts import failure_reasons
from parcel_assets.core.chain import Chain
from parcel_assets.core.errors import AdmissionError, CheckpointError
from parcel_assets.core.evidence import RerunBody, SliceBody, TrainedModel
from parcel_assets.core.ledger import Event, Kind
from parcel_assets.core.ports import PartData, Ports, Scores, Store
from parcel_assets.core.rerun_report import Reruns, costs_of, rerun_body
from parcel_assets.core.search import fold_search
from parcel_assets.core.selection import (
    Selection,
    choose,
    choose_next,
    frozen_selections,
    rank_trials,
    replace_decision,
    require_open_revision,
)
from parcel_assets.core.slice_plan import SliceRule
from parcel_assets.core.slice_report import (
    ScoredModel,
    judge_slices,
    slice_members,
    slice_rules,
    worst_missed,
)
from parcel_assets.core.split import part_data
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.core.table import table_digest, table_rows, unpack_scores
from parcel_assets.core.trial import TrialRow
from parcel_assets.steps.admission import StageSession, open_stage, require_sound_decisions
from parcel_assets.steps.dispatch import TaskResult, run_tasks
from parcel_assets.steps.dispatch_repair import require_lineages
from parcel_assets.steps.dispatch_work import Task

WORST_PHOTOS_MAXIMUM = 24
SHEET_COLUMNS = 6
REFERENCE = "reference"


# ---- choice and reruns ---------------------------------------------------------------------------


def rerun_selected(revision: str, ports: Ports) -> Evidence:
    """Freeze the choice, retrain it and the reference from the pinned snapshot, judge the reruns.

    A `replace` decision takes the next of the frozen ranking, once. Raises HoldError where no trial
    may be chosen and AdmissionError where a person closed the revision.
    """
    replacing = replace_decision(ports.ledger.events(revision))
    further = {} if replacing is None else {"decision": replacing.digest}
    with open_stage(Stage.RERUN, revision, ports, further_inputs=further) as session:
        if session.existing is not None:
            return session.existing
        chain = session.chain
        require_open_revision(chain.events, Stage.RERUN, revision)
        require_sound_decisions(Stage.RERUN, chain)
        require_lineages(session)
        state = fold_search(chain.plan, chain.events)
        rows = table_rows(chain.plan, state)
        failures = failure_reasons(state.attempts.values())
        selection = _freeze(session, rows, replacing, failures)
        chosen = next(row for row in rows if row.trial_id == selection.trial)
        tasks = rerun_tasks(chain, chosen)
        results = run_tasks(
            tasks,
            plan=chain.plan,
            lease=session.lease,
            ports=ports,
            split=chain.split,
            workers=ports.workers,
        )
        _require_no_parent(ports.ledger.events(revision), results)
        trained = [_trained(task, results[task.subject]) for task in tasks]
        return session.record(_rerun_body(session, rows, selection, trained))


def rerun_tasks(chain: Chain, chosen: TrialRow) -> list[Task]:
    """Return the trainings after the search: own seed first, declared seeds, the reference."""
    subject = f"rerun/{chosen.trial_id}"
    seeds = [("own", chosen.seed), *((str(seed), seed) for seed in chain.plan.rerun.seeds)]
    tasks = [
        Task(f"{subject}/{name}", "rerun", dict(chosen.configuration), seed) for name, seed in seeds
    ]
    reference = chain.plan.reference
    return [*tasks, Task(REFERENCE, "reference", dict(reference.configuration), reference.seed)]


def _freeze(
    session: StageSession,
    rows: tuple[TrialRow, ...],
    replacing: Event | None,
    failures: Mapping[str, int],
) -> Selection:
    """Return the selection that counts, appending it to the ledger where it is not there yet."""
    chain = session.chain
    frozen = {one.informed_by: one for one in frozen_selections(chain.events)}
    informed_by = None if replacing is None else replacing.digest
    selection = frozen.get(informed_by)
    if selection is None:
        selection = (
            choose(rows, table_digest(rows), chain.revision, failures)
            if replacing is None
            else choose_next(frozen[None], rows, replacing, chain.revision)
        )
        entry = (Kind.SELECTION_FROZEN, selection.document())
        session.ports.ledger.append(session.lease, [entry])
    if selection.trial not in {row.trial_id for row in rank_trials(rows)}:
        raise AdmissionError(
            f"{selection.trial}, which may no longer be chosen",
            expected="a completed trial with intact lineage",
            where=f"selection of {chain.revision}",
            remedy="The winner's lineage was lost after the choice. Plan a new search revision.",
            gate="lineage_verified",
            gate_stage=str(Stage.SEARCH),
            hold="hold:invalid-winner",
        )
    return selection


def _require_no_parent(events: tuple[Event, ...], results: Mapping[str, TaskResult]) -> None:
    """Raise CheckpointError where a rerun resumed a checkpoint: it must start from nothing (H3)."""
    counted = {result.attempt for result in results.values()}
    for event in events:
        if event.kind != Kind.ATTEMPT_STARTED or event.body["attempt"] not in counted:
            continue
        if event.body["parent_checkpoint"] is not None or event.body["resume_step"]:
            raise CheckpointError(
                f"attempt {event.body['attempt']} resumed at step {event.body['resume_step']}",
                expected="a rerun without a parent checkpoint",
                where=f"rerun {event.body['subject']}",
                remedy="A resumed rerun proves nothing. Report this; it should be impossible.",
            )


def _trained(task: Task, result: TaskResult) -> TrainedModel:
    return TrainedModel(
        subject=task.subject,
        seed=task.seed,
        configuration=dict(task.configuration),
        attempt=result.attempt,
        model=result.model,
        scores=result.scores,
        cost_per_1000=result.cost_per_1000,
        threshold=result.threshold,
    )


def _rerun_body(
    session: StageSession,
    rows: tuple[TrialRow, ...],
    selection: Selection,
    trained: list[TrainedModel],
) -> RerunBody:
    """Return the evidence from stored scores; trained are own, declared seeds, reference."""
    chain, store = session.chain, session.ports.store
    ranked = {row.trial_id: row for row in rank_trials(rows)}
    reruns = Reruns(
        own=trained[0],
        extra=tuple(trained[1:-1]),
        reference=trained[-1],
        scores={one.subject: _scores(chain, store, one.scores) for one in trained},
    )
    searched = {one: _scores(chain, store, str(row.scores)) for one, row in ranked.items()}
    return rerun_body(
        chain.plan,
        selection,
        ranked=ranked,
        searched=searched,
        reruns=reruns,
        validation=_validation(chain, store),
    )


# ---- slices --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Compared:
    """The validation photos and the two models judged on them, each at its own threshold."""

    part: PartData
    candidate: ScoredModel
    reference: ScoredModel


def report_slices(revision: str, ports: Ports) -> Evidence:
    """Judge every slice of the plan on validation, released artifact against the reference."""
    with open_stage(Stage.SLICES, revision, ports) as session:
        if session.existing is not None:
            return session.existing
        chain = session.chain
        require_open_revision(chain.events, Stage.SLICES, revision)
        _require_frozen_choice(chain)
        body = chain.rerun
        compared = _Compared(
            _validation(chain, ports.store),
            ScoredModel(_scores(chain, ports.store, body.own.scores), body.threshold),
            ScoredModel(
                _scores(chain, ports.store, body.reference.scores), body.reference.threshold
            ),
        )
        return session.record(_slice_body(session, compared))


def _slice_body(session: StageSession, compared: _Compared) -> SliceBody:
    chain, part = session.chain, compared.part
    rules = slice_rules(chain.plan.slices, part.attributes)
    results = judge_slices(
        rules, part, compared.candidate, compared.reference, costs_of(chain.plan)
    )
    body = SliceBody(
        slices=tuple(one.as_document() | {"passed": one.passed} for one in results),
        protected_passed=all(one.passed for one in results if one.role == "protected"),
        disposition="",
        members={rule.name: slice_members(rule, part, compared.candidate) for rule in rules},
        worst_sheet=_worst_sheet(session.ports, compared),
        worst_sheets={
            rule.name: sheet
            for rule in rules
            if rule.role == "protected"
            and (sheet := _worst_sheet(session.ports, compared, rule)) is not None
        },
    )
    evidence = Evidence(
        stage=Stage.SLICES,
        revision=chain.revision,
        plan_digest=chain.plan_digest,
        inputs=session.inputs,
        body=body.document(),
    )
    judged = replace(chain, evidence={**chain.evidence, Stage.SLICES: evidence})
    return body.model_copy(update={"disposition": judged.disposition(decided=False)})


def _worst_sheet(ports: Ports, compared: _Compared, rule: SliceRule | None = None) -> str | None:
    """Return the store digest of a PNG of missed damage, worst first; None where none was."""
    part, scores = compared.part, compared.candidate.scores
    rows = worst_missed(part, compared.candidate, WORST_PHOTOS_MAXIMUM, rule)
    if not len(rows):
        return None
    kinds = part.attributes["damage_type"]
    captions = [f"{part.photo_ids[row]}\n{kinds[row]} {scores[row]:.2f}" for row in rows]
    png = ports.pictures.contact_sheet(np.asarray(part.pixels[rows]), captions, SHEET_COLUMNS)
    return ports.store.put(png, ".png")


def _require_frozen_choice(chain: Chain) -> None:
    """Refuse a rerun that is not of the newest frozen choice, or that a decision has overtaken."""
    replacing = replace_decision(chain.events)
    waiting = replacing is not None and (
        chain.evidence[Stage.RERUN].inputs.get("decision") != replacing.digest
    )
    frozen = frozen_selections(chain.events)
    if waiting or not frozen or frozen[-1].trial != chain.rerun.selected_trial:
        raise AdmissionError(
            f"a rerun of {chain.rerun.selected_trial}, which is not the choice that counts",
            expected="selected_rerun of the newest frozen choice",
            where=f"{Stage.SLICES} of {chain.revision}",
            remedy=f"Materialize {Stage.RERUN} for {chain.revision} first.",
            gate="evidence",
            gate_stage=str(Stage.RERUN),
            hold=None,
        )


# ---- what both read ------------------------------------------------------------------------------


def _scores(chain: Chain, store: Store, digest: str) -> Scores:
    return unpack_scores(store.get(digest), chain.split.parts["validation"].photos)


def _validation(chain: Chain, store: Store) -> PartData:
    part = chain.split.parts["validation"]
    pixels = np.load(store.path(part.pixels), mmap_mode="r", allow_pickle=False)
    return part_data(store.get_document(part.rows), pixels)
