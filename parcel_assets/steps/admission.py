"""Admission: a stage itself evaluates every gate before it and refuses (a check only shows).

Every stage opens through `open_stage`: it takes the revision's lease, re-reads the ledger, verifies
every document it relies on, judges the gates before it, and records the new evidence.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from parcel_assets.core.anchor import Anchor, anchors_of, check_anchors
from parcel_assets.core.approval import approval_fault
from parcel_assets.core.decision_rules import recorded_fault
from parcel_assets.core.errors import AdmissionError, LedgerError
from parcel_assets.core.evidence import PacketBody, SplitBody
from parcel_assets.core.gates import GATES, Chain, Gate, GateVerdict
from parcel_assets.core.holdout import first_openers, holdout_keys, spent_shipments
from parcel_assets.core.ledger import (
    Event,
    Kind,
    Lease,
    evidence_digests,
    last_of,
    verify_chain,
)
from parcel_assets.core.plan import Plan
from parcel_assets.core.plan_reader import plan_from_fields
from parcel_assets.core.ports import Ports
from parcel_assets.core.selection import day_of
from parcel_assets.core.stage import Evidence, LedgerHead, Record, Stage
from parcel_assets.core.trial import Decision


@dataclass(slots=True)
class StageSession:
    """A stage at work: its lease, its admitted chain, and the evidence it may already have left."""

    stage: Stage
    ports: Ports
    lease: Lease
    chain: Chain
    inputs: dict[str, str]
    existing: Evidence | None = field(default=None)

    def record(self, body: Record) -> Evidence:
        """Write the evidence, append it to the ledger, leave its anchor, and return it."""
        ledger, revision = self.ports.ledger, self.chain.revision
        newest = (self.chain.events + ledger.events(revision, self.chain.events[-1].sequence))[-1]
        evidence = Evidence(
            stage=self.stage,
            revision=self.chain.revision,
            plan_digest=self.chain.plan_digest,
            inputs=self.inputs,
            body=body.document(),
            head=LedgerHead(sequence=newest.sequence, digest=newest.digest),
        )
        digest = self.ports.store.put_document(evidence.document())
        entry = {"stage": str(self.stage), "evidence": digest, "inputs": self.inputs}
        _leave_anchors(ledger.append(self.lease, [(Kind.STAGE_RECORDED, entry)]), self.ports)
        return evidence


def _leave_anchors(events: Sequence[Event], ports: Ports) -> None:
    for anchor in anchors_of(events):
        ports.store.leave_anchor(anchor.revision, anchor.document())


@contextmanager
def leased(ports: Ports, revision: str, purpose: str) -> Iterator[Lease]:
    """Hold the revision's lease for the length of a block."""
    lease = ports.ledger.acquire(revision, purpose)
    try:
        yield lease
    finally:
        ports.ledger.release(lease)


@contextmanager
def open_stage(
    stage: Stage,
    revision: str,
    ports: Ports,
    *,
    further_inputs: Mapping[str, str] | None = None,
    ended: Callable[[Chain], bool] | None = None,
) -> Iterator[StageSession]:
    """Admit a stage and hold its lease; `existing` is set where equal inputs already gave evidence.

    Where `ended` says that the chain ends early, what was recorded so far is all that is asked for.
    Raises AdmissionError with the gate's own words where a gate before the stage does not pass.
    """
    with leased(ports, revision, str(stage)) as lease:
        chain = load_chain(revision, ports)
        if ended is not None and ended(chain):
            inputs = {str(one): chain.digests[one] for one in stage.earlier if one in chain.digests}
        else:
            admit(stage, chain)
            inputs = {str(one): chain.digests[one] for one in stage.earlier}
        # a process that died between its record and its anchor left this to us
        _leave_anchors(chain.events, ports)
        inputs |= dict(further_inputs or {})
        session = StageSession(stage, ports, lease, chain, inputs)
        recorded = chain.evidence.get(stage)
        if recorded is not None and recorded.inputs == inputs:
            session.existing = recorded
        yield session


def load_plan(revision: str, ports: Ports) -> tuple[Plan, str]:
    """Return the frozen plan and its digest; raises LedgerError where none is frozen."""
    events = ports.ledger.events(revision)
    frozen = last_of(events, Kind.PLAN_FROZEN)
    if frozen is None:
        raise LedgerError(
            f"no plan under search revision {revision!r}",
            expected="a registered plan",
            where="ledger",
            remedy=f"Pick one of: {', '.join(ports.ledger.revisions()) or 'none yet'}. Or register "
            "it, naming its plan's file: `parcel-assets plan register PLAN`.",
        )
    plan = plan_from_fields(frozen.body["plan"], where=f"frozen plan of {revision}")
    return plan, str(frozen.body["plan_digest"])


def load_chain(revision: str, ports: Ports) -> Chain:
    """Return the verified chain of a revision, with what gates need measured now."""
    anchors = read_anchors(revision, ports)
    events = ports.ledger.events(revision)
    verify_chain(events)
    check_anchors(revision, events, anchors)
    plan, digest = load_plan(revision, ports)
    digests = {Stage(stage): one for stage, one in evidence_digests(events).items()}
    evidence = {
        stage: Evidence.model_validate(ports.store.get_document(one))
        for stage, one in digests.items()
    }
    chain = Chain(revision, plan, digest, events, evidence, digests)
    return replace(chain, observed=_observe(chain, ports))


