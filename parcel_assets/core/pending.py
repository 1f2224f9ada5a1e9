"""What waits for a person's decision: which slices, since when, who may decide, and how.

Computed from the chain with the gate table's own verdict; what may be decided at all is asked again
when somebody decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from parcel_assets.core.approval import decide_commands, may_decide
from parcel_assets.core.chain import Chain
from parcel_assets.core.disposition import HOLD_SLICE_QUALITY
from parcel_assets.core.ledger import Kind
from parcel_assets.core.selection import frozen_selections, replace_decision
from parcel_assets.core.stage import Stage
from parcel_assets.core.standing import standing_of


@dataclass(frozen=True, slots=True)
class Pending:
    """One held search revision, as the person reads it who must decide."""

    revision: str
    hold: str
    since: str  # ISO moment, UTC, at which the held report was recorded
    candidate: str
    is_slice_informed: bool  # it took the place of a held one after a person had seen slices
    slices: tuple[str, ...]  # one sentence each
    notes: tuple[str, ...]  # such as an acceptance that has run out
    may_decide: tuple[str, ...]
    commands: Mapping[str, str]  # outcome -> the command, its blanks in capitals
    slice_evidence: str
    if_accepted: str = ""  # what it means in missed parcels; measured by the step

    def document(self) -> dict[str, Any]:
        """Return it as JSON fields."""
        return {
            "revision": self.revision,
            "hold": self.hold,
            "since": self.since,
            "candidate": self.candidate,
            "slice_informed": self.is_slice_informed,
            "slices": list(self.slices),
            "if_accepted": self.if_accepted,
            "notes": list(self.notes),
            "may_decide": list(self.may_decide),
            "commands": dict(self.commands),
            "slice_evidence": self.slice_evidence,
        }


def pending_of(chain: Chain) -> Pending | None:
    """Return what the revision asks of a person, or None where nothing waits for a decision."""
    standing = standing_of(chain)
    if standing.hold != HOLD_SLICE_QUALITY or standing.next_stage != Stage.SLICES:
        return None
    replaced = replace_decision(chain.events)
    report = chain.digests[Stage.SLICES]
    if replaced is not None and replaced.body["slice_evidence"] == report:
        return None  # decided; the next candidate is to be rerun
    recorded = next(
        event
        for event in reversed(chain.events)
        if event.kind == Kind.STAGE_RECORDED and event.body["evidence"] == report
    )
    held = [
        str(row["sentence"])
        for row in chain.slices.slices
        if row["role"] == "protected" and not row["passed"]
    ]
    notes = [one for one in (chain.unsound_decision, chain.expired_acceptance) if one is not None]
    return Pending(
        revision=chain.revision,
        hold=HOLD_SLICE_QUALITY,
        since=datetime.fromtimestamp(recorded.at_seconds, UTC).isoformat(timespec="seconds"),
        candidate=chain.rerun.selected_trial,
        is_slice_informed=chain.rerun.slice_informed,
        slices=tuple(held),
        notes=tuple(notes),
        may_decide=may_decide(chain.plan.approvers),
        commands=decide_commands(
            chain.revision,
            chain.plan.approvers,
            is_replaceable=replaced is None and bool(frozen_selections(chain.events)[0].behind),
        ),
        slice_evidence=report,
    )
