"""Where a search revision stands: what is done, what stops it, and what to do next.

Computed from the chain with the functions of the gate table, for the command line and pages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parcel_assets.core.attempts import failure_reasons
from parcel_assets.core.chain import Chain
from parcel_assets.core.disposition import HOLD_INVALID_WINNER, HOLD_SLICE_QUALITY
from parcel_assets.core.evidence import PacketBody
from parcel_assets.core.gate_rules import HOLD_CLOSED, closed_words
from parcel_assets.core.gates import GATES
from parcel_assets.core.ledger import Kind, last_of
from parcel_assets.core.search import fold_search
from parcel_assets.core.search_rules import HOLD_NO_WORKER
from parcel_assets.core.selection import no_winner, rank_trials
from parcel_assets.core.stage import Stage
from parcel_assets.core.table import table_rows

FINISHED, HOLD, STOPPED, OPEN = "finished", "hold", "stopped", "open"


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
        }


def standing_of(chain: Chain) -> Standing:
    """Return where the revision stands: at its first failing gate, else at its first open stage."""
    done = tuple(stage for stage in Stage if stage in chain.evidence)
    stopped = _closed_search(chain, done) or _no_worker(chain, done)
    if stopped is not None:
        return stopped
    if _closed(chain):
        return Standing(
            chain.revision,
            HOLD,
            "The search was closed without a winner by a quality decision.",
            f"parcel-assets status {chain.revision}",
            hold=HOLD_CLOSED,
            done=done,
        )
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
                    next_command(chain.revision, verdict.hold),
                    next_stage=stage,
                    gate=gate.name,
                    hold=verdict.hold,
                    done=done,
                    facts={**verdict.facts, "question": gate.question, "remedy": gate.remedy},
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


def next_command(revision: str, hold: str | None) -> str:
    """Return the command that goes on from a hold, or from a stop where `hold` is None."""
    if hold == HOLD_SLICE_QUALITY:
        return (
            f"parcel-assets decide {revision} --outcome accept --name NAME --role ROLE "
            "--reason TEXT --scope TEXT --expires YYYY-MM-DD"
        )
    if hold in {"rejected:performance", "hold:final-evidence"}:
        return f"parcel-assets packet show {revision}"
    if hold in {"hold:search-running", "hold:lineage", HOLD_NO_WORKER}:
        return f"parcel-assets run {revision}"
    return f"parcel-assets status {revision}"


def _closed(chain: Chain) -> bool:
    decisions = [event for event in chain.events if event.kind == Kind.DECISION_RECORDED]
    return bool(decisions) and decisions[-1].body["outcome"] == "close"


def _closed_search(chain: Chain, done: tuple[Stage, ...]) -> Standing | None:
    """Return the end of a search that a person closed for good, or None."""
    closed = last_of(chain.events, Kind.SEARCH_CLOSED)
    if closed is None:
        return None
    return Standing(
        chain.revision,
        HOLD,
        closed_words(str(closed.body["words"])),
        f"parcel-assets status {chain.revision}",
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