def read_anchors(revision: str, ports: Ports) -> tuple[Anchor, ...]:
    """Return the anchors in the store, for a chain that is read after them.

    An anchor is younger than its event: in the other order, a stage that is recorded between the
    two would look like an event that was dropped.
    """
    return tuple(Anchor.model_validate(one) for one in ports.store.anchors(revision))


def _observe(chain: Chain, ports: Ports) -> dict[str, Any]:
    """Measure, now, what a gate must not take from a record."""
    observed: dict[str, Any] = {
        "today": day_of(ports.ledger.now()).isoformat(),
        "approvals": _approvals(chain, ports),
    }
    if Stage.SPLIT in chain.evidence:
        split = SplitBody.model_validate(chain.evidence[Stage.SPLIT].body)
        assignment = ports.store.get_document(split.assignment_document)
        rows = ports.store.get_document(split.parts["holdout"].rows)
        keys = holdout_keys(chain.plan.snapshot.archive, rows)
        receipts = ports.vault.receipts_over(keys)
        openings = first_openers(keys, ports.ledger.opened_by(keys), receipts)
        observed |= {
            "assignment": assignment,
            "holdout_keys": keys,
            "holdout_opened_by": {key: openings[key] for key in keys if key in openings},
            "spent_shipments": spent_shipments(chain.plan.snapshot.archive, rows, openings),
            "receipts": receipts,
        }
    if Stage.PACKET in chain.evidence:
        packet = PacketBody.model_validate(chain.evidence[Stage.PACKET].body)
        folder = ports.packets / Path(packet.folder)
        observed["packet"] = ports.verify_packet(
            folder, packet.packet_digest, ports.signer.public_key()
        )
    return observed


def _approvals(chain: Chain, ports: Ports) -> dict[str, str | None]:
    """Return, by decision's event, why the plan's approvers did not make it, or None.

    An event that is no decision is left to the chain, which says so.
    """
    found: dict[str, str | None] = {}
    after = ""
    for event in chain.events:
        if event.kind != Kind.DECISION_RECORDED:
            continue
        if recorded_fault(event.body) is None:
            fault = approval_fault(
                chain.plan.approvers,
                chain.revision,
                chain.plan_digest,
                Decision.model_validate(dict(event.body)),
                ports.signature_holds,
                after=after,
            )
            found[event.digest] = None if fault is None else f"{fault[0]}; expected {fault[1]}"
        after = event.digest
    return found


def require_sound_decisions(stage: Stage, chain: Chain) -> None:
    """Raise AdmissionError where a decision that counts says too little or is nobody's."""
    fault = chain.unsound_decision
    if fault is not None:
        raise AdmissionError(
            fault,
            expected="decisions as `parcel-assets decide` records them",
            where=f"{stage} of {chain.revision}",
            remedy="Somebody wrote it into the ledger by another way. Find out who, and let one "
            "who may decide do so.",
            gate="protected_slices",
            gate_stage=str(Stage.SLICES),
            hold=None,
        )


def admit(stage: Stage, chain: Chain) -> None:
    """Raise AdmissionError at the first earlier stage absent, outdated or stopped by a gate."""
    for earlier in stage.earlier:
        _require_current(stage, earlier, chain)
        for gate in GATES:
            if gate.stage == earlier and gate.stops(stage):
                verdict = judge(gate, chain)
                if not verdict.passed:
                    raise refusal(stage, gate, verdict, chain)


def judge(gate: Gate, chain: Chain) -> GateVerdict:
    """Return a gate's verdict; evidence that is absent is a failure in words, not a crash."""
    if gate.stage not in chain.evidence:
        return GateVerdict(False, f"{gate.stage} has left no evidence for {chain.revision}.")
    return gate.judge(chain)


def refusal(stage: Stage, gate: Gate, verdict: GateVerdict, chain: Chain) -> AdmissionError:
    """Return the error that keeps a stage from running because of one gate."""
    return AdmissionError(
        f"gate {gate.name} not passed: {verdict.sentence}",
        expected=f'yes to "{gate.question}"',
        where=f"{stage} of {chain.revision}",
        remedy=gate.remedy_for(chain.revision),
        gate=gate.name,
        gate_stage=str(gate.stage),
        hold=verdict.hold,
        sentence=verdict.sentence,
    )


def _require_current(stage: Stage, earlier: Stage, chain: Chain) -> None:
    """Refuse evidence that is absent, of another plan, or made from evidence since replaced."""
    evidence = chain.evidence.get(earlier)
    outdated = evidence is not None and (
        evidence.plan_digest != chain.plan_digest
        or evidence.stage != earlier
        or any(evidence.inputs.get(str(one)) != chain.digests.get(one) for one in earlier.earlier)
    )
    if evidence is None or outdated:
        raise AdmissionError(
            f"{'outdated' if outdated else 'no'} evidence of {earlier}",
            expected=f"{earlier} materialized for this search revision",
            where=f"{stage} of {chain.revision}",
            remedy=f"Materialize {earlier} for {chain.revision} first.",
            gate="evidence",
            gate_stage=str(earlier),
            hold=None,
        )
