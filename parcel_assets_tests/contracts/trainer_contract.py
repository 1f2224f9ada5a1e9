"""What every trainer must do; a test module inherits the suite and offers a `trainer`."""

from pathlib import Path

import numpy as np
import pytest

from parcel_assets.core.errors import CheckpointError
from parcel_assets.core.ports import Trainer
from parcel_assets_tests.adapters.training_helpers import (
    DATA,
    MILESTONES,
    STEPS,
    Observer,
    StopNowError,
    task,
)


class TrainerContract:
    """The suite; a subclass defines a fixture `trainer`."""

    def _train(self, trainer: Trainer, folder: Path, **facts: object) -> tuple[Observer, bytes]:
        folder.mkdir()
        observer = Observer(folder=folder)
        model = folder / "model.safetensors"
        assert trainer.train(task(**facts), DATA, observer, model) == STEPS  # type: ignore[arg-type]
        return observer, model.read_bytes()

    def test_every_step_and_milestone_is_told_once_and_in_order(
        self, trainer: Trainer, tmp_path: Path
    ) -> None:
        observer, _ = self._train(trainer, tmp_path / "a")
        steps = [step for kind, step in observer.heard if kind == "step"]
        assert steps == list(range(1, STEPS + 1))
        assert tuple(observer.scores) == MILESTONES
        assert observer.photos_seen == {step: step * 16 for step in MILESTONES}
        for scores in observer.scores.values():
            assert scores.dtype == np.float32
            assert np.isfinite(scores).all()
            assert 0 <= scores.min() <= scores.max() <= 1

    def test_checkpoints_are_offered_at_milestones_and_regularly_but_not_at_the_end(
        self, trainer: Trainer, tmp_path: Path
    ) -> None:
        observer, _ = self._train(trainer, tmp_path / "a", checkpoint_every_steps=5)
        assert [step for kind, step in observer.heard if kind == "checkpoint"] == [3, 5, 7, 10]

    def test_a_training_is_a_function_of_its_task(self, trainer: Trainer, tmp_path: Path) -> None:
        first, model = self._train(trainer, tmp_path / "a")
        second, same = self._train(trainer, tmp_path / "b")
        other, _ = self._train(trainer, tmp_path / "c", seed=83)
        assert model == same
        for step in MILESTONES:
            assert first.scores[step].tobytes() == second.scores[step].tobytes()
        assert first.scores[STEPS].tobytes() != other.scores[STEPS].tobytes()

    @pytest.mark.parametrize("step", [3, 8])
    def test_a_resumed_training_equals_one_that_never_stopped(
        self, trainer: Trainer, tmp_path: Path, step: int
    ) -> None:
        whole, model = self._train(trainer, tmp_path / "a")
        checkpoint = tmp_path / "a" / f"step-{step:03d}.safetensors"
        resumed, same = self._train(trainer, tmp_path / "b", resume_from=checkpoint)
        assert resumed.heard[0] == ("step", step + 1)
        assert same == model
        for milestone, scores in resumed.scores.items():
            assert scores.tobytes() == whole.scores[milestone].tobytes()

    def test_a_stop_at_a_milestone_ends_it_without_weights(
        self, trainer: Trainer, tmp_path: Path
    ) -> None:
        observer = Observer(stop_at_milestone=7)
        assert trainer.train(task(), DATA, observer, tmp_path / "model.safetensors") == 7
        assert observer.heard[-1] == ("milestone", 7)
        assert not list(tmp_path.iterdir())

    def test_what_the_observer_raises_comes_out(self, trainer: Trainer, tmp_path: Path) -> None:
        with pytest.raises(StopNowError):
            trainer.train(task(), DATA, Observer(raise_at_step=4), tmp_path / "model.safetensors")

    def test_finished_weights_give_the_last_scores_again(
        self, trainer: Trainer, tmp_path: Path
    ) -> None:
        observer, _ = self._train(trainer, tmp_path / "a")
        model = tmp_path / "a" / "model.safetensors"
        scores = trainer.score(model, DATA.validation.pixels)
        assert scores.tobytes() == observer.scores[STEPS].tobytes()

    def test_a_checkpoint_carries_the_lineage_it_was_given(
        self, trainer: Trainer, tmp_path: Path
    ) -> None:
        self._train(trainer, tmp_path / "a")
        checkpoint = tmp_path / "a" / "step-003.safetensors"
        assert dict(trainer.read_lineage(checkpoint)) == {"trial": "parcel-07"}
        checkpoint.write_bytes(checkpoint.read_bytes()[:20])
        with pytest.raises(CheckpointError):
            trainer.read_lineage(checkpoint)
