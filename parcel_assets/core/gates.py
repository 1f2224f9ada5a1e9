"""The gate table: one pure rule per row, with two callers.

The next stage itself evaluates the gates before it and refuses (steps.admission); an asset check
shows the same verdict. A gate sees the chain of evidence and nothing else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from parcel_assets.core.disposition import parcel_search_disposition
from parcel_assets.core.evidence import (
    FinalBody,
    RerunBody,
    SearchBody,
    SliceBody,
    SnapshotBody,
    SplitBody,
    TableBody,
)
from parcel_assets.core.ledger import Event, Kind, last_of
from parcel_assets.core.plan import Plan
from parcel_assets.core.search import fold_search
from parcel_assets.core.stage import Evidence, Stage
from parcel_assets.core.table import table_digest, table_rows
from parcel_assets.core.trial import Decision

READY = "evaluate:final-holdout"


@dataclass(frozen=True, slots=True)
class Chain:
    """All that a gate may know: plan, events, recorded evidence, and what the caller just measured."""

    revision: str
    plan: Plan
    plan_digest: str
    events: tuple[Event, ...]
    evidence: Mapping[Stage, Evidence]
    digests: Mapping[Stage, str]
    observed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def snapshot(self) -> SnapshotBody:
        """The body of `pinned_snapshot`."""
        return SnapshotBody.model_validate(self.evidence[Stage.SNAPSHOT].body)

    @property
    def split(self) -> SplitBody:
        """The body of `grouped_shipment_split`."""
        return SplitBody.model_validate(self.evidence[Stage.SPLIT].body)

    @property
    def search(self) -> SearchBody:
        """The body of `trial_batches`."""
        return SearchBody.model_validate(self.evidence[Stage.SEARCH].body)

    @property
    def table(self) -> TableBody:
        """The body of `validated_trial_table`."""
        return TableBody.model_validate(self.evidence[Stage.TABLE].body)

    @property
    def rerun(self) -> RerunBody:
        """The body of `selected_rerun`."""
        return RerunBody.model_validate(self.evidence[Stage.RERUN].body)

    @property
    def slices(self) -> SliceBody:
        """The body of `slice_report`."""
        return SliceBody.model_validate(self.evidence[Stage.SLICES].body)

    @property
    def final(self) -> FinalBody:
        """The body of `final_evaluation`."""
        return FinalBody.model_validate(self.evidence[Stage.FINAL].body)

    @property
    def decision(self) -> Decision | None:
        """The newest quality decision about the slice report on record, or None."""
        event = last_of(self.events, Kind.DECISION_RECORDED)
        if event is None:
            return None
        decision = Decision.model_validate(dict(event.body))
        return decision if decision.slice_evidence == self.digests.get(Stage.SLICES) else None

    def disposition(self, *, decided: bool = True) -> str:
        """Return parcel_search_disposition for the selected trial, decision applied if `decided`."""
        waived = decided and self.decision is not None and self.decision.outcome == "accept"
        rows = table_rows(self.plan, fold_search(self.plan, self.events))
        selected = self.rerun.selected_trial
        trials: list[dict[str, Any]] = [
            {"trial_id": row.trial_id, "state": str(row.state), "lineage_ok": row.lineage_ok}
            | (
                {"slice_gate_passed": self.slices.protected_passed or waived}
                if row.trial_id == selected
                else {}
            )
            for row in rows
        ]
        return parcel_search_disposition(trials, self.plan.search.budget_trials, selected)


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """A gate's outcome in words, with the facts a page shows; `hold` names the hold if it is one."""

    passed: bool
    sentence: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    hold: str | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """One row of the gate table. `stops_packet` is False for the gate that only the registry obeys."""

    name: str
    stage: Stage
    question: str
    judge: Callable[[Chain], GateVerdict]
    remedy: str
    stops_packet: bool = True

    def stops(self, stage: Stage) -> bool:
        """Say whether a failure keeps the given later stage from running."""
        if self.stage not in stage.earlier:
            return False
        return self.stops_packet or stage == Stage.REGISTRY


def _pin(chain: Chain) -> GateVerdict:
    found, pinned = chain.snapshot.snapshot_digest, chain.plan.snapshot.digest
    return GateVerdict(
        found == pinned,
        f"The archive has digest {found[:8]}; the plan pins {pinned[:8] or 'nothing yet'}.",
        {"found": found, "expected": pinned},
    )


def _images_decode(chain: Chain) -> GateVerdict:
    body = chain.snapshot
    bad = [row for row in body.bad_rows if row.column in {"photo", "pixels"}]
    allowed = chain.plan.snapshot.bad_rows == "leave_out"
    return GateVerdict(
        body.photos > 0 and (not bad or allowed),
        f"{body.photos} photos decoded; {len(bad)} left out.",
        {"photos": body.photos, "left_out": len(bad)},
    )


