"""A training that is stopped and goes on from its checkpoint ends as the unbroken one: to the bit, at any place.

In this process, with the backend in NumPy and with both frameworks; real processes that are killed are in
`test_killed_trainers`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.errors import Cause
from tests.workers.backends.fake import NumpyBackend
from tests.workers.training_jobs import Listener, Ticking, builtin_job, going_on
from workers.backends.base import Backend, load_backend
from workers.checkpoints import UnreadableCheckpoint, read
from workers.failure import failure_of
from workers.loop import train
from workers.protocol import Assignment, Done

MODEL = {
    "type": "sequential",
    "layers": [
        {"type": "dense", "units": 8},
        {"type": "batch_norm"},
        {"type": "activation", "function": "tanh"},
        {"type": "dropout", "rate": 0.2},
    ],
}
SPLIT = {"validation": 0.2, "test": 0.2}

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "cosine with warm-up": {"schedule": {"name": "cosine", "warmup_steps": 8}},
    "plateau": {
        "schedule": {"name": "reduce_on_plateau", "patience": 0, "min_delta": 0.05, "monitor": "loss"},
        "learning_rate": 0.003,
    },
    "early stopping": {
        "early_stopping": {"patience": 2, "min_delta": 0.02},
        "learning_rate": 0.05,
        "optimizer": {"name": "sgd", "momentum": 0.9},
    },
    "early stopping that keeps the last": {
        "early_stopping": {"patience": 2, "min_delta": 0.05, "restore_best": False, "monitor": "val_accuracy"}
    },
    "class weights": {"class_weights": {"1": 3.0}, "clip_norm": 0.5},
}


def job(work_dir: Path, framework: str = "torch", **settings: object) -> Assignment:
    work_dir.mkdir(parents=True, exist_ok=True)
    quick = {"epochs": 6, "batch_size": 16, "learning_rate": 0.01, **settings}
    return builtin_job(work_dir, {"source": "iris", "split": SPLIT}, framework, model=MODEL, hyperparameters=quick)


def outcome(done: Done, listener: Listener) -> dict[str, Any]:
    """All that must not depend on an interruption; speeds do."""
    return {
        "metrics": {name: value for name, value in done.metrics.items() if name != "samples_per_s"},
        "best": (done.best_epoch, done.best_step),
        "model": listener.artifacts["model.safetensors"][0].read_bytes(),
        "evaluation": json.loads(listener.artifacts["evaluation.json"][0].read_text()),
    }


def series(*listeners: Listener) -> dict[tuple[str, int], list[float]]:
    """Values by name and step; what several attempts have said of the same step is a list of several."""
    found: dict[tuple[str, int], list[float]] = {}
    for point in (point for listener in listeners for point in listener.points):
        if point.name not in {"samples_per_s", "step_loss"}:
            found.setdefault((point.name, point.step), []).append(point.value)
    return found


def run(assignment: Assignment, backend: Backend, listener: Listener) -> Done:
    backend.prepare(assignment.devices, assignment.threads)
    return train(assignment, backend, listener, clock=Ticking(), say=lambda _: None)


class TestStoppedAnywhere:
    @pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.full)])
    @pytest.mark.parametrize("name", list(SETTINGS))
    def test_goes_on_to_the_same_end(self, tmp_path: Path, name: str, every: int) -> None:
        assignment = job(tmp_path / "whole", **SETTINGS[name])
        unbroken = Listener()
        expected = outcome(run(assignment, NumpyBackend(), unbroken), unbroken)
        told = series(unbroken)

        for stop_at in range(unbroken.safe_points, 0, -every):
            place = tmp_path / str(stop_at)
            first, second = Listener(stop_at=stop_at), Listener()
            begun = job(place / "first", **SETTINGS[name])
            stopped = run(begun, NumpyBackend(), first)
            assert stopped.stopped == "stop"
            if stop_at > 1:
                assert stopped.checkpoint_step == first.checkpoints[-1].step
                assert first.reports[-1].step in {stopped.checkpoint_step, 0}
            done = run(going_on(begun, first, place / "second"), NumpyBackend(), second)

            assert outcome(done, second) == expected, stop_at
            assert series(first, second) == told, stop_at

    def test_stopped_at_every_step_in_turn(self, tmp_path: Path) -> None:
        assignment = job(tmp_path / "whole", **SETTINGS["early stopping"])
        unbroken = Listener()
        expected = outcome(run(assignment, NumpyBackend(), unbroken), unbroken)

        attempts = [job(tmp_path / "0", **SETTINGS["early stopping"])]
        # Two safe points: one chunk, then leave, until no step is left and no checkpoint is written any more.
        while (listener := self._one_step(attempts[-1])).checkpoints:
            attempts.append(going_on(attempts[-1], listener, tmp_path / str(len(attempts))))
        last = Listener()
        done = run(attempts[-1], NumpyBackend(), last)

        assert len(attempts) > 20
        assert outcome(done, last) == expected

    @staticmethod
    def _one_step(assignment: Assignment) -> Listener:
        listener = Listener(stop_at=2)
        run(assignment, NumpyBackend(), listener)
        return listener


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
class TestFrameworks:
    def test_a_stop_in_the_middle_of_an_epoch_costs_no_bit(self, tmp_path: Path, framework: str) -> None:
        settings = {**SETTINGS["cosine with warm-up"], **SETTINGS["early stopping"]}
        assignment = job(tmp_path / "whole", framework, **settings)
        unbroken, first, second = Listener(), Listener(stop_at=11), Listener()
        expected = outcome(run(assignment, load_backend(framework), unbroken), unbroken)

        begun = job(tmp_path / "first", framework, **settings)
        run(begun, load_backend(framework), first)
        (checkpoint,) = [each for each in first.checkpoints if each.reason == "stop"]
        assert checkpoint.step % 6 > 0
        done = run(going_on(begun, first, tmp_path / "second"), load_backend(framework), second)

        assert outcome(done, second) == expected
        assert series(first, second) == series(unbroken)


class TestLearningRate:
    """Case C36: ten epochs of a cosine, killed after the fourth; the rates of each epoch are those of the formula."""

    def test_goes_on_where_it_was(self, tmp_path: Path) -> None:
        schedule: dict[str, Any] = {"schedule": "cosine", "epochs": 10, "checkpoint_every_epochs": 1}
        unbroken, first, second = Listener(), Listener(), Listener()
        run(job(tmp_path / "whole", **schedule), NumpyBackend(), unbroken)
        begun = job(tmp_path / "first", **schedule)
        run(begun, NumpyBackend(), first)

        run(going_on(begun, first, tmp_path / "second", step=24), NumpyBackend(), second)

        assert [point.epoch for point in second.points if point.name == "learning_rate"] == [5, 6, 7, 8, 9, 10]
        assert second.series("learning_rate") == pytest.approx(unbroken.series("learning_rate")[4:], rel=1e-12)
        assert second.series("loss") == unbroken.series("loss")[4:]


class TestNothingLeft:
    def test_an_end_that_was_interrupted_is_made_again(self, tmp_path: Path) -> None:
        begun = job(tmp_path / "first", **SETTINGS["early stopping"])
        first, second = Listener(), Listener()
        expected = outcome(run(begun, NumpyBackend(), first), first)
        assert first.checkpoints[-1].reason == "final"

        done = run(going_on(begun, first, tmp_path / "second"), NumpyBackend(), second)

        assert outcome(done, second) == expected
        assert second.checkpoints == []
        assert done.checkpoint_step == first.checkpoints[-1].step


class TestWrongCheckpoint:
    def refused(self, assignment: Assignment) -> UnreadableCheckpoint:
        with pytest.raises(UnreadableCheckpoint) as caught:
            run(assignment, NumpyBackend(), Listener())
        assert failure_of(caught.value, None).cause == Cause.ARTIFACT_UNREADABLE
        return caught.value

    @pytest.fixture
    def second(self, tmp_path: Path) -> Assignment:
        begun, listener = job(tmp_path / "first"), Listener()
        run(begun, NumpyBackend(), listener)
        return going_on(begun, listener, tmp_path / "second")

    def test_of_another_spec(self, second: Assignment) -> None:
        settings = second.spec.hyperparameters.model_copy(update={"learning_rate": 0.5})
        spec = second.spec.model_copy(update={"hyperparameters": settings})

        assert "another spec" in str(self.refused(second.model_copy(update={"spec": spec})))

    def test_of_the_other_framework(self, second: Assignment) -> None:
        spec = second.spec.model_copy(update={"framework": "tensorflow"})

        assert "made by torch" in str(self.refused(second.model_copy(update={"spec": spec})))

    def test_damaged(self, second: Assignment) -> None:
        (Path(second.work_dir) / "resume" / "weights.safetensors").write_bytes(b"\0")

        assert "has 1 bytes" in str(self.refused(second))

    def test_what_does_not_decide_may_change(self, second: Assignment) -> None:
        spec = second.spec.model_copy(update={"name": "again", "priority": 3, "timeout_s": 7})

        assert run(second.model_copy(update={"spec": spec}), NumpyBackend(), Listener()).stopped is None

    def test_other_threads_are_told(self, second: Assignment) -> None:
        listener = Listener()

        run(second.model_copy(update={"threads": 2}), NumpyBackend(), listener)

        assert "made with 1 threads" in listener.notices["threads_changed"]


class TestPartialEpoch:
    def test_is_in_the_checkpoint(self, tmp_path: Path) -> None:
        begun, listener = job(tmp_path), Listener(stop_at=10)

        run(begun, NumpyBackend(), listener)
        position = read(tmp_path / listener.checkpoints[-1].path).position

        # Seven safe points are the first epoch's, one its validation's: three steps of the second were made.
        assert (position.epoch, position.step) == (1, 8)
        assert position.partial is not None
        assert (position.partial.steps, position.partial.rows) == (2, 32)
