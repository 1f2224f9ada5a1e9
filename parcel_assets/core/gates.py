"""The gate table: one pure rule per row, with two callers.

The next stage itself evaluates the gates before it and refuses (steps.admission); an asset check
shows the same verdict. A gate sees the chain of evidence and nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass

from parcel_assets.core import gate_rules as rules
from parcel_assets.core.chain import Chain
from parcel_assets.core.gate_rules import GateVerdict
from parcel_assets.core.stage import Stage

__all__ = ["GATES", "Chain", "Gate", "GateVerdict", "gates_of"]


@dataclass(frozen=True, slots=True)
class Gate:
    """One row of the gate table; `stops_packet` is False where only the registry obeys."""

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

    def remedy_for(self, revision: str) -> str:
        """Return what to do about one search, its commands ready to be pasted."""
        return self.remedy.replace("REVISION", revision)


_PIN_AGAIN = "Restore the pinned archive, or pin the new one under a new search revision."
_MEND_ARCHIVE = "Mend the rows listed in the snapshot's evidence, then pin again."
_RESPLIT = "Materialize grouped_shipment_split again; a torn register needs a person."
_RESUME = "Run the search again: it resumes where it stopped."

GATES: tuple[Gate, ...] = (
    Gate(
        "digest_equals_pin",
        Stage.SNAPSHOT,
        "Is this the archive that the plan pins?",
        rules.pin,
        _PIN_AGAIN,
    ),
    Gate(
        "images_decode",
        Stage.SNAPSHOT,
        "Does every image decode?",
        rules.images_decode,
        _MEND_ARCHIVE,
    ),
    Gate(
        "labels_known",
        Stage.SNAPSHOT,
        "Are both labels present?",
        rules.labels_known,
        "Check the plan's label map and the archive: there is nothing to learn from one label. "
        "Then pin again under a new search revision.",
    ),
    Gate(
        "no_contradictory_duplicates",
        Stage.SNAPSHOT,
        "Do identical photos carry one label?",
        rules.no_contradictions,
        _MEND_ARCHIVE,
    ),
    Gate(
        "no_component_in_two_parts",
        Stage.SPLIT,
        "Does every shipment component lie in one part?",
        rules.components_whole,
        _RESPLIT,
    ),
    Gate(
        "no_duplicate_across_parts",
        Stage.SPLIT,
        "Is no photo in two parts?",
        rules.no_duplicate_across,
        _RESPLIT,
    ),
    Gate(
        "minimum_support",
        Stage.SPLIT,
        "Does every part hold the plan's minimum?",
        rules.minimum_support,
        "Pin a larger archive, or plan with a smaller minimum under a new search revision.",
    ),
    Gate(
        "holdout_unspent",
        Stage.SPLIT,
        "Was no shipment of the holdout ever opened?",
        rules.holdout_unspent,
        "A spent holdout is no holdout. Plan a new search revision with a tranche of its own "
        "([split] holdout_tranches) on a grown archive; or with [final] allow_spent, and the "
        "packet says how often its shipments were used.",
    ),
    Gate("budget_exact", Stage.SEARCH, "Are all slots accounted for?", rules.budget_exact, _RESUME),
    Gate(
        "cap_kept",
        Stage.SEARCH,
        "Is the accelerator cap kept?",
        rules.cap_kept,
        "Ask the operator.",
    ),
    Gate(
        "lineage_verified",
        Stage.SEARCH,
        "Is every attempt's lineage verified?",
        rules.lineage_verified,
        "Run again: trials in doubt run again, and every decision is replayed without them. Where "
        "that changes one, a person ends the search: `parcel-assets close REVISION --reason TEXT`.",
    ),
    Gate("no_lease_open", Stage.SEARCH, "Is no attempt still open?", rules.nothing_open, _RESUME),
    Gate(
        "expectations",
        Stage.TABLE,
        "Does the frozen table meet every expectation?",
        rules.expectations,
        "Read the named expectation on the check's page; the table cannot be edited.",
    ),
    Gate("slots_accounted", Stage.TABLE, "Has every slot a row?", rules.slots_accounted, _RESUME),
    Gate(
        "ledger_folds_to_table",
        Stage.TABLE,
        "Does the ledger fold to this table?",
        rules.ledger_folds,
        "Materialize validated_trial_table again.",
    ),
    Gate(
        "reproduced",
        Stage.RERUN,
        "Does the own-seed rerun give the search's scores?",
        rules.reproduced,
        "The winner cannot be rebuilt from its record. Find out why before anything else.",
    ),
    Gate(
        "stable_over_seeds",
        Stage.RERUN,
        "Is training stable over seeds?",
        rules.stable,
        "Plan longer training or a calmer space under a new search revision.",
    ),
    Gate(
        "within_tolerance",
        Stage.RERUN,
        "Does the rerun agree within tolerance?",
        rules.within_tolerance,
        "The search score may have been luck. Plan a new search revision: more trials, longer "
        "training.",
    ),
    Gate(
        "protected_slices",
        Stage.SLICES,
        "Does every protected slice pass, or has a person decided?",
        rules.protected_slices,
        "Decide: materialize quality_decision, or see `parcel-assets decide --pending`.",
    ),
    Gate(
        "holdout_once",
        Stage.FINAL,
        "Was the holdout opened exactly once?",
        rules.holdout_once,
        "A second look cannot be undone; plan a new search revision with an unspent holdout.",
    ),
    Gate(
        "evaluated_model_identity",
        Stage.FINAL,
        "Was the frozen model evaluated?",
        rules.model_identity,
        "Restore the frozen model.",
    ),
    Gate(
        "target",
        Stage.FINAL,
        "Does the final result meet the plan's target?",
        rules.target,
        "The packet tells the result; the registry refuses the model.",
        stops_packet=False,
    ),
    Gate(
        "packet_digests",
        Stage.PACKET,
        "Has every file its digest?",
        rules.packet_digests,
        "Delete the damaged packet folder and materialize release_packet again.",
    ),
    Gate(
        "packet_signature",
        Stage.PACKET,
        "Is the manifest signed by the release key?",
        rules.packet_signature,
        "Delete the damaged packet folder and materialize release_packet again.",
    ),
)


def gates_of(stage: Stage) -> tuple[Gate, ...]:
    """Return the gates that judge a stage's evidence, in table order."""
    return tuple(gate for gate in GATES if gate.stage == stage)
