"""The commands `run` and `status`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from parcel_assets.cli_common import (
    EXIT_ERROR,
    EXIT_HOLD,
    OPTIONS,
    JsonOption,
    pasteable,
    print_json,
    print_refusal,
    print_table,
    say,
)
from parcel_assets.cli_plan import register
from parcel_assets.core.attempts import failure_reasons, not_counted
from parcel_assets.core.chain import Chain
from parcel_assets.core.codec import short
from parcel_assets.core.errors import ParcelAssetsError
from parcel_assets.core.gates import gates_of
from parcel_assets.core.ledger import Kind
from parcel_assets.core.ports import Ports
from parcel_assets.core.refusals import admitted_of, refusals_of
from parcel_assets.core.search import SearchState, fold_search
from parcel_assets.core.stage import Stage
from parcel_assets.core.standing import (
    FINISHED,
    HOLD,
    OPEN,
    Standing,
    decision_words,
    standing_of,
)
from parcel_assets.core.timestamps import timestamp_words, told_timestamps
from parcel_assets.steps.admission import judge, load_chain
from parcel_assets.wiring import Settings, find_plan, open_ports, plan_file_of

NOTHING_TRAINED = "No trial was trained: everything was on record already."

RevisionArgument = Annotated[
    str, typer.Argument(metavar="REVISION", help="A search revision, or the path of its plan.")
]


def run(
    revision: RevisionArgument,
    until: Annotated[
        Stage | None, typer.Option(help="End after this stage; a run without it goes on.")
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Run a search revision from photos to registry, or go on from where it stands."""
    OPTIONS.json = as_json
    settings = OPTIONS.settings()
    raise typer.Exit(run_revision(revision, settings, until=until))


def run_revision(argument: str, settings: Settings, *, until: Stage | None = None) -> int:
    """Register the plan, run the chain through Dagster, tell how it ended; return an exit code."""
    from parcel_assets.cli_dagster import run_search_job
    from parcel_assets.cli_progress import watching

    revision = register_if_found(argument, settings)
    ports = open_ports(settings)
    before = _attempts(revision, ports)
    with watching(revision, ports) as listener:
        complete, refusal = run_search_job(revision, settings, listener, until=until)
    started = _attempts(revision, ports) - before
    if started:
        say(f"{started} trainings were started by this command.")
    elif refusal is None:  # a refused run may have trained nothing because it could not
        say(NOTHING_TRAINED)
    standing = standing_of(load_chain(revision, ports))
    if refusal is not None and standing.state not in {HOLD, FINISHED}:
        return print_refusal(refusal)
    if not complete and standing.state == FINISHED and refusal is not None:
        return print_refusal(refusal)
    code = tell_standing(standing, settings)
    return 0 if complete and until is not None and standing.state == OPEN else code


def _attempts(revision: str, ports: Ports) -> int:
    """Return how many attempts, of trials and of reruns, the revision ever started."""
    return sum(event.kind == Kind.ATTEMPT_STARTED for event in ports.ledger.events(revision))


def register_if_found(argument: str, settings: Settings) -> str:
    """Freeze the argument's plan file where there is one; return the search revision.

    Raises PlanError where there is neither a plan file nor a frozen plan of that name.
    """
    path = Path(argument)
    is_file = path.suffix == ".toml" or path.is_file()
    if not is_file and plan_file_of(argument, settings) is None:
        if argument in open_ports(settings, creates=False).ledger.revisions():
            return argument
        find_plan(argument, settings)  # raises, naming the nearest plan
    found = find_plan(argument, settings)
    register(found, settings)
    return found.revision


def tell_standing(standing: Standing, settings: Settings) -> int:
    """Print where a revision stands and return the exit code that it means."""
    code = {FINISHED: 0, HOLD: EXIT_HOLD}.get(standing.state, EXIT_ERROR)
    if OPTIONS.json:
        print_json(standing_fields(standing) | _packet_fields(standing, settings))
        return code
    if standing.state == FINISHED:
        say(f"{standing.revision}: {standing.facts['verdict']}", style="bold green")
        say(f"  packet  {settings.packets / str(standing.facts['packet'])}")
    elif standing.state == HOLD:
        say(f"{standing.revision}: {standing.hold}", style="bold yellow")
        say(f"  {standing.sentence}")
        if "remedy" in standing.facts:
            say(f"  {standing.facts['remedy']}")
        if standing.decision is not None:
            say(f"  decided: {decision_words(standing.decision)}")
    else:
        stop = f"stopped by gate {standing.gate}" if standing.gate else "not finished"
        say(f"{standing.revision}: {stop}", style="bold")
        say(f"  {standing.sentence}")
        if "remedy" in standing.facts:
            say(f"  {standing.facts['remedy']}")
    say(f"  next:  {standing.next_command}")
    return code


def standing_fields(standing: Standing) -> dict[str, Any]:
    """Return the standing as JSON fields, its commands as they must be typed here."""
    facts = dict(standing.facts)
    if "remedy" in facts:
        facts["remedy"] = pasteable(str(facts["remedy"]))
    command = pasteable(standing.next_command)
    return replace(standing, next_command=command, facts=facts).document()


def _packet_fields(standing: Standing, settings: Settings) -> dict[str, Any]:
    folder = standing.facts.get("packet")
    return {"packet_folder": str(settings.packets / str(folder))} if folder else {}


