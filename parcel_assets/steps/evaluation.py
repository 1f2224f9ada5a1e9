"""Open the holdout once, for the one frozen model, and keep its one result.

Two phases: receipt and opening go on record before the vault looks, the result after. A crash
between any two leaves a state from which the same request goes on, and no other. Looking is left to
the vault, judging to core.final.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from parcel_assets.core.chain import Chain
from parcel_assets.core.errors import HoldoutError
from parcel_assets.core.evidence import FinalBody
from parcel_assets.core.final import FinalRequest, require_same_request
from parcel_assets.core.final_record import recorded_final
from parcel_assets.core.ledger import Event, Kind, last_of
from parcel_assets.core.ports import Ports
from parcel_assets.core.search_charges import final_charge
from parcel_assets.core.selection import (
    accept_decision,
    freeze_event,
    require_open_revision,
)
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.steps.admission import StageSession, open_stage
from parcel_assets.steps.dispatch_repair import require_lineages
from parcel_assets.steps.timestamps import stamp_choice


def evaluate_final(revision: str, ports: Ports) -> Evidence:
    """Record the final result, opening the holdout only if this revision has never opened it.

    Raises AdmissionError where a gate before it does not pass, one whose acceptance has expired
    among them, HoldoutError where the holdout was opened for anything else, TimestampError where a
    timestamp that is due cannot be had: nothing is opened then.
    """
    events = ports.ledger.events(revision)
    require_open_revision(events, Stage.FINAL, revision)
    accepted = accept_decision(events, _newest_slice_report(events))
    further = {} if accepted is None else {"decision": accepted.digest}
    with open_stage(Stage.FINAL, revision, ports, further_inputs=further) as session:
        if session.existing is not None:
            return session.existing
        chain = session.chain
        opened = last_of(chain.events, Kind.HOLDOUT_OPENED)
        evaluated = last_of(chain.events, Kind.HOLDOUT_EVALUATED)
        if opened is None or evaluated is None:
            request = final_request(chain, ports)
            if opened is None:
                require_lineages(session)
                ports.vault.require_key(request.document())
                stamp_choice(session.lease, ports)
                _open(session, request)
            else:
                require_same_request(opened.body, request, f"final evaluation of {revision}")
                ports.vault.require_key(request.document())
            _look(session, request)
        recorded = recorded_final(ports.ledger.events(revision))
        return session.record(FinalBody(disposition=chain.disposition(), **recorded))


def final_request(chain: Chain, ports: Ports) -> FinalRequest:
    """Return all that the one look is a function of."""
    sealed = last_of(chain.events, Kind.HOLDOUT_SEALED)
    frozen = freeze_event(chain.events)
    split, rerun, metric = chain.split, chain.rerun, chain.plan.metric
    facts = (split.holdout_digest, split.holdout_commitment, split.holdout_ciphertext)
    if sealed is None or frozen is None or facts != _sealed_facts(sealed):
        raise HoldoutError(
            "no seal or no frozen selection of this holdout in the ledger",
            expected="both, as the split and the selection recorded them",
            where=f"final evaluation of {chain.revision}",
            remedy="Restore the ledger from a copy.",
        )
    holdout = split.parts["holdout"]
    return FinalRequest(
        revision=chain.revision,
        plan_digest=chain.plan_digest,
        freeze_event=frozen.digest,
        archive=chain.plan.snapshot.archive,
        holdout_digest=split.holdout_digest,
        commitment=split.holdout_commitment,
        ciphertext_digest=split.holdout_ciphertext,
        pixels=holdout.pixels,
        rows=holdout.rows,
        model=rerun.model,
        threshold=rerun.threshold,
        evaluator_digest=ports.vault.evaluator_digest,
        costs={
            "missed_damage": metric.missed_damage,
            "needless_review": metric.needless_review,
        },
        final=chain.plan.final,
        slices=dict(chain.plan.slices),
    )


def _open(session: StageSession, request: FinalRequest) -> None:
    """Leave the receipt, then append the opening; a receipt of this very request is resumed.

    The receipt comes first: a crash between the two leaves a holdout that only this request opens,
    while a ledger that is lost or new still meets the receipt.
    """
    chain, ports = session.chain, session.ports
    keys: Sequence[str] = chain.observed["holdout_keys"]
    reused = _reused(chain)
    identity = _identity(request) | ({"reused": reused} if reused else {})
    receipts: list[Mapping[str, Any]] = chain.observed["receipts"]
    own = [one for one in receipts if one["revision"] == chain.revision]
    others = sorted({str(one["revision"]) for one in receipts} - {chain.revision})
    if others and not chain.plan.final.allow_spent:
        raise _opened_by(", ".join(others), chain.revision)
    for receipt in own:
        require_same_request(receipt, request, f"receipt of {chain.revision}")
    if not own:
        receipt = {
            **identity,
            "revision": chain.revision,
            "at_seconds": ports.ledger.now(),
            "keys": list(keys),
        } | ({"reuses": others} if others else {})
        ports.vault.leave_receipt(request.holdout_digest, receipt)
    # a key that is spent already stays with the search that opened it first
    spent = chain.observed["holdout_opened_by"]
    fresh = [key for key in keys if spent.get(key, chain.revision) == chain.revision]
    ports.ledger.open_holdout(session.lease, identity, fresh)


def _reused(chain: Chain) -> dict[str, Any]:
    """Return what of this holdout earlier searches opened: shipments, keys and by whom, or {}."""
    spent = {
        one: by for one, by in chain.observed["spent_shipments"].items() if by != chain.revision
    }
    keys = [by for by in chain.observed["holdout_opened_by"].values() if by != chain.revision]
    by = set(keys) | {str(one["revision"]) for one in chain.observed["receipts"]}
    by.discard(chain.revision)
    return {"shipments": len(spent), "keys": len(keys), "by": sorted(by)} if keys else {}


def _look(session: StageSession, request: FinalRequest) -> None:
    """Let the vault look, or repeat what it saw, and append the result."""
    ports = session.ports
    ports.notify("progress", {"stage": str(Stage.FINAL), "done": 0, "total": 1})
    started = ports.ledger.now()
    answer = ports.vault.evaluate(request.document())
    took = ports.ledger.now() - started
    charged = final_charge(session.chain.plan, took)
    facts = {"charged_seconds": charged, "took_seconds": round(max(0.0, took), 6)}
    entry = (Kind.HOLDOUT_EVALUATED, {**answer, **facts})
    ports.ledger.append(session.lease, [entry])


def _identity(request: FinalRequest) -> dict[str, Any]:
    """Return what receipt and opening say: enough to hold every later request to this one."""
    return {
        "holdout_digest": request.holdout_digest,
        "commitment": request.commitment,
        "ciphertext_digest": request.ciphertext_digest,
        "model": request.model,
        "model_digest": request.model,
        "threshold": request.threshold,
        "evaluator_digest": request.evaluator_digest,
        "freeze_event": request.freeze_event,
        "request_digest": request.digest,
    }


def _newest_slice_report(events: Sequence[Event]) -> str | None:
    recorded = (
        event
        for event in reversed(events)
        if event.kind == Kind.STAGE_RECORDED and event.body["stage"] == str(Stage.SLICES)
    )
    event = next(recorded, None)
    return None if event is None else str(event.body["evidence"])


def _sealed_facts(sealed: Event) -> tuple[str, str, str]:
    body = sealed.body
    return body["holdout_digest"], body["commitment"], body["ciphertext_digest"]


def _opened_by(other: str, revision: str) -> HoldoutError:
    return HoldoutError(
        f"the receipt of an opening by {other}",
        expected="a holdout that nobody opened",
        where=f"final evaluation of {revision}",
        remedy="A holdout opens once. Plan a new search revision with an unspent holdout.",
        opened_by=other,
    )
