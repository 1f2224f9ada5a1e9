"""Asset checks made from the gate table: what a person sees of the gates.

They stop downstream assets only inside one run, and can be deselected or reported by hand; so they
enforce nothing. The next stage's own admission does, with the same functions.
"""

import warnings
from collections.abc import Iterator

import dagster as dg

from parcel_assets.core.command_words import Called
from parcel_assets.core.errors import ParcelAssetsError
from parcel_assets.core.gate_rules import GateVerdict
from parcel_assets.core.gates import Gate, gates_of
from parcel_assets.core.stage import Stage
from parcel_assets.defs.metadata_values import plain
from parcel_assets.defs.partitions import SEARCH_REVISIONS
from parcel_assets.defs.resources import ParcelAssets
from parcel_assets.steps.admission import judge, load_chain


def _spec(gate: Gate) -> dg.AssetCheckSpec:
    with warnings.catch_warnings():
        # partitioned checks are a preview in Dagster 1.13, as every use of them says
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return _partitioned_spec(gate)


def _partitioned_spec(gate: Gate) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(
        gate.name,
        asset=str(gate.stage),
        blocking=gate.stops_packet,
        partitions_def=SEARCH_REVISIONS,
        description=f"{gate.question}\n\n**If not:** {gate.remedy}\n\nThe next stage asks this "
        "again by itself; to ask again here, materialize the asset.",
    )


def _checks_of(stage: Stage) -> dg.AssetChecksDefinition:
    gates = {gate.name: gate for gate in gates_of(stage)}

    @dg.multi_asset_check(
        name=f"gates_after_{stage}", specs=[_spec(gate) for gate in gates.values()], can_subset=True
    )
    def judge_gates(
        context: dg.AssetCheckExecutionContext, parcel_assets: ParcelAssets
    ) -> Iterator[dg.AssetCheckResult]:
        called = parcel_assets.called()
        asked = sorted(key.name for key in context.selected_asset_check_keys)
        try:
            chain = load_chain(context.partition_key, parcel_assets.open())
        except ParcelAssetsError as error:
            for name in asked:
                verdict = GateVerdict(False, str(error), error.as_fields())
                yield _result(gates[name], verdict, context.partition_key, called)
            return
        for name in asked:
            yield _result(gates[name], judge(gates[name], chain), chain.revision, called)

    return judge_gates


def _result(gate: Gate, verdict: GateVerdict, revision: str, called: Called) -> dg.AssetCheckResult:
    facts = {"answer": verdict.sentence, **verdict.facts}
    if not verdict.passed:
        facts |= {
            "hold": verdict.hold or "none",
            "what_to_do": called.pasteable(gate.remedy_for(revision)),
        }
    return dg.AssetCheckResult(
        asset_key=str(gate.stage),
        check_name=gate.name,
        passed=verdict.passed,
        severity=dg.AssetCheckSeverity.ERROR,
        description=called.pasteable(verdict.sentence),
        metadata={name: plain(value) for name, value in facts.items()},
    )


CHECKS = tuple(_checks_of(stage) for stage in Stage if gates_of(stage))