def status(
    revision: Annotated[
        str | None, typer.Argument(metavar="[REVISION]", help="One revision; none lists them all.")
    ] = None,
    *,
    holds: Annotated[
        bool, typer.Option("--holds", help="List only what is held or stopped.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Tell, from the ledger, where a search revision stands."""
    OPTIONS.json = as_json
    settings = OPTIONS.settings()
    ports = open_ports(settings, creates=False)
    if revision is None:
        revisions = ports.ledger.revisions()
        standings = [standing_or_fault(one, ports) for one in revisions]
        if holds:
            standings = [one for one in standings if one.state not in {OPEN, FINISHED}]
        if as_json:
            print_json({"revisions": [standing_fields(one) for one in standings]})
            return
        if not standings:
            of_all = f"None of the {len(revisions)} search revisions is held or stopped."
            say(of_all if revisions else f"No plan is registered yet in {settings.data}.")
            return
        listed: list[Sequence[Any]] = [
            (one.revision, one.hold or one.state, one.next_stage or "-") for one in standings
        ]
        print_table("search revisions", ("revision", "stands", "at"), listed)
        for one in standings:  # whole lines, which no table folds
            say(f"next:  {one.next_command}")
        return
    chain = load_chain(Path(revision).stem if revision.endswith(".toml") else revision, ports)
    standing = standing_of(chain)
    state = fold_search(chain.plan, chain.events)
    if as_json:
        searched = {"search": _search_fields(state), "workers": _worker_fields(chain)}
        searched["timestamps"] = told_timestamps(chain.events)
        print_json(standing_fields(standing) | searched | {"gates": _gates(chain)})
        return
    _print_search(chain, state)
    rows = [
        (one["gate"], "pass" if one["passed"] else "no", one["sentence"]) for one in _gates(chain)
    ]
    print_table("gates", ("gate", "passes", "answer"), rows)
    tell_standing(standing, settings)


def standing_or_fault(revision: str, ports: Ports) -> Standing:
    """Return where a revision stands; one that cannot be read must not hide the others."""
    try:
        return standing_of(load_chain(revision, ports))
    except ParcelAssetsError as error:
        again = f"parcel-assets status {revision}"
        return Standing(revision, "damaged", str(error), again, facts=error.as_fields())


def _search_fields(state: SearchState) -> dict[str, Any]:
    return {
        "ended": state.ended,
        "closed": state.closed,
        "paused": state.paused,
        "started_trials": state.started,
        "unstarted_trials": state.unstarted,
        "batches": len(state.batches),
        "trials_by_state": state.trials_by_state,
        "attempts_by_state": state.attempts_by_state,
        "best_trial": state.best_trial,
        "best_cost_per_1000": state.best_cost_per_1000,
        "charged_seconds_by_purpose": state.charged_seconds_by_purpose,
        "cap_seconds": state.plan.cap_seconds,
        "steps_saved_by_pruning": state.steps_saved_by_pruning,
        "failures": failure_reasons(state.attempts.values()),
    }


def _worker_fields(chain: Chain) -> dict[str, Any]:
    return {
        "admitted": len(admitted_of(chain.events)),
        "refused": [one.document() for one in refusals_of(chain.events)],
    }


def _gates(chain: Chain) -> list[dict[str, Any]]:
    found = []
    for stage in Stage:
        if stage in chain.evidence:
            for gate in gates_of(stage):
                verdict = judge(gate, chain)
                found.append(
                    {
                        "stage": str(stage),
                        "gate": gate.name,
                        "passed": verdict.passed,
                        "sentence": verdict.sentence,
                    }
                )
    return found


def _print_search(chain: Chain, state: SearchState) -> None:
    budget = chain.plan.search.budget_trials
    hours = {name: f"{s / 3600:.3f}" for name, s in state.charged_seconds_by_purpose.items()}
    rows = [
        ("plan digest", short(chain.plan_digest)),
        ("events", len(chain.events)),
        ("search", f"ended: {state.ended}" if state.ended else "not ended"),
        ("slots", f"{state.started} started + {state.unstarted} unstarted of {budget}"),
        ("trials", _listed(state.trials_by_state)),
        ("attempts", _listed(state.attempts_by_state)),
        (
            "best",
            f"{state.best_trial} at {state.best_cost_per_1000:.0f} {chain.plan.metric.unit} per "
            "1,000 photos"
            if state.best_trial
            else None,
        ),
        ("accelerator-hours", f"{_listed(hours)} of {chain.plan.search.cap_accelerator_hours:g}"),
        ("timestamps", timestamp_words(chain.events)),
    ]
    print_table(chain.revision, ("", ""), rows)
    refused = [
        (len(one.workers), one.field, one.found, one.expected, one.cause)
        for one in refusals_of(chain.events)
    ]
    if refused:
        columns = ("how many", "field", "found", "expected", "likely cause")
        print_table("workers refused before step 1", columns, refused)
    failures = failure_reasons(state.attempts.values())
    if failures:
        print_table(
            "failed attempts", ("how many", "why"), [(n, why) for why, n in failures.items()]
        )
    others = [one for one in not_counted(state.attempts.values()) if one["state"] != "failed"]
    if others:
        rows = [tuple(one.values()) for one in others]
        print_table("lost and quarantined attempts", ("attempt", "state", "step", "why"), rows)


def _listed(counts: dict[str, Any]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"
