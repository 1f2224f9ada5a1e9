"""The trainer: milestones, checkpoints, bit-identical resumption, own failures, weight files."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from parcel_assets.adapters.checkpoint_safetensors import read_checkpoint
from parcel_assets.adapters.network_weights import load_network
from parcel_assets.adapters.trainer_lightning import LightningTrainer
from parcel_assets.core.errors import CheckpointError, TrainingError
from parcel_assets.core.identity_data import planned_images, same_sketch, sketch_images
from parcel_assets.core.ports import Trainer, TrainingTask
from parcel_assets_tests.adapters.training_helpers import (
    DATA,
    HERE,
    MILESTONES,
    STEPS,
    Observer,
    StopNowError,
    task,
)
from parcel_assets_tests.core.plans import plan as make_plan

OWN = f"{HERE}:OwnNetwork"


@pytest.fixture
def trainer() -> Trainer:
    return LightningTrainer()


def train(
    trainer: Trainer, what: TrainingTask, output: Path, name: str = "model", **observing: object
) -> tuple[Observer, bytes]:
    observer = Observer(**observing)  # type: ignore[arg-type]  # fields by name
    model = output / f"{name}.safetensors"
    trainer.train(what, DATA, observer, model)
    return observer, model.read_bytes() if model.exists() else b""


# ---- the course of a training -------------------------------------------------------------------


def test_milestones_are_scored_at_exactly_their_steps(trainer: Trainer, tmp_path: Path) -> None:
    observer, _ = train(trainer, task(), tmp_path)
    assert [step for kind, step in observer.heard if kind == "step"] == list(range(1, STEPS + 1))
    assert tuple(observer.scores) == MILESTONES
    assert [len(observer.scores[step]) for step in MILESTONES] == [35, 35, 70]
    assert observer.photos_seen == {step: step * 16 for step in MILESTONES}
    for scores in observer.scores.values():
        assert scores.dtype == np.float32
        assert scores.min() >= 0
        assert scores.max() <= 1


def test_checkpoints_are_offered_at_milestones_and_regularly_but_not_at_the_end(
    trainer: Trainer, tmp_path: Path
) -> None:
    observer, _ = train(trainer, task(checkpoint_every_steps=5), tmp_path)
    assert [step for kind, step in observer.heard if kind == "checkpoint"] == [3, 5, 7, 10]


def test_the_network_learns(trainer: Trainer, tmp_path: Path) -> None:
    observer, _ = train(trainer, task({"learning_rate": 0.02}), tmp_path)
    scores, damaged = observer.scores[STEPS], DATA.validation.damaged
    assert scores[damaged].mean() > scores[~damaged].mean() + 0.2


def test_the_observer_ends_a_training_and_no_model_is_written(
    trainer: Trainer, tmp_path: Path
) -> None:
    observer = Observer(stop_at_milestone=7)
    last = trainer.train(task(), DATA, observer, tmp_path / "model.safetensors")
    assert last == 7
    assert observer.heard[-1] == ("milestone", 7)
    assert not list(tmp_path.iterdir())


def test_what_the_observer_raises_comes_out_unchanged(trainer: Trainer, tmp_path: Path) -> None:
    with pytest.raises(StopNowError, match="4"):
        train(trainer, task(), tmp_path, raise_at_step=4)


# ---- bit-identical ------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [2, 3, 8])
@pytest.mark.parametrize(
    ("network", "configuration"),
    [
        ("cnn", {"rare_oversampling": 2.5, "positive_weight": 3.0, "image_size": 24}),
        (OWN, {"scheduler": "onecycle"}),
        (OWN, {"scheduler": "multistep"}),
        (OWN, {"scheduler": "sequential"}),
        (OWN, {"scheduler": "plateau"}),
    ],
)
def test_a_resumed_training_equals_one_that_never_stopped(
    trainer: Trainer, tmp_path: Path, network: str, configuration: dict[str, object], step: int
) -> None:
    undisturbed, model = train(
        trainer, task(configuration, network=network), tmp_path, folder=tmp_path
    )
    checkpoint = tmp_path / f"step-{step:03d}.safetensors"
    resumed_task = task(configuration, network=network, resume_from=checkpoint)
    resumed, resumed_model = train(LightningTrainer(), resumed_task, tmp_path, "resumed")
    assert resumed.heard[0] == ("step", step + 1)
    assert resumed_model == model
    for milestone, scores in resumed.scores.items():
        assert scores.tobytes() == undisturbed.scores[milestone].tobytes()


def test_a_resumed_training_writes_the_same_later_checkpoints(
    trainer: Trainer, tmp_path: Path
) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    train(trainer, task(), tmp_path, folder=tmp_path / "first")
    start = tmp_path / "first" / "step-004.safetensors"
    train(trainer, task(resume_from=start), tmp_path, folder=tmp_path / "second")
    for step in (6, 8, 10):
        name = f"step-{step:03d}.safetensors"
        first = read_checkpoint(tmp_path / "first" / name).state
        second = read_checkpoint(tmp_path / "second" / name).state
        assert flat(first["state_dict"]) == flat(second["state_dict"])
        assert flat(first["optimizer_states"]) == flat(second["optimizer_states"])
        assert flat(first["lr_schedulers"]) == flat(second["lr_schedulers"])


def flat(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), tuple(value.stride()), value.numpy().tobytes())
    if isinstance(value, Mapping):
        return {key: flat(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [flat(one) for one in value]
    return value


def test_nothing_of_one_training_reaches_the_next(trainer: Trainer, tmp_path: Path) -> None:
    alone, model = train(LightningTrainer(), task(seed=5), tmp_path, "alone")
    train(trainer, task({"image_size": 24}, network=OWN, seed=4), tmp_path, "other")
    with pytest.raises(TrainingError):
        train(trainer, task(network=f"{HERE}:RaisingNetwork"), tmp_path, "broken")
    after, model_after = train(trainer, task(seed=5), tmp_path, "after")
    assert model_after == model
    assert after.scores[STEPS].tobytes() == alone.scores[STEPS].tobytes()


def test_another_seed_gives_another_model(trainer: Trainer, tmp_path: Path) -> None:
    assert train(trainer, task(seed=1), tmp_path)[1] != train(trainer, task(seed=2), tmp_path)[1]


# ---- weights ------------------------------------------------------------------------------------


def test_saved_weights_score_as_the_last_milestone_did(trainer: Trainer, tmp_path: Path) -> None:
    for network in ("cnn", OWN):
        observer, _ = train(trainer, task({"image_size": 24}, network=network), tmp_path)
        scores = LightningTrainer().score(tmp_path / "model.safetensors", DATA.validation.pixels)
        assert scores.tobytes() == observer.scores[STEPS].tobytes()


def test_a_photo_scores_alike_whatever_lies_beside_it(trainer: Trainer, tmp_path: Path) -> None:
    train(trainer, task(), tmp_path)
    model = tmp_path / "model.safetensors"
    together = trainer.score(model, DATA.validation.pixels)
    alone = [trainer.score(model, DATA.validation.pixels[one : one + 1])[0] for one in (0, 33, 69)]
    assert alone == [together[0], together[33], together[69]]


def test_a_model_file_says_what_it_is(trainer: Trainer, tmp_path: Path) -> None:
    train(trainer, task({"learning_rate": 0.01}), tmp_path)
    network, configuration, preprocess = load_network(tmp_path / "model.safetensors")
    assert configuration["learning_rate"] == 0.01
    assert preprocess.image_size_pixels == 32
    assert not network.training


def test_a_checkpoint_is_no_model(trainer: Trainer, tmp_path: Path) -> None:
    train(trainer, task(), tmp_path, folder=tmp_path)
    with pytest.raises(CheckpointError, match=r"parcel_assets\.checkpoint/1"):
        trainer.score(tmp_path / "step-004.safetensors", DATA.validation.pixels)


# ---- lineage ------------------------------------------------------------------------------------


def test_the_lineage_travels_inside_the_checkpoint(trainer: Trainer, tmp_path: Path) -> None:
    lineage = {"trial": "parcel-07", "attempt": "a-1", "parent": ""}
    train(trainer, task(), tmp_path, folder=tmp_path, lineage=lineage)
    assert trainer.read_lineage(tmp_path / "step-003.safetensors") == lineage


@pytest.mark.parametrize(
    ("field", "other"),
    [("seed", {"seed": 83}), ("configuration", {"configuration": {"width": 5}}),
     ("batch_photos", {"batch_photos": 8})],
)  # fmt: skip
def test_a_checkpoint_of_another_training_is_refused(
    trainer: Trainer, tmp_path: Path, field: str, other: dict[str, object]
) -> None:
    train(trainer, task(), tmp_path, folder=tmp_path)
    resumed = task(resume_from=tmp_path / "step-004.safetensors", **other)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError) as caught:
        train(trainer, resumed, tmp_path)
    assert caught.value.facts["field"] == field


# ---- own failures -------------------------------------------------------------------------------


def test_a_raising_network_is_the_trials_own_failure(trainer: Trainer, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"IndexError: label 7 is out of bounds"):
        train(trainer, task(network=f"{HERE}:RaisingNetwork"), tmp_path)


def test_a_loss_of_nan_ends_the_training_at_its_step(trainer: Trainer, tmp_path: Path) -> None:
    with pytest.raises(TrainingError) as caught:
        train(trainer, task(network=f"{HERE}:DivergingNetwork"), tmp_path)
    assert caught.value.facts["step"] == 4


def test_an_exploding_rate_is_an_own_failure(trainer: Trainer, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="not finite"):
        train(trainer, task({"rate": 1e38}, network=OWN), tmp_path)


def test_a_step_without_a_loss_is_an_own_failure(trainer: Trainer, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no loss"):
        train(trainer, task(network=f"{HERE}:SilentNetwork"), tmp_path)


def test_state_that_no_checkpoint_can_hold_is_named(trainer: Trainer, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="PosixPath at note"):
        train(trainer, task(network=f"{HERE}:HoardingNetwork"), tmp_path, folder=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("network", "words"),
    [("nowhere.at.all:Network", "No module named 'nowhere'"), (f"{HERE}:Absent", "Absent"),
     (f"{HERE}:NotALightningModule", "LightningModule class")],
)  # fmt: skip
def test_a_network_that_cannot_be_used_is_refused(
    trainer: Trainer, tmp_path: Path, network: str, words: str
) -> None:
    with pytest.raises(TrainingError, match=words):
        train(trainer, task(network=network), tmp_path)


@pytest.mark.parametrize(
    "knob",
    [{"image_size": 33}, {"image_size": 24.5}, {"augmentation": "wild"}, {"positive_weight": 0},
     {"rare_oversampling": -1.0}, {"learning_rate": "fast"}, {"depth": 9}, {"width": True}],
)  # fmt: skip
def test_a_knob_out_of_bounds_is_named(
    trainer: Trainer, tmp_path: Path, knob: dict[str, object]
) -> None:
    with pytest.raises(TrainingError, match=f"{next(iter(knob))} = "):
        train(trainer, task(knob), tmp_path)


def test_a_rehearsal_shows_the_plans_images_and_the_threads_in_force() -> None:
    plan = make_plan(preprocess__mean=(0.4, 0.5, 0.6))
    pixels = np.random.default_rng(1).integers(0, 256, (6, 64, 64, 3)).astype(np.uint8)
    images, threads = LightningTrainer().rehearse(plan.training, plan.preprocess, pixels)
    assert threads == torch.get_num_threads() == plan.training.threads_per_trial
    expected = sketch_images("nonce", planned_images(plan.preprocess, pixels))
    assert same_sketch(sketch_images("nonce", images), expected, images[0].size)
    other = plan.preprocess.model_copy(update={"mean": (0.4, 0.5, 0.601)})
    unlike = sketch_images("nonce", planned_images(other, pixels))
    assert not same_sketch(unlike, expected, images[0].size)