def _labels_known(chain: Chain) -> GateVerdict:
    body = chain.snapshot
    intact = body.photos - body.damaged_photos
    return GateVerdict(
        body.damaged_photos > 0 and intact > 0,
        f"{body.damaged_photos} damaged and {intact} intact photos.",
        {"damaged_photos": body.damaged_photos, "intact_photos": intact},
    )


def _no_contradictions(chain: Chain) -> GateVerdict:
    rows = [row for row in chain.snapshot.bad_rows if row.column == "duplicate"]
    allowed = chain.plan.snapshot.bad_rows == "leave_out"
    return GateVerdict(
        not rows or allowed,
        f"{len(rows)} photos whose identical content carries opposite labels.",
        {"contradictory": len(rows)},
    )


def _components_whole(chain: Chain) -> GateVerdict:
    parts = chain.observed["assignment"]["parts"]
    seen: dict[str, str] = {}
    torn = []
    for part, shipments in parts.items():
        for shipment in shipments:
            if seen.setdefault(shipment, part) != part:
                torn.append(shipment)
    for component in chain.observed["assignment"]["components"]:
        if len({seen.get(shipment) for shipment in component}) > 1:
            torn.extend(component)
    return GateVerdict(
        not torn,
        f"{len(torn)} shipments lie in two parts or apart from their component.",
        {"torn": sorted(torn)[:20]},
    )


def _no_duplicate_across(chain: Chain) -> GateVerdict:
    count = chain.split.duplicate_pixels_across_parts
    return GateVerdict(count == 0, f"{count} photos have an identical twin in another part.")


def _minimum_support(chain: Chain) -> GateVerdict:
    short = [row for row in chain.split.support if not row["met"]]
    words = "; ".join(str(row["sentence"]) for row in short)
    return GateVerdict(
        not short,
        f"Every minimum of the plan is met ({len(chain.split.support)})." if not short else words,
        {"short": short},
    )


def _holdout_unspent(chain: Chain) -> GateVerdict:
    openings = {
        key: revision
        for key, revision in chain.observed["holdout_opened_by"].items()
        if revision != chain.revision
    }
    spent_by = sorted(set(openings.values()))
    return GateVerdict(
        not openings,
        "No shipment of the holdout was ever opened."
        if not openings
        else f"Parts of this holdout were opened by {', '.join(spent_by)}.",
        {"spent_by": spent_by, "spent_keys": len(openings)},
    )


def _budget_exact(chain: Chain) -> GateVerdict:
    state = fold_search(chain.plan, chain.events)
    budget = chain.plan.search.budget_trials
    return GateVerdict(
        state.ended is not None and state.started + state.unstarted == budget,
        f"{state.started} started + {state.unstarted} unstarted of {budget}; "
        f"ended: {state.ended or 'not yet'}.",
        {"started": state.started, "unstarted": state.unstarted, "budget": budget},
        hold=None if state.ended else "hold:search-running",
    )


def _cap_kept(chain: Chain) -> GateVerdict:
    charged = sum(fold_search(chain.plan, chain.events).charged_seconds_by_purpose.values())
    cap = chain.plan.cap_seconds
    return GateVerdict(
        charged <= cap,
        f"{charged / 3600:.3f} of {cap / 3600:.3f} accelerator-hours charged.",
        {"charged_seconds": charged, "cap_seconds": cap},
    )


def _lineage_verified(chain: Chain) -> GateVerdict:
    faults = fold_search(chain.plan, chain.events).lineage_faults
    return GateVerdict(
        not faults,
        "Every attempt's lineage is verified." if not faults else "; ".join(faults[:5]),
        {"faults": list(faults)[:20]},
        hold="hold:lineage" if faults else None,
    )


def _nothing_open(chain: Chain) -> GateVerdict:
    state = fold_search(chain.plan, chain.events)
    searching = [one for one in state.open_attempts if one.purpose == "search"]
    return GateVerdict(not searching, f"{len(searching)} trial attempts still open.")


def _expectations(chain: Chain) -> GateVerdict:
    results = chain.table.expectations
    failed = [row for row in results if not row["passed"]]
    return GateVerdict(
        bool(results) and not failed,
        f"{len(results) - len(failed)} of {len(results)} expectations met."
        if not failed
        else "; ".join(f"{row['name']}: {row['sentence']}" for row in failed),
        {"failed": [row["name"] for row in failed]},
    )


