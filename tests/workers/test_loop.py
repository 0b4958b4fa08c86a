"""The training loop: what it reports, when it stops, how it fails, what it leaves."""

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from app.errors import Cause
from app.tables import InvalidTable
from tests.workers.backends.fake import DeviceFull, NumpyBackend
from tests.workers.training_jobs import Listener, Ticking, builtin_job, csv_job
from workers.backends.base import Backend, Diverged, TrainingFailed, load_backend
from workers.context import NullContext
from workers.data.split import TooFewRows
from workers.loop import train
from workers.protocol import Assignment

SPLIT = {"validation": 0.2, "test": 0.2}


def job(work_dir: Path, data: str = "iris", *, split: dict[str, Any] | None = None, **settings: object) -> Assignment:
    """Make a quick job; `settings` are hyperparameters."""
    quick = {"epochs": 3, "batch_size": 16, "learning_rate": 0.01, **settings}
    return builtin_job(work_dir, {"source": data, "split": split or SPLIT}, hyperparameters=quick)


def ready(backend: Backend, assignment: Assignment) -> Backend:
    backend.prepare(assignment.devices, assignment.threads)
    return backend


def fail_at(step: int, error: Exception) -> Callable[[int], None]:
    def check(number: int) -> None:
        if number == step:
            raise error

    return check


class TestReports:
    def test_each_epoch_has_each_value_once_at_its_last_step(self, tmp_path: Path) -> None:
        listener = Listener()

        train(job(tmp_path), NumpyBackend(), listener)

        # 90 of 150 rows are for training: five batches of 16 and one of 10.
        for name in ("loss", "accuracy", "val_loss", "val_accuracy", "learning_rate", "samples_per_s"):
            found = [(point.epoch, point.step) for point in listener.points if point.name == name]
            assert found == [(1, 6), (2, 12), (3, 18)], name
        assert {point.name for point in listener.points if point.name.startswith("test_")} == {
            "test_loss",
            "test_accuracy",
        }

    def test_regression_reports_its_own_metrics(self, tmp_path: Path) -> None:
        done = train(job(tmp_path, "diabetes", epochs=1), NumpyBackend(), NullContext())

        names = {"loss", "mae", "rmse", "r2"}
        assert set(done.metrics) == {
            *names,
            *(f"val_{name}" for name in names),
            *(f"test_{name}" for name in names),
            "learning_rate",
            "samples_per_s",
        }
        # The targets run from 25 to 346 with a standard deviation of 77: an untrained model is about that far off.
        assert 30 < done.metrics["rmse"] < 120

    def test_only_the_metrics_asked_for(self, tmp_path: Path) -> None:
        assignment = builtin_job(tmp_path, "diabetes", metrics=["mae"], hyperparameters={"epochs": 1})

        done = train(assignment, NumpyBackend(), NullContext())

        assert set(done.metrics) == {"loss", "mae", "val_loss", "val_mae", "learning_rate", "samples_per_s"}

    def test_without_validation_and_test_there_is_only_training(self, tmp_path: Path) -> None:
        done = train(job(tmp_path, split={"validation": 0.0, "test": 0.0}), NumpyBackend(), NullContext())

        assert set(done.metrics) == {"loss", "accuracy", "learning_rate", "samples_per_s"}

    def test_learning_rate_is_that_of_the_epochs_last_step(self, tmp_path: Path) -> None:
        listener = Listener()
        assignment = job(tmp_path, schedule={"name": "cosine"}, learning_rate=0.1)

        train(assignment, NumpyBackend(), listener)

        expected = [0.05 * (1 + math.cos(math.pi * step / 18)) for step in (5, 11, 17)]
        assert listener.series("learning_rate") == pytest.approx(expected, rel=1e-12)

    def test_epoch_that_lasts_reports_its_progress_and_losses(self, tmp_path: Path) -> None:
        listener = Listener()

        train(job(tmp_path, epochs=2), NumpyBackend(), listener, clock=Ticking(0.3))

        inside = [point for point in listener.points if point.name == "step_loss"]
        assert {point.epoch for point in inside} == {1, 2}
        assert all(point.step % 6 for point in inside)  # the end of an epoch has its own values
        assert all(0 < point.value < 5 for point in inside)
        steps = [report.progress.step for report in listener.reports]
        assert steps == sorted(steps)
        assert listener.reports[-1].progress.fraction == 1.0

    def test_quick_epochs_share_a_report(self, tmp_path: Path) -> None:
        listener = Listener()

        train(job(tmp_path, epochs=20), NumpyBackend(), listener, clock=Ticking(0.001))

        # One before the final checkpoint, which must not be ahead of its series, and one with the test part.
        assert [len(report.points) for report in listener.reports] == [20 * 6, 2]

    def test_progress_foretells_the_rest_from_the_speed(self, tmp_path: Path) -> None:
        listener = Listener()

        train(job(tmp_path, epochs=10), NumpyBackend(), listener, clock=Ticking(0.3))

        # Each chunk takes one tick, and ticks are too long for chunks of more than one step.
        for report in listener.reports[1:]:
            assert report.progress.eta_s == pytest.approx((60 - report.step) * 0.3)

    def test_progress_has_no_forecast_before_anything_was_timed(self, tmp_path: Path) -> None:
        listener = Listener(stop_at=2)

        train(job(tmp_path), NumpyBackend(), listener)

        assert (listener.reports[0].progress.eta_s, listener.reports[0].progress.samples_per_s) == (None, None)


