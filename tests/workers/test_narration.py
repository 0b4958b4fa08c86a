"""The log that a job writes about itself."""

import re
from pathlib import Path
from typing import Literal

import pytest

from tests.workers.backends.fake import NumpyBackend
from tests.workers.training_jobs import Listener, builtin_job, going_on
from workers.backends.base import Prepared
from workers.context import NullContext
from workers.loop import train
from workers.narration import Narrator, on_what, say, written
from workers.protocol import Assignment, Progress


def job(work_dir: Path, data: str = "iris", **settings: object) -> Assignment:
    source = {"source": data, "split": {"validation": 0.2, "test": 0.2}}
    return builtin_job(work_dir, source, hyperparameters={"epochs": 3, "batch_size": 16, **settings})


def log_of(assignment: Assignment, listener: Listener | None = None) -> list[str]:
    lines: list[str] = []
    train(assignment, NumpyBackend(), listener or NullContext(), clock=lambda: 0.0, say=lines.append)
    return lines


class Watch:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def at(epoch: int, epochs: int) -> Progress:
    return Progress(epoch=epoch, epochs=epochs, step=2 * epoch, steps=2 * epochs, fraction=epoch / epochs)


def prepared(
    framework: str, version: str, kind: Literal["cuda", "cpu"], device: str, threads: int, *, simulated: bool = False
) -> Prepared:
    return Prepared(framework, version, kind, (device,), simulated, threads)


class TestTraining:
    def test_begins_with_the_data_the_model_and_the_plan(self, tmp_path: Path) -> None:
        # 150 rows, 30 and 30 held out, batches of 16 from 90: 6 steps. (4 + 1) * 8 + (8 + 1) * 3 = 67 weights.
        rows = "90 rows for training, 30 for validation, 30 for the test."
        assert log_of(job(tmp_path))[:3] == [
            f"Data: iris, 4 features, target 'target' (3 classes); {rows}",
            "Model: mlp, 67 parameters, seed 0; loss cross_entropy, optimizer adam, learning rate 0.001 (constant).",
            "Epochs: 3 of 6 steps, batches of 16 rows.",
        ]

    def test_names_regression_for_what_it_is(self, tmp_path: Path) -> None:
        assert "target 'target' (regression)" in log_of(job(tmp_path, "diabetes"))[0]

    def test_tells_epochs_the_test_part_and_the_files(self, tmp_path: Path) -> None:
        lines = log_of(job(tmp_path))

        # The clock stands still, so of three epochs the first and the last are told.
        shape = r"loss [\d.]+, accuracy [\d.]+, learning_rate 0\.001, samples_per_s \S+, val_loss [\d.]+, val_acc"
        assert re.match(f"epoch 1/3: {shape}", lines[3])
        assert re.match(f"epoch 3/3: {shape}", lines[4])
        assert re.fullmatch(r"test part: test_loss [\d.]+, test_accuracy [\d.]+", lines[5])
        files = "model.safetensors, model.json, probe.safetensors, split.safetensors, evaluation.json, environment.json"
        assert lines[6] == f"Finished after 0.0 s; files: {files}."
        assert len(lines) == 7

    def test_says_nothing_of_a_test_part_that_is_not_there(self, tmp_path: Path) -> None:
        assert not any("test part" in line for line in log_of(builtin_job(tmp_path, hyperparameters={"epochs": 1})))

    def test_tells_a_stop_and_where(self, tmp_path: Path) -> None:
        assert log_of(job(tmp_path), Listener(stop_at=2))[-1] == "Stopped as asked, in epoch 1 after step 1 of 18."

    def test_tells_where_it_goes_on(self, tmp_path: Path) -> None:
        begun, listener = job(tmp_path / "first"), Listener(stop_at=2)
        (tmp_path / "first").mkdir()
        log_of(begun, listener)

        lines = log_of(going_on(begun, listener, tmp_path / "second"))

        assert lines[3] == "Going on from the checkpoint of step 1, 0 epochs complete."

    def test_tells_why_it_stopped_early_and_which_epoch_was_the_best(self, tmp_path: Path) -> None:
        # A learning rate of nothing: no epoch after the first is better.
        lines = log_of(job(tmp_path, learning_rate=1e-30, early_stopping={"patience": 1}))

        assert next(line for line in lines if "Early" in line).startswith(
            "Early stopping: val_loss was best in epoch 1:"
        )

    def test_a_value_that_never_was_a_number_has_no_best(self) -> None:
        lines: list[str] = []
        Narrator(lines.append, Watch()).stopped_early("val_auc", None)

        assert lines == ["Early stopping: val_auc never was a number."]


class TestDistance:
    def test_first_line_comes_at_once_and_the_next_after_half_a_second(self) -> None:
        watch, lines = Watch(), list[str]()
        narrator = Narrator(lines.append, watch)
        for epoch in range(1, 12):
            narrator.epoch(at(epoch, 100), {"loss": 1.0})
            watch.now += 0.125  # a fraction of two, so that the sum is exact

        assert lines == ["epoch 1/100: loss 1", "epoch 5/100: loss 1", "epoch 9/100: loss 1"]

    def test_a_long_job_with_short_epochs_stays_readable(self) -> None:
        watch, lines = Watch(), list[str]()
        narrator = Narrator(lines.append, watch)
        for epoch in range(1, 691_201):  # a day, eight epochs a second
            narrator.epoch(at(epoch, 691_200), {"loss": 1.0})
            watch.now += 0.125

        # Half a second apart for 500 s (1,000 lines), then a thousandth of the time: 1,000 ln(86400 / 500) = 5,152;
        # a line waits for the end of its epoch, so there are a few less.
        assert 0.95 * 6152 < len(lines) <= 6152

    def test_inside_of_an_epoch_the_step_is_told(self) -> None:
        lines: list[str] = []
        Narrator(lines.append, Watch()).inside(at(2, 1000), {"step_loss": 0.123456})

        assert lines == ["epoch 2/1000, step 4 of 2,000: step_loss 0.1235"]


class TestWords:
    @pytest.mark.parametrize(
        ("ready", "sentence"),
        [
            (prepared("torch", "2.13.0", "cpu", "CPU", 1), "torch 2.13.0 computes on the CPU, 1 thread."),
            (
                prepared("tensorflow", "2.21.0", "cuda", "NVIDIA H200", 4),
                "tensorflow 2.21.0 computes on CUDA: NVIDIA H200, 4 threads.",
            ),
            (
                prepared("torch", "2.13.0", "cpu", "Card", 2, simulated=True),
                "torch 2.13.0 computes on the CPU in place of the simulated Card, 2 threads.",
            ),
        ],
    )
    def test_what_computes_is_named(self, ready: Prepared, sentence: str) -> None:
        assert on_what(ready) == sentence

    def test_values_have_four_digits_and_may_be_no_numbers(self) -> None:
        values = {"loss": 123456.0, "val_loss": float("nan"), "rate": 1e-7}

        assert written(values) == "loss 1.235e+05, val_loss nan, rate 1e-07"

    def test_a_log_that_nobody_takes_is_no_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Broken:
            def write(self, _text: str) -> int:
                raise BrokenPipeError

            def flush(self) -> None:
                raise BrokenPipeError

        monkeypatch.setattr("sys.stdout", Broken())

        assert say("a line") is None  # type: ignore[func-returns-value]  # that it returns is the point
