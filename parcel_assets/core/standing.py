"""Where a search revision stands: what is done, what stops it, and what to do next.

Computed from the chain with the functions of the gate table, for the command line and pages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from parcel_assets.core.approval import ApproverPlan, decide_commands, who_words
from parcel_assets.core.attempts import failure_reasons
from parcel_assets.core.chain import Chain
from parcel_assets.core.disposition import HOLD_INVALID_WINNER, HOLD_SLICE_QUALITY
from parcel_assets.core.evidence import PacketBody
from parcel_assets.core.gate_rules import HOLD_CLOSED, closed_words
from parcel_assets.core.gates import GATES
from parcel_assets.core.ledger import Kind, last_of
from parcel_assets.core.search import fold_search
from parcel_assets.core.search_rules import HOLD_NO_WORKER
from parcel_assets.core.selection import (
    close_decision,
    day_of,
    frozen_selections,
    no_winner,
    rank_trials,
    replace_decision,
)
from parcel_assets.core.stage import Stage
from parcel_assets.core.table import table_rows

FINISHED, HOLD, STOPPED, OPEN = "finished", "hold", "stopped", "open"
RUN_LIFTS = frozenset({"hold:search-running", "hold:lineage", HOLD_NO_WORKER})


@dataclass(frozen=True, slots=True)
class Standing:
    """`state` is finished, hold, stopped or open; a hold names itself, a stop its gate."""

    revision: str
    state: str
    sentence: str
    next_command: str
    next_stage: Stage | None = None
    gate: str | None = None
    hold: str | None = None
    done: tuple[Stage, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    decision: Mapping[str, Any] | None = None  # the newest one on record, with what it did

    def document(self) -> dict[str, Any]:
        """Return the standing as JSON fields."""
        return {
            "revision": self.revision,
            "state": self.state,
            "sentence": self.sentence,
            "next_command": self.next_command,
            "next_stage": str(self.next_stage) if self.next_stage else None,
            "gate": self.gate,
            "hold": self.hold,
            "done": [str(stage) for stage in self.done],
            "facts": dict(self.facts),
            "decision": None if self.decision is None else dict(self.decision),
        }


def has_ended(standing: Standing) -> bool:
    """Say whether a search is judged or over, or waits for what no further run of it brings."""
    is_stopped = standing.state != OPEN and standing.hold not in RUN_LIFTS
    return is_stopped or Stage.FINAL in standing.done


def standing_of(chain: Chain) -> Standing:
    """Return where the revision stands: at its first failing gate, else at its first open stage."""
    return replace(_standing(chain), decision=told_decision(chain))


def told_decision(chain: Chain) -> dict[str, Any] | None:
    """Return the newest decision with when it was made and whether it counts, or None."""
    event = last_of(chain.events, Kind.DECISION_RECORDED)
    if event is None:
        return None
    told, about = event.body["slice_evidence"], chain.digests.get(Stage.SLICES)
    fault = chain.unsound_decision or chain.expired_acceptance
    if told != about and event.body["outcome"] == "accept":
        fault = fault or "It was about an earlier slice report."
    return {
        **{key: event.body[key] for key in ("outcome", "name", "role", "reason", "scope")},
        "expires_on": event.body["expires_on"],
        "who": who_words(event.body),
        "consequence": event.body["numbers_seen"].get("consequence", ""),
        "day": day_of(event.at_seconds).isoformat(),
        "event": event.sequence,
        "counts": fault is None,
        "why_not": fault,
    }


def decision_words(decision: Mapping[str, Any]) -> str:
    """Return a decision as `told_decision` has it, in one sentence."""
    words = f"{decision['outcome']} on {decision['day']} by {decision['who']}"
    if decision["outcome"] == "accept":
        words += f", for {decision['scope']}, until {decision['expires_on']}"
    return f"{words}. {decision['why_not']}" if decision["why_not"] else f"{words}."


def _standing(chain: Chain) -> Standing:
    done = tuple(stage for stage in Stage if stage in chain.evidence)
    stopped = _closed_search(chain, done) or _decided(chain, done) or _no_worker(chain, done)
    if stopped is not None:
        return stopped
    for stage in Stage:
        if stage == Stage.RERUN and stage not in chain.evidence:
            nobody = _no_winner(chain, done)
            if nobody is not None:
                return nobody
        if stage not in chain.evidence:
            return Standing(
                chain.revision,
                OPEN,
                f"{stage} is next.",
                f"parcel-assets run {chain.revision}",
                next_stage=stage,
                done=done,
            )
        for gate in GATES:
            verdict = gate.judge(chain) if gate.stage == stage else None
            if verdict is not None and not verdict.passed:
                return Standing(
                    chain.revision,
                    HOLD if verdict.hold else STOPPED,
                    verdict.sentence,
                    next_command(chain.revision, verdict.hold, chain.plan.approvers),
                    next_stage=stage,
                    gate=gate.name,
                    hold=verdict.hold,
                    done=done,
                    facts={
                        **verdict.facts,
                        "question": gate.question,
                        "remedy": gate.remedy_for(chain.revision),
                    },
                )
    packet = PacketBody.model_validate(chain.evidence[Stage.PACKET].body)
    return Standing(
        chain.revision,
        FINISHED,
        f"The packet is published: {packet.verdict}.",
        f"parcel-assets packet verify {chain.revision}",
        done=done,
        facts={"verdict": packet.verdict, "packet": packet.folder, "digest": packet.packet_digest},
    )


def next_command(
    revision: str, hold: str | None, approvers: Mapping[str, ApproverPlan] | None = None
) -> str:
    """Return the command that goes on from a hold, or from a stop where `hold` is None."""
    if hold == HOLD_SLICE_QUALITY:
        return decide_commands(revision, approvers or {})["accept"]
    if hold in {"rejected:performance", "hold:final-evidence"}:
        return f"parcel-assets packet show {revision}"
    if hold in RUN_LIFTS:
        return f"parcel-assets run {revision}"
    return f"parcel-assets status {revision}"


def _decided(chain: Chain, done: tuple[Stage, ...]) -> Standing | None:
    """Return where a decision to close, or to replace, has left the revision, or None."""
    if close_decision(chain.events) is not None:
        return Standing(
            chain.revision,
            HOLD,
            "The search was closed without a winner by a quality decision.",
            _record_command(chain),
            hold=HOLD_CLOSED,
            done=done,
        )
    if _replacement_waits(chain):
        first = frozen_selections(chain.events)[0]
        return Standing(
            chain.revision,
            OPEN,
            f"A person replaced {first.trial}; {first.behind[0]}, the next in the frozen ranking, "
            "is to be rerun and reported.",
            f"parcel-assets run {chain.revision}",
            next_stage=Stage.RERUN,
            done=done,
        )
    return None


def _record_command(chain: Chain) -> str:
    """Return the command that shows the record of a closed search, or that leaves it."""
    if Stage.PACKET in chain.evidence:
        return f"parcel-assets packet show {chain.revision}"
    return f"parcel-assets close {chain.revision} --reason TEXT"


def _replacement_waits(chain: Chain) -> bool:
    """Say whether a `replace` decision is not carried out yet."""
    replaced = replace_decision(chain.events)
    if replaced is None:
        return False
    report = chain.evidence.get(Stage.SLICES)
    rerun = chain.evidence.get(Stage.RERUN)
    return (
        rerun is None
        or rerun.inputs.get("decision") != replaced.digest
        or report is None
        or report.inputs.get(str(Stage.RERUN)) != chain.digests.get(Stage.RERUN)
    )


def _closed_search(chain: Chain, done: tuple[Stage, ...]) -> Standing | None:
    """Return the end of a search that a person closed for good, or None."""
    closed = last_of(chain.events, Kind.SEARCH_CLOSED)
    if closed is None:
        return None
    return Standing(
        chain.revision,
        HOLD,
        closed_words(str(closed.body["words"])),
        _record_command(chain),
        hold=HOLD_CLOSED,
        done=done,
        facts={"remedy": "Plan a new search revision to search again."},
    )


def _no_worker(chain: Chain, done: tuple[Stage, ...]) -> Standing | None:
    """Return the hold of a run that had no worker left, until one is admitted again, or None."""
    paused = fold_search(chain.plan, chain.events).paused
    if paused is None:
        return None
    return Standing(
        chain.revision,
        HOLD,
        f"No worker was left. {paused}",
        next_command(chain.revision, HOLD_NO_WORKER),
        next_stage=Stage.RERUN if Stage.SEARCH in done else Stage.SEARCH,
        hold=HOLD_NO_WORKER,
        done=done,
        facts={
            "remedy": "Nothing is lost: run again once workers can work, or end it for good with "
            f"`parcel-assets close {chain.revision} --reason TEXT`.",
        },
    )


def _no_winner(chain: Chain, done: tuple[Stage, ...]) -> Standing | None:
    """Return the hold of a search whose table has no trial that may be chosen, or None."""
    state = fold_search(chain.plan, chain.events)
    if rank_trials(table_rows(chain.plan, state)):
        return None
    return Standing(
        chain.revision,
        HOLD,
        f"Found {no_winner(failure_reasons(state.attempts.values()))}.",
        next_command(chain.revision, HOLD_INVALID_WINNER),
        next_stage=Stage.RERUN,
        hold=HOLD_INVALID_WINNER,
        done=done,
        facts={"remedy": "Mend what made them fail, then plan a new search revision."},
    )