def _slots_accounted(chain: Chain) -> GateVerdict:
    counts, budget = chain.table.trials_by_state, chain.plan.search.budget_trials
    total = sum(counts.values())
    listed = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    return GateVerdict(total == budget, f"{total} of {budget} slots: {listed}.", {"counts": counts})


def _ledger_folds(chain: Chain) -> GateVerdict:
    digest = table_digest(table_rows(chain.plan, fold_search(chain.plan, chain.events)))
    recorded = chain.table.table_digest
    return GateVerdict(
        digest == recorded,
        f"The ledger folds to table {digest[:8]}; the frozen table is {recorded[:8]}.",
        {"found": digest, "expected": recorded},
    )


def _reproduced(chain: Chain) -> GateVerdict:
    body = chain.rerun
    limit = chain.plan.rerun.maximum_score_difference
    return GateVerdict(
        body.largest_score_difference <= limit,
        f"Own-seed rerun: largest score difference {body.largest_score_difference:.3g}, "
        f"allowed {limit:.3g}.",
        {"largest_score_difference": body.largest_score_difference, "allowed": limit},
        hold=None if body.largest_score_difference <= limit else "hold:rerun",
    )


def _stable(chain: Chain) -> GateVerdict:
    judgement = chain.rerun.judgement
    unstable = judgement.get("unstable")
    return GateVerdict(
        unstable is False,
        str(judgement.get("stability_sentence", "The spread over seeds is unknown.")),
        dict(judgement),
        hold=None if unstable is False else "hold:rerun",
    )


def _within_tolerance(chain: Chain) -> GateVerdict:
    judgement = chain.rerun.judgement
    good = judgement.get("within_tolerance") is True and judgement.get("not_reproduced") is False
    return GateVerdict(
        good,
        str(judgement.get("tolerance_sentence", "The rerun tolerance is unknown.")),
        dict(judgement),
        hold=None if good else "hold:rerun",
    )


def _protected_slices(chain: Chain) -> GateVerdict:
    body, decision = chain.slices, chain.decision
    held = [str(r["sentence"]) for r in body.slices if r["role"] == "protected" and not r["passed"]]
    accepted = decision is not None and decision.outcome == "accept"
    ready = chain.disposition() == READY
    words = "Every protected slice passes." if not held else " ".join(held)
    if held and accepted and decision is not None:
        words += f" Accepted by {decision.name} ({decision.role}) for {decision.scope}."
    return GateVerdict(
        ready,
        words,
        {"disposition": chain.disposition(), "decision": decision.outcome if decision else "none"},
        hold=None if ready else chain.disposition(),
    )


def _holdout_once(chain: Chain) -> GateVerdict:
    openings = [event for event in chain.events if event.kind == Kind.HOLDOUT_OPENED]
    receipts = chain.observed["receipts"]
    good = len(openings) == 1 and len(receipts) == 1
    good = good and receipts[0].get("opened_event") in {None, openings[0].digest}
    return GateVerdict(
        good,
        f"{len(openings)} opening in the ledger, {len(receipts)} receipt beside the sealed labels.",
        {"openings": len(openings), "receipts": len(receipts)},
    )


def _model_identity(chain: Chain) -> GateVerdict:
    frozen, judged = chain.rerun, chain.final
    same = (frozen.model, frozen.threshold) == (judged.model, judged.threshold)
    return GateVerdict(
        same,
        f"Evaluated model {judged.model[:8]} at {judged.threshold:g}; "
        f"frozen model {frozen.model[:8]} at {frozen.threshold:g}.",
    )


def _target(chain: Chain) -> GateVerdict:
    body = chain.final
    holds = {"FAIL": "rejected:performance", "INSUFFICIENT": "hold:final-evidence"}
    return GateVerdict(
        body.outcome == "PASS", body.sentence, dict(body.result), hold=holds.get(body.outcome)
    )


def _packet_digests(chain: Chain) -> GateVerdict:
    faults = chain.observed["packet"]["faults"]
    return GateVerdict(
        not faults,
        "Every file of the packet has its digest." if not faults else "; ".join(faults[:5]),
        {"faults": faults[:20]},
    )


def _packet_signature(chain: Chain) -> GateVerdict:
    packet = chain.observed["packet"]
    return GateVerdict(bool(packet["signature_ok"]), str(packet["signature_sentence"]))


_PIN_AGAIN = "Restore the pinned archive, or pin the new one under a new search revision."
_MEND_ARCHIVE = "Mend the rows listed in the snapshot's evidence, then pin again."
_RESPLIT = "Materialize grouped_shipment_split again; a torn register needs a person."
_RESUME = "Run the search again: it resumes where it stopped."