class TestStopping:
    @pytest.mark.parametrize("stop_at", [1, 2, 5, 12])
    def test_leaves_at_the_safe_point_where_it_is_asked(self, tmp_path: Path, stop_at: int) -> None:
        listener = Listener(stop_at=stop_at)

        done = train(job(tmp_path), NumpyBackend(), listener, clock=Ticking(0.3))

        assert done.stopped == "stop"
        assert listener.safe_points == stop_at
        assert listener.artifacts == {}

    def test_says_how_far_it_came(self, tmp_path: Path) -> None:
        listener = Listener(stop_at=4)

        done = train(job(tmp_path), NumpyBackend(), listener, clock=Ticking(0.3))

        # Steps as long as a tick get a chunk each, and the fourth safe point comes after three of them.
        assert listener.reports[-1].progress.step == 3
        assert done.metrics == {}

    def test_keeps_the_values_of_complete_epochs(self, tmp_path: Path) -> None:
        listener = Listener(stop_at=12)

        done = train(job(tmp_path), NumpyBackend(), listener, clock=Ticking(0.3))

        assert "val_loss" in done.metrics
        assert listener.series("loss") == [done.metrics["loss"]]

    def test_a_safe_point_comes_before_each_chunk_however_slow_the_steps(self, tmp_path: Path) -> None:
        quick, slow = Listener(), Listener()

        train(job(tmp_path, epochs=4), NumpyBackend(), quick, clock=Ticking(0.001))
        train(job(tmp_path, epochs=4), NumpyBackend(), slow, clock=Ticking(2.0))

        # With steps of two seconds each step has its own; 4 epochs of 6 steps, 4 validations, 1 test; at the end the
        # probe, and the report on validation and test.
        assert slow.safe_points == 32
        assert quick.safe_points < slow.safe_points


class TestFailing:
    def test_loss_that_is_no_number_ends_the_training_and_is_reported(self, tmp_path: Path) -> None:
        listener = Listener()
        assignment = job(tmp_path, "diabetes", learning_rate=1e30, optimizer={"name": "sgd"}, epochs=50)

        with np.errstate(all="ignore"), pytest.raises(Diverged) as caught:
            train(assignment, NumpyBackend(), listener)

        assert caught.value.cause == Cause.DIVERGED
        assert "Use a smaller hyperparameters.learning_rate, for example 1e+29" in str(caught.value)
        assert not math.isfinite(listener.points[-1].value)
        assert listener.artifacts == {}

    def test_diverging_without_scaling_advises_it(self, tmp_path: Path) -> None:
        data = {"source": "diabetes", "preprocess": {"numeric": "none"}}
        settings = {"learning_rate": 1000.0, "optimizer": "sgd", "epochs": 20}
        assignment = builtin_job(tmp_path, data, hyperparameters=settings)

        with np.errstate(all="ignore"), pytest.raises(Diverged, match=r"or data\.preprocess\.numeric 'standardize'"):
            train(assignment, NumpyBackend(), NullContext())

    def test_framework_without_memory_gets_a_sentence_and_its_cause(self, tmp_path: Path) -> None:
        backend = NumpyBackend(fail_at(7, DeviceFull("allocator says 0x3f")))

        with pytest.raises(TrainingFailed, match=r"Use a smaller hyperparameters\.batch_size, for example 8") as caught:
            train(job(tmp_path), backend, NullContext())

        assert caught.value.cause == Cause.DEVICE_OUT_OF_MEMORY
        assert isinstance(caught.value.__cause__, DeviceFull)

    def test_host_without_memory_is_recognised_in_any_framework(self, tmp_path: Path) -> None:
        with pytest.raises(TrainingFailed, match="host ran out of memory") as caught:
            train(job(tmp_path), NumpyBackend(fail_at(0, MemoryError())), NullContext())

        assert caught.value.cause == Cause.HOST_OUT_OF_MEMORY

    def test_unknown_errors_pass_through(self, tmp_path: Path) -> None:
        with pytest.raises(ZeroDivisionError):
            train(job(tmp_path), NumpyBackend(fail_at(3, ZeroDivisionError())), NullContext())

    def test_table_that_lost_its_column_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "table.csv"
        path.write_text("a,b,y\n" + "".join(f"{n},{n * n},{n % 2}\n" for n in range(40)))
        assignment = csv_job(tmp_path, path, {"target": "y"})
        path.write_text("a,y\n" + "".join(f"{n},{n % 2}\n" for n in range(40)))

        with pytest.raises(InvalidTable, match="no column 'b'"):
            train(assignment, NumpyBackend(), NullContext())

    def test_table_of_which_gaps_leave_too_little_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "table.csv"
        full = "a,b,y\n" + "".join(f"{n},{n},{n}.5\n" for n in range(40))
        path.write_text(full)
        assignment = csv_job(tmp_path, path, {"target": "y", "missing": "drop", "split": {"validation": 0.9}})
        path.write_text("a,b,y\n1,2,3.5\n" + "".join(f"{n},,{n}.5\n" for n in range(40)))

        with pytest.raises(TooFewRows):
            train(assignment, NumpyBackend(), NullContext())


