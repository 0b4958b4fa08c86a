"""Case C50: with early stopping the saved model and the reported values are those of the best epoch, for every ending.

The labels of the table are noise, so a model overfits at once and the best epoch is far from the last one.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from app.errors import Cause
from tests.workers.backends.fake import NumpyBackend
from tests.workers.training_jobs import Listener, Ticking, csv_job, going_on
from workers.backends.base import Backend, Diverged, load_backend
from workers.checkpoints import read
from workers.context import NullContext
from workers.data.metrics import evaluate
from workers.loop import train
from workers.model_file import forward
from workers.model_file import read as read_model
from workers.preparation import read_dataset
from workers.protocol import Assignment, Done

NOISE = Path(__file__).parents[1] / "data" / "noise_labels.csv"
DIVERGING = NOISE.with_name("diverge.csv")
FOREVER = {"patience": 100}


def job(
    work_dir: Path, early_stopping: dict[str, Any] | None, framework: str = "torch", **settings: object
) -> Assignment:
    work_dir.mkdir(parents=True, exist_ok=True)
    return csv_job(
        work_dir,
        NOISE,
        {"target": "label", "split": {"validation": 0.4, "test": 0.1}},
        framework,
        model={"type": "mlp", "hidden": [64]},
        hyperparameters={
            "epochs": 20,
            "batch_size": 8,
            "learning_rate": 0.03,
            "early_stopping": early_stopping,
            **settings,
        },
    )


def run(assignment: Assignment, listener: Listener, backend: Backend | None = None) -> Done:
    backend = backend or NumpyBackend()
    backend.prepare(assignment.devices, assignment.threads)
    return train(assignment, backend, listener, clock=Ticking(), say=lambda _: None)


def measured_again(assignment: Assignment, listener: Listener) -> float:
    """Load the saved model, answer the stored validation rows, and measure the loss anew, all without a framework."""
    data = read_dataset(assignment, NullContext())
    numbers = load_file(listener.artifacts["split.safetensors"][0])["validation"]
    rows = np.isin(data.row_numbers, numbers)
    assert data.row_numbers[rows].tolist() == data.row_numbers[data.division.validation].tolist()
    description, weights = read_model(listener.artifacts["model.json"][0].parent)
    part = data.parts["validation"]
    outputs = forward(description.layers, weights, part.x)
    return evaluate(outputs, part.y, "classification", [], 1.0, "cross_entropy")["loss"]


def best_of(listener: Listener) -> tuple[float, int]:
    """The lowest validation loss and its epoch, as the series tells them."""
    losses = listener.series("val_loss")
    return min(losses), 1 + losses.index(min(losses))


class TestEveryEnding:
    @pytest.mark.parametrize("framework", ["numpy", "torch", "tensorflow"])
    @pytest.mark.parametrize("patience", [3, 100], ids=["patience", "epoch limit"])
    def test_saved_model_is_that_of_the_best_epoch(self, tmp_path: Path, framework: str, patience: int) -> None:
        name = "torch" if framework == "numpy" else framework
        assignment, listener = job(tmp_path, {"patience": patience}, name), Listener()

        done = run(assignment, listener, None if framework == "numpy" else load_backend(framework))

        best, epoch = best_of(listener)
        assert done.best_epoch == epoch < 17
        assert len(listener.series("val_loss")) == (epoch + 3 if patience == 3 else 20)
        assert done.metrics["val_loss"] == best
        assert measured_again(assignment, listener) == pytest.approx(best, rel=1e-5)
        evaluation = json.loads(listener.artifacts["evaluation.json"][0].read_text())
        assert evaluation["epoch"] == epoch
        assert evaluation["validation"]["metrics"]["loss"] == pytest.approx(best, rel=1e-12)
        assert done.metrics["test_loss"] == pytest.approx(evaluation["test"]["metrics"]["loss"], rel=1e-12)

    def test_without_early_stopping_it_is_the_last_and_the_best_is_told(self, tmp_path: Path) -> None:
        assignment, listener = job(tmp_path, None), Listener()

        done = run(assignment, listener)

        best, epoch = best_of(listener)
        assert done.best_epoch == epoch
        assert done.metrics["val_loss"] == listener.series("val_loss")[-1] > best
        assert measured_again(assignment, listener) == pytest.approx(listener.series("val_loss")[-1], rel=1e-5)

    def test_without_restoring_it_is_the_last(self, tmp_path: Path) -> None:
        assignment, listener = job(tmp_path, {"patience": 3, "restore_best": False}), Listener()

        done = run(assignment, listener)

        last = listener.series("val_loss")[-1]
        assert len(listener.series("val_loss")) < 20
        assert done.metrics["val_loss"] == last
        assert measured_again(assignment, listener) == pytest.approx(last, rel=1e-5)

    @pytest.mark.parametrize("reason", ["pause", "drain", "preempt", "timed_out", "terminated"])
    def test_a_stop_keeps_the_best_weights_in_its_checkpoint(self, tmp_path: Path, reason: str) -> None:
        whole, first, second = Listener(), Listener(stop_at=51, reason=reason), Listener()
        expected = run(job(tmp_path / "whole", FOREVER), whole)
        begun = job(tmp_path / "first", FOREVER)

        stopped = run(begun, first)
        done = run(going_on(begun, first, tmp_path / "second"), second)

        best, epoch = best_of(first)
        assert (stopped.stopped, stopped.best_epoch) == ("stop", epoch)
        assert stopped.metrics["val_loss"] == best
        assert first.artifacts == {}
        assert [checkpoint.reason for checkpoint in first.checkpoints][-1] == "stop"
        state = read(tmp_path / "first" / first.checkpoints[-1].path)
        assert state.best is not None
        assert state.position.best is not None
        assert state.position.best.value == best
        assert done.metrics["val_loss"] == expected.metrics["val_loss"]
        saved = [listener.artifacts["model.safetensors"][0].read_bytes() for listener in (whole, second)]
        assert saved[0] == saved[1]

    def test_cancel_writes_nothing_more_and_leaves_the_best_that_was_written(self, tmp_path: Path) -> None:
        listener = Listener(stop_at=50, reason="cancel")

        stopped = run(job(tmp_path, FOREVER, checkpoint_every_epochs=1), listener)

        best, epoch = best_of(listener)
        assert stopped.metrics["val_loss"] == best
        assert {checkpoint.reason for checkpoint in listener.checkpoints} == {"periodic"}
        marked = [checkpoint.epoch for checkpoint in listener.checkpoints if checkpoint.best]
        assert marked[-1] == epoch
        kept = read(tmp_path / next(c.path for c in listener.checkpoints if c.epoch == epoch))
        assert kept.best is not None
        assert all(kept.best[name].tolist() == value.tolist() for name, value in kept.weights.items())

    def test_divergence_names_and_leaves_the_last_good_checkpoint(self, tmp_path: Path) -> None:
        listener = Listener()

        with pytest.raises(Diverged, match=r"The last good checkpoint is of step \d+\.") as caught:
            run(job(tmp_path, FOREVER), listener, NumpyBackend(spoil=(30, "dense_1.bias")))

        step = listener.checkpoints[-1].step
        assert str(caught.value).endswith(f"of step {step}.")
        assert 0 < step <= 30
        assert listener.artifacts == {}
        for checkpoint in listener.checkpoints:
            state = read(tmp_path / checkpoint.path)
            assert all(np.isfinite(value).all() for value in state.weights.values())


class TestDiverging:
    """Case C29: what was reported before stays, the value that is no number is reported, nothing bad is stored."""

    @pytest.mark.parametrize("framework", ["numpy", "torch", "tensorflow"])
    def test_table_of_the_case_ends_as_diverged(self, tmp_path: Path, framework: str) -> None:
        assignment = csv_job(
            tmp_path,
            DIVERGING,
            {"target": "y", "preprocess": {"numeric": "none"}},
            "torch" if framework == "numpy" else framework,
            model="linear",
            hyperparameters={"epochs": 20, "learning_rate": 1000.0, "optimizer": "sgd"},
        )
        listener = Listener()

        with np.errstate(all="ignore"), pytest.raises(Diverged, match="good checkpoint is of step 1") as caught:
            run(assignment, listener, None if framework == "numpy" else load_backend(framework))

        assert caught.value.cause == Cause.DIVERGED
        assert "or data.preprocess.numeric 'standardize'" in str(caught.value)
        assert not math.isfinite(listener.points[-1].value)
        assert [checkpoint.step for checkpoint in listener.checkpoints] == [1]

    def test_without_a_complete_epoch_there_is_nothing_to_leave(self, tmp_path: Path) -> None:
        listener = Listener()

        with pytest.raises(Diverged, match="There is no checkpoint before it"):
            run(job(tmp_path, None), listener, NumpyBackend(spoil=(0, "dense_1.bias")))

        assert listener.checkpoints == []

    def test_a_first_good_epoch_is_written_before_leaving(self, tmp_path: Path) -> None:
        # Three steps an epoch. The clock stands still: no checkpoint was due before.
        listener = Listener()
        backend = NumpyBackend(spoil=(8, "dense_1.bias"))

        with pytest.raises(Diverged, match="The last good checkpoint is of step 6"):
            train(job(tmp_path, None), backend, listener, clock=lambda: 0.0, say=lambda _: None)

        assert [(c.step, c.reason, c.best) for c in listener.checkpoints] == [(6, "best", True)]

    @pytest.mark.parametrize("every", [1, None])
    def test_a_weight_that_no_loss_shows_never_reaches_a_checkpoint(self, tmp_path: Path, every: int | None) -> None:
        # Without a validation part nothing looks at the moving statistics but the checkpoint, and the end.
        assignment = csv_job(
            tmp_path,
            NOISE,
            {"target": "label", "split": {"validation": 0.0, "test": 0.0}},
            model={"type": "mlp", "hidden": [8], "batch_norm": True},
            hyperparameters={"epochs": 4, "batch_size": 8, "checkpoint_every_epochs": every},
        )
        listener = Listener()

        with pytest.raises(
            Diverged, match=r"The weight 'batch_norm_1\.moving_variance' is not finite any more\. Use a"
        ):
            run(assignment, listener, NumpyBackend(spoil=(7, "batch_norm_1.moving_variance")))

        assert listener.artifacts == {}
        for checkpoint in listener.checkpoints:
            assert checkpoint.step <= 7
            assert np.isfinite(read(tmp_path / checkpoint.path).weights["batch_norm_1.moving_variance"]).all()

    @pytest.mark.parametrize("framework", ["numpy", "torch", "tensorflow"])
    def test_a_last_step_that_no_loss_shows_is_seen_in_the_outputs(self, tmp_path: Path, framework: str) -> None:
        # One step without a validation part: the loss was finite, and weights of 1e30 are, but not what they give.
        assignment = csv_job(
            tmp_path,
            DIVERGING,
            {"target": "y", "preprocess": {"numeric": "none"}, "split": {"validation": 0.0, "test": 0.0}},
            "torch" if framework == "numpy" else framework,
            hyperparameters={"epochs": 1, "batch_size": 1000, "learning_rate": 1e16, "optimizer": "sgd"},
        )
        listener = Listener()

        with np.errstate(all="ignore"), pytest.raises(Diverged, match="outputs are not finite any more after step 1"):
            run(assignment, listener, None if framework == "numpy" else load_backend(framework))

        assert math.isfinite(listener.series("loss")[-1])
        assert (listener.checkpoints, listener.artifacts) == ([], {})
