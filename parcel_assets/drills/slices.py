"""A winner that is cheaper overall and worse where it must not be."""

from parcel_assets.core.standing import standing_of
from parcel_assets.drills import judge
from parcel_assets.drills.ground import Ground, draw
from parcel_assets.drills.holdout import traces
from parcel_assets.drills.records import Report
from parcel_assets.steps.admission import load_chain

REVISION = "drill-corners"
SEED, SHIPMENTS = 86, 1600
SLICE = "crushed_corner"


def corners_lost(ground: Ground, report: Report) -> None:
    """Search a space that lacks what keeps crushed corners in the reference's training batches."""
    draw(ground.data / "archives" / "drill", SHIPMENTS, SEED)
    ground.register(REVISION, "corners.toml")
    words = "a search without rare-slice oversampling, which the reference has; no number is set"
    report.injections.append(ground.inject(words, ground.watch(REVISION)))
    code = ground.run(REVISION, until=None).wait()
    chain = load_chain(REVISION, ground.ports)
    standing, scene = standing_of(chain), ground.scene(REVISION)
    report.detected.append(
        f"event {len(scene.events)}: {standing.next_stage}, gate {standing.gate}: "
        f"{standing.sentence}"
    )
    costs = (chain.rerun.own.cost_per_1000, chain.rerun.reference.cost_per_1000)
    (outcome,) = [one for one in chain.slices.slices if one["name"] == SLICE]
    report.ask(
        judge.held("hold:slice-quality", standing.hold, standing.sentence),
        judge.cheaper_but_worse(costs, outcome),
        judge.search_ended(scene),
        judge.holdout_closed(scene, traces(ground)),
        judge.ended_with("the run", 3, code),
    )