class TestNotices:
    def test_dropped_rows_are_counted(self, tmp_path: Path) -> None:
        path = tmp_path / "table.csv"
        path.write_text("a,y\n" + "".join(f"{n if n % 10 else ''},{n % 2}\n" for n in range(60)))
        listener = Listener()

        train(csv_job(tmp_path, path, {"target": "y", "missing": "drop"}), NumpyBackend(), listener)

        assert listener.notices["rows_dropped"].startswith("6 rows with gaps were left out")

    def test_rare_class_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "table.csv"
        labels = ["a"] * 56 + ["b"] * 3 + ["c"]
        path.write_text("f,label\n" + "".join(f"{n},{label}\n" for n, label in enumerate(labels)))
        listener = Listener()

        train(csv_job(tmp_path, path, {"target": "label"}), NumpyBackend(), listener)

        assert "Class 'c' of 'label' has 1 row." in listener.notices["rare_class"]


class TestArtifacts:
    def test_model_description_and_split_are_handed_over(self, tmp_path: Path) -> None:
        listener = Listener()

        train(job(tmp_path), NumpyBackend(), listener)

        assert {name: (media, kind) for name, (_, media, kind) in listener.artifacts.items()} == {
            "model.safetensors": ("application/octet-stream", "model"),
            "model.json": ("application/json", "model"),
            "probe.safetensors": ("application/octet-stream", "model"),
            "split.safetensors": ("application/octet-stream", "report"),
            "evaluation.json": ("application/json", "report"),
            "environment.json": ("application/json", "environment"),
        }
        for path, _, _ in listener.artifacts.values():
            assert path.is_file()
            assert path.is_relative_to(tmp_path)

    def test_split_names_the_rows_of_each_part_by_their_numbers_in_the_file(self, tmp_path: Path) -> None:
        listener = Listener()

        train(job(tmp_path), NumpyBackend(), listener)

        rows = load_file(listener.artifacts["split.safetensors"][0])
        assert {name: len(numbers) for name, numbers in rows.items()} == {"train": 90, "validation": 30, "test": 30}
        # The header is row 1, so the 150 rows are 2 to 151.
        assert sorted(np.concatenate(list(rows.values())).tolist()) == list(range(2, 152))


class TestClosing:
    @pytest.mark.parametrize("stop_at", [None, 3])
    def test_session_is_closed_at_every_end(self, tmp_path: Path, stop_at: int | None) -> None:
        backend = NumpyBackend()

        train(job(tmp_path), backend, Listener(stop_at=stop_at))

        assert backend.closed == 1

    def test_session_is_closed_after_an_error(self, tmp_path: Path) -> None:
        backend = NumpyBackend(fail_at(3, ZeroDivisionError()))

        with pytest.raises(ZeroDivisionError):
            train(job(tmp_path), backend, NullContext())

        assert backend.closed == 1


