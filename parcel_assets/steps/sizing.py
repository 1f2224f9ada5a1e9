"""Reads how large a plan's validation, holdout and slices are, where a split has counted them.

What follows from the sizes is simulated in core.simulation. Of the holdout only the declared counts
are read.
"""

from parcel_assets.core.ledger import Kind, last_of
from parcel_assets.core.plan import Plan
from parcel_assets.core.ports import Ports
from parcel_assets.core.simulation_sizes import LabelledRows, Sizes, sizes_of_rows
from parcel_assets.core.simulation_world import World
from parcel_assets.core.split import labelled_attributes
from parcel_assets.core.stage import Stage
from parcel_assets.steps.admission import load_chain


def sizes_of_split(revision: str, plan: Plan, ports: Ports, world: World) -> Sizes | None:
    """Return the sizes that a revision's split counted, or None where it has none of this plan."""
    if last_of(ports.ledger.events(revision), Kind.PLAN_FROZEN) is None:
        return None
    chain = load_chain(revision, ports)
    if Stage.SPLIT not in chain.evidence or chain.plan_digest != plan.digest:
        return None
    split = chain.split
    rows = ports.store.get_document(split.parts["validation"].rows)
    holdout, validation = (split.parts[one].shipments for one in ("holdout", "validation"))
    return sizes_of_rows(
        plan,
        LabelledRows(
            [str(row["shipment_id"]) for row in rows],
            [bool(row["damaged"]) for row in rows],
            labelled_attributes(rows),
        ),
        world,
        source=f"the split of {revision}",
        validation_share=1.0,
        holdout_share=holdout / max(1, validation),
    )
