"""Looks at the holdout that nobody may have: before the choice, and a second one."""

import json
import sys

from parcel_assets.core.ledger import Kind
from parcel_assets.core.stage import Stage
from parcel_assets.drills import judge
from parcel_assets.drills.ground import REVISION, Ground
from parcel_assets.drills.records import Report
from parcel_assets.steps.admission import load_chain

MATERIALIZE = [
    *(sys.executable, "-m", "dagster", "asset", "materialize"),
    *("-m", "parcel_assets.definitions"),
]
MARKS = ("opened.json", "decryptions.log", "result.json", "predictions.json")


def peek(ground: Ground, report: Report) -> None:
    """Ask for the final evaluation, and the vault itself, while nothing is chosen."""
    watch = ground.watch()
    code = ground.run().wait()
    report.ask(judge.ended_with("the search", 0, code))
    words = f"materialized {Stage.FINAL} alone, in Dagster, for {REVISION}"
    report.injections.append(ground.inject(words, watch))
    alone = ground.start(
        [*MATERIALIZE, "--select", str(Stage.FINAL), "--partition", REVISION],
        {"DAGSTER_HOME": str(ground.settings.dagster_home)},
    )
    refused = alone.wait()
    scene = ground.scene()
    words = "asked the vault's own process for the result of the best trial, with the label key"
    report.injections.append(ground.inject(words, watch))
    order = ground.outside / "order.json"
    order.write_text(json.dumps(_order(ground)), "utf-8")
    vault = ground.start([sys.executable, "-P", "-m", "parcel_assets.vault", str(order)])
    shut = vault.wait()
    report.detected += [
        f"Dagster's run ended with exit code {refused}",
        f"the vault's process ended with exit code {shut}",
    ]
    report.ask(
        judge.refused_in_words("the final evaluation", refused, alone.output, "evidence of"),
        judge.refused_in_words("the vault's look", shut, vault.output, "receipt"),
        judge.holdout_closed(scene, traces(ground)),
    )


def _order(ground: Ground) -> dict[str, object]:
    """Return what the vault would be asked, were it allowed: for the best trial's model."""
    chain, scene = load_chain(REVISION, ground.ports), ground.scene()
    best = scene.state.subjects[str(scene.state.best_trial)].finished
    assert best is not None
    assert best.ended is not None
    split, holdout = chain.split, chain.split.parts["holdout"]
    sealed = next(iter(scene.of(Kind.HOLDOUT_SEALED)))
    request = {
        "revision": REVISION,
        "plan_digest": chain.plan_digest,
        "freeze_event": sealed.digest,
        "archive": chain.plan.snapshot.archive,
        "holdout_digest": split.holdout_digest,
        "commitment": split.holdout_commitment,
        "ciphertext_digest": split.holdout_ciphertext,
        "pixels": holdout.pixels,
        "rows": holdout.rows,
        "model": best.ended.model,
        "threshold": 0.5,
        "evaluator_digest": ground.ports.vault.evaluator_digest,
        "costs": {"missed_damage": 5.0, "needless_review": 1.0},
        "final": chain.plan.final.model_dump(mode="json"),
        "slices": {name: one.model_dump(mode="json") for name, one in chain.plan.slices.items()},
    }
    vault = ground.settings.vault / split.holdout_digest
    return {
        "request": request,
        "folder": str(vault),
        "store": str(ground.settings.store),
        "key": str(ground.settings.keys / "holdout.key"),
        "trainer": "parcel_assets.adapters.trainer_lightning:LightningTrainer",
    }


def traces(ground: Ground) -> list[str]:
    """Return the files in the vault that tell of an opening."""
    return sorted(one.name for one in ground.settings.vault.rglob("*") if one.name in MARKS)