class TestEndingEarly:
    def test_progress_is_complete_when_early_stopping_ends_it(self, tmp_path: Path) -> None:
        listener = Listener()

        train(job(tmp_path, epochs=50, learning_rate=1e-30, early_stopping={"patience": 2}), NumpyBackend(), listener)

        last = listener.reports[-1].progress
        assert (last.epoch, last.epochs, last.step, last.fraction) == (3, 50, 18, 1.0)


class TestBatchNorm:
    """Case C49: a last batch of one row joins the batch before it; a batch of one has no variance."""

    @pytest.mark.parametrize("framework", ["numpy", "torch", "tensorflow"])
    @pytest.mark.parametrize(("batch_size", "steps"), [(16, 1), (4, 4), (64, 1), (8, 2), (5, 4)])
    def test_every_row_is_used_and_no_batch_has_one(
        self, tmp_path: Path, framework: str, batch_size: int, steps: int
    ) -> None:
        assignment = csv_job(
            tmp_path,
            Path(__file__).parents[1] / "data" / "seventeen_rows.csv",
            {"target": "label", "split": {"validation": 0.0, "test": 0.0}},
            "torch" if framework == "numpy" else framework,
            model={"type": "mlp", "hidden": [8], "batch_norm": True},
            hyperparameters={"epochs": 3, "batch_size": batch_size},
        )
        backend = NumpyBackend() if framework == "numpy" else ready(load_backend(framework), assignment)
        listener, lines = Listener(), list[str]()

        train(assignment, backend, listener, say=lines.append)

        assert [report.progress.steps for report in listener.reports][-1] == 3 * steps
        assert all(math.isfinite(value) for value in listener.series("loss"))
        assert "17 rows for training, 0 for validation, 0 for the test." in lines[0]


class TestAnyFramework:
    @pytest.mark.parametrize("framework", ["torch", "tensorflow"])
    def test_reported_curve_is_that_of_the_reference(self, tmp_path: Path, framework: str) -> None:
        assignment = builtin_job(
            tmp_path,
            {"source": "wine", "split": SPLIT},
            framework,
            model={"type": "mlp", "hidden": [16], "dropout": 0.3},
            hyperparameters={"epochs": 6, "batch_size": 32, "learning_rate": 0.01, "l2": 1e-3, "schedule": "cosine"},
        )
        listener, reference = Listener(), Listener()

        train(assignment, ready(load_backend(framework), assignment), listener, dtype="float64")
        train(assignment, NumpyBackend(), reference, dtype="float64")

        for name in ("loss", "accuracy", "val_loss", "test_loss", "learning_rate"):
            assert listener.series(name) == pytest.approx(reference.series(name), rel=1e-9), name

    @pytest.mark.parametrize("framework", ["torch", "tensorflow"])
    def test_same_seed_gives_the_same_bits_whatever_the_clock_says(self, tmp_path: Path, framework: str) -> None:
        curves = []
        for seconds in (0.0001, 0.05):
            listener = Listener()
            assignment = job(tmp_path, epochs=4).model_copy(update={"table": job(tmp_path).table})
            train(assignment, ready(load_backend(framework), assignment), listener, clock=Ticking(seconds))
            curves.append((listener.series("loss"), listener.artifacts["model.safetensors"][0].read_bytes()))

        assert curves[0] == curves[1]

    @pytest.mark.parametrize("framework", ["torch", "tensorflow"])
    @pytest.mark.parametrize(
        ("data", "hidden", "epochs", "name", "least"),
        [
            # Logistic regression in scikit-learn reaches 0.96 on such a split of the digits, ridge 0.45 to 0.5 r2 on
            # diabetes: a small network must not be worse.
            ("digits", [64, 64], 25, "test_accuracy", 0.95),
            ("breast_cancer", [32], 30, "test_accuracy", 0.95),
            ("diabetes", [32], 40, "test_r2", 0.4),
        ],
    )
    def test_learns_what_the_data_hold(
        self, tmp_path: Path, framework: str, data: str, hidden: list[int], epochs: int, name: str, least: float
    ) -> None:
        assignment = builtin_job(
            tmp_path,
            {"source": data, "split": {"validation": 0.1, "test": 0.2}},
            framework,
            model={"type": "mlp", "hidden": hidden},
            hyperparameters={"epochs": epochs},
        )
        listener = Listener()

        done = train(assignment, ready(load_backend(framework), assignment), listener)

        assert done.metrics[name] >= least
        assert done.metrics["loss"] < listener.series("loss")[0]
        assert all(later.progress.step >= earlier.progress.step for earlier, later in pairwise(listener.reports))
