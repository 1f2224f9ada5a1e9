"""Would a pruned trial have won? Trains every pruned trial of a finished search to the end.

Prints the winner, the median and AUC that make a search worth running, what pruning saved, and for
each pruned trial the cost it was cut at and the cost it would have reached. Exit code 1 where one
of them would have been chosen.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

from parcel_assets import wiring
from parcel_assets.adapters.trainer_lightning import LightningTrainer
from parcel_assets.core.chain import Chain
from parcel_assets.core.ports import PartData, Ports, Scores, TrainingData, TrainingTask
from parcel_assets.core.search import fold_search
from parcel_assets.core.split import milestone_rows, part_data
from parcel_assets.core.statistics import Costs, estimate_cost
from parcel_assets.core.table import table_rows
from parcel_assets.core.thresholds import choose_threshold, review_decisions
from parcel_assets.core.trial import TrialRow, TrialState
from parcel_assets.settings import Settings
from parcel_assets.steps.admission import load_chain


class LastScores:
    """An observer that lets a training run to its end and keeps the last milestone's scores."""

    def __init__(self) -> None:
        self.scores: Scores = np.empty(0, dtype=np.float32)

    def at_step(self, step: int) -> None:
        """Do nothing."""

    def at_milestone(self, step: int, photos_seen: int, scores: Scores) -> bool:
        """Keep the scores and go on."""
        self.scores = scores
        return True

    def at_checkpoint(self, step: int, save: object) -> None:
        """Save nothing."""


def part(chain: Chain, ports: Ports, name: str) -> PartData:
    """Return one part's photos and labels from the store."""
    stored = chain.split.parts[name]
    pixels = np.load(ports.store.path(stored.pixels), mmap_mode="r", allow_pickle=False)
    return part_data(ports.store.get_document(stored.rows), pixels)


def cost_at_the_end(chain: Chain, data: TrainingData, row: TrialRow, scratch: Path) -> float:
    """Return the validation cost per 1,000 that a trial reaches when nothing stops it."""
    plan, validation, observer = chain.plan, data.validation, LastScores()
    task = TrainingTask(
        configuration=row.configuration,
        seed=row.seed,
        training=plan.training,
        preprocess=plan.preprocess,
        milestone_rows=milestone_rows(plan, validation.shipments),
    )
    LightningTrainer().train(task, data, observer, scratch / "model.safetensors")
    costs = Costs(plan.metric.missed_damage, plan.metric.needless_review)
    threshold = choose_threshold(
        observer.scores, validation.damaged, costs, plan.metric.threshold_grid_points
    )
    review = review_decisions(observer.scores, threshold)
    estimate = estimate_cost(review, validation.damaged, np.array(validation.shipments), costs)
    return estimate.cost_per_1000


def main() -> int:
    """Audit one revision; return 1 where a pruned trial would have been chosen."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("revision")
    revision = arguments.parse_args().revision
    ports = wiring.open_ports(Settings.read())
    chain = load_chain(revision, ports)
    state = fold_search(chain.plan, chain.events)
    rows = table_rows(chain.plan, state)
    finished = [r.final_cost_per_1000 for r in rows if r.final_cost_per_1000 is not None]
    best, median = min(finished), statistics.median(finished)
    body = chain.rerun
    trivial = min(body.trivial_cost_per_1000.values())
    print(f"winner {best:.1f}, median of {len(finished)} completed {median:.1f}", flush=True)
    print(
        f"winner / best trivial policy {best / trivial:.3f}, below median {1 - best / median:.1%}"
    )
    print(f"area under curve {body.validation['area_under_curve']:.3f}")
    whole = chain.plan.search.budget_trials * chain.plan.training.steps
    print(f"pruning saved {state.steps_saved_by_pruning} of {whole} steps")
    data = TrainingData(part(chain, ports, "train"), part(chain, ports, "validation"))
    lost = []
    with tempfile.TemporaryDirectory() as scratch:
        for row in rows:
            if row.state != TrialState.PRUNED:
                continue
            reached = cost_at_the_end(chain, data, row, Path(scratch))
            print(f"{row.trial_id} cut at {list(row.costs.items())[-1]} would reach {reached:.1f}")
            sys.stdout.flush()
            lost += [row.trial_id] if reached < best else []
    print(f"pruned trials that would have won: {', '.join(lost) or 'none'}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