GATES: tuple[Gate, ...] = (
    Gate(
        "digest_equals_pin",
        Stage.SNAPSHOT,
        "Is this the archive that the plan pins?",
        _pin,
        _PIN_AGAIN,
    ),
    Gate(
        "images_decode", Stage.SNAPSHOT, "Does every image decode?", _images_decode, _MEND_ARCHIVE
    ),
    Gate("labels_known", Stage.SNAPSHOT, "Are both labels present?", _labels_known, _MEND_ARCHIVE),
    Gate(
        "no_contradictory_duplicates",
        Stage.SNAPSHOT,
        "Do identical photos carry one label?",
        _no_contradictions,
        _MEND_ARCHIVE,
    ),
    Gate(
        "no_component_in_two_parts",
        Stage.SPLIT,
        "Does every shipment component lie in one part?",
        _components_whole,
        _RESPLIT,
    ),
    Gate(
        "no_duplicate_across_parts",
        Stage.SPLIT,
        "Is no photo in two parts?",
        _no_duplicate_across,
        _RESPLIT,
    ),
    Gate(
        "minimum_support",
        Stage.SPLIT,
        "Does every part hold the plan's minimum?",
        _minimum_support,
        "Pin a larger archive, or plan with a smaller minimum under a new search revision.",
    ),
    Gate(
        "holdout_unspent",
        Stage.SPLIT,
        "Was no shipment of the holdout ever opened?",
        _holdout_unspent,
        "A spent holdout is no holdout. Add new shipments and plan a new search revision.",
    ),
    Gate("budget_exact", Stage.SEARCH, "Are all slots accounted for?", _budget_exact, _RESUME),
    Gate("cap_kept", Stage.SEARCH, "Is the accelerator cap kept?", _cap_kept, "Ask the operator."),
    Gate(
        "lineage_verified",
        Stage.SEARCH,
        "Is every attempt's lineage verified?",
        _lineage_verified,
        "Look at the quarantined attempts: `parcel-assets status`.",
    ),
    Gate("no_lease_open", Stage.SEARCH, "Is no attempt still open?", _nothing_open, _RESUME),
    Gate(
        "expectations",
        Stage.TABLE,
        "Does the frozen table meet every expectation?",
        _expectations,
        "Read the named expectation on the check's page; the table cannot be edited.",
    ),
    Gate("slots_accounted", Stage.TABLE, "Has every slot a row?", _slots_accounted, _RESUME),
    Gate(
        "ledger_folds_to_table",
        Stage.TABLE,
        "Does the ledger fold to this table?",
        _ledger_folds,
        "Materialize validated_trial_table again.",
    ),
    Gate(
        "reproduced",
        Stage.RERUN,
        "Does the own-seed rerun give the search's scores?",
        _reproduced,
        "The winner cannot be rebuilt from its record. Find out why before anything else.",
    ),
    Gate(
        "stable_over_seeds",
        Stage.RERUN,
        "Is training stable over seeds?",
        _stable,
        "Plan longer training or a calmer space under a new search revision.",
    ),
    Gate(
        "within_tolerance",
        Stage.RERUN,
        "Does the rerun agree within tolerance?",
        _within_tolerance,
        "The search score was luck. Plan a new search revision.",
    ),
    Gate(
        "protected_slices",
        Stage.SLICES,
        "Does every protected slice pass, or has a person decided?",
        _protected_slices,
        "Decide: materialize quality_decision, or `parcel-assets decide`.",
    ),
    Gate(
        "holdout_once",
        Stage.FINAL,
        "Was the holdout opened exactly once?",
        _holdout_once,
        "A second look cannot be undone; plan a new search revision with an unspent holdout.",
    ),
    Gate(
        "evaluated_model_identity",
        Stage.FINAL,
        "Was the frozen model evaluated?",
        _model_identity,
        "Restore the frozen model.",
    ),
    Gate(
        "target",
        Stage.FINAL,
        "Does the final result meet the plan's target?",
        _target,
        "The packet tells the result; the registry refuses the model.",
        stops_packet=False,
    ),
    Gate(
        "packet_digests",
        Stage.PACKET,
        "Has every file its digest?",
        _packet_digests,
        "Delete the damaged packet folder and materialize release_packet again.",
    ),
    Gate(
        "packet_signature",
        Stage.PACKET,
        "Is the manifest signed by the release key?",
        _packet_signature,
        "Delete the damaged packet folder and materialize release_packet again.",
    ),
)


def gates_of(stage: Stage) -> tuple[Gate, ...]:
    """Return the gates that judge a stage's evidence, in table order."""
    return tuple(gate for gate in GATES if gate.stage == stage)
