"""The report: pictures of what was reported, and the numbers behind them."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread
from numpy.testing import assert_array_equal

from tests.workers.exports.models import MODELS, write_model
from workers.data.metrics import report
from workers.data.standardise import Scaling
from workers.exports.report import make, table
from workers.exports.report.curves import draw_losses, draw_metric
from workers.exports.report.outcomes import draw_agreement, draw_classes, draw_confusion, draw_residuals
from workers.exports.report.style import shortened
from workers.exports.request import CannotExport, Request
from workers.exports.series_file import Curve, read_series

EPOCHS = np.arange(1, 9)


def curve(values: Any) -> Curve:
    return Curve(10 * EPOCHS, EPOCHS, np.asarray(values, np.float64))


FALLING = {"loss": curve(1 / EPOCHS), "val_loss": curve(1.1 / EPOCHS), "accuracy": curve(EPOCHS / 8)}


def classified(classes: int = 3, rows: int = 90) -> dict[str, Any]:
    random = np.random.default_rng(0)
    truth = random.integers(0, classes, rows)
    logits = random.normal(size=(rows, classes))
    logits[np.arange(rows), truth] += 2
    labels = ["Adelie", "Chinstrap", "Gentoo", *range(3, classes)][:classes]
    return report(logits, truth, task="classification", loss="cross_entropy", labels=labels)


def regressed(rows: int = 50) -> dict[str, Any]:
    random = np.random.default_rng(0)
    truth = random.normal(size=(rows, 1))
    outputs = truth + random.normal(size=(rows, 1)) / 3
    target = Scaling(np.array([150.0]), np.array([70.0]))
    return report(outputs, truth, task="regression", loss="mse", target=target)


@pytest.fixture
def axes() -> Axes:
    return Figure().subplots()


def drawn(axes: Axes) -> dict[str, np.ndarray]:
    """The lines of a panel by the name that the legend gives them."""
    return {str(line.get_label()): np.asarray(line.get_ydata()) for line in axes.get_lines()}


class TestCurves:
    def test_both_losses_are_drawn_over_epochs(self, axes: Axes) -> None:
        draw_losses(axes, FALLING, 8)

        assert (axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()) == ("Loss", "epoch", "loss")
        assert_array_equal(drawn(axes)["training"], 1 / EPOCHS)
        assert_array_equal(drawn(axes)["validation"], 1.1 / EPOCHS)
        assert axes.get_yscale() == "linear"

    def test_epoch_of_the_saved_model_is_marked_unless_it_is_the_last(self, axes: Axes) -> None:
        draw_losses(axes, FALLING, 5)

        assert "saved model (epoch 5)" in drawn(axes)
        draw_losses(other := Figure().subplots(), FALLING, 8)
        assert set(drawn(other)) == {"training", "validation"}

    def test_loss_that_falls_far_gets_a_logarithmic_axis(self, axes: Axes) -> None:
        draw_losses(axes, {"loss": curve(0.1**EPOCHS)}, None)

        assert axes.get_yscale() == "log"

    def test_what_is_not_finite_is_a_gap(self, axes: Axes) -> None:
        draw_losses(axes, {"loss": curve([1, 2, np.nan, np.inf, 3, 2, 1, -np.inf])}, None)

        assert np.isnan(drawn(axes)["training"]).tolist() == [False, False, True, True, False, False, False, True]

    @pytest.mark.parametrize(
        ("names", "title", "label"),
        [
            (["val_f1", "accuracy"], "Accuracy", "accuracy"),
            (["val_auc"], "AUC", "auc"),
            (["mae", "rmse"], "RMSE", "rmse of price"),
            (["r2"], "R²", "r2"),
        ],
    )
    def test_first_metric_is_drawn_with_its_unit(self, axes: Axes, names: list[str], title: str, label: str) -> None:
        draw_metric(axes, {name: curve(EPOCHS) for name in names}, None, "price")

        assert (axes.get_title(loc="left"), axes.get_ylabel()) == (title, label)

    def test_panel_without_data_says_so(self, axes: Axes) -> None:
        draw_losses(axes, {}, None)
        draw_metric(other := Figure().subplots(), {"learning_rate": curve(EPOCHS)}, None, "price")

        assert [text.get_text() for text in (*axes.texts, *other.texts)] == [
            "No loss was reported.",
            "No metric was reported.",
        ]


class TestOutcomes:
    def test_confusion_matrix_has_every_count_at_its_place(self, axes: Axes) -> None:
        measured = classified()

        draw_confusion(axes, measured, "test")

        assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted class", "true class")
        assert [label.get_text() for label in axes.get_yticklabels()] == ["Adelie", "Chinstrap", "Gentoo"]
        counts = {tuple(map(int, text.get_position())): int(text.get_text()) for text in axes.texts}
        matrix = np.array(measured["confusion_matrix"])
        assert counts == {(c, r): int(n) for (r, c), n in np.ndenumerate(matrix) if n}

    def test_many_classes_are_drawn_without_their_names(self, axes: Axes) -> None:
        draw_confusion(axes, classified(60, 600), "test")

        assert len(axes.texts) == 0
        assert "3" not in [label.get_text() for label in axes.get_yticklabels()]

    def test_classes_are_sorted_the_worst_first(self, axes: Axes) -> None:
        measured = classified()

        draw_classes(axes, measured, "test")

        scores = [bar.get_width() for bar in axes.patches]  # type: ignore[attr-defined] # bars are rectangles
        assert scores == sorted(entry["f1"] for entry in measured["classes"])
        assert axes.get_xlabel().startswith("F1")

    def test_of_many_classes_the_worst_are_shown(self, axes: Axes) -> None:
        draw_classes(axes, classified(60, 600), "test")

        assert axes.get_title(loc="left") == "F1 by class (test part, the 25 lowest of 60)"
        assert len(axes.patches) == 25

    def test_class_without_rows_has_no_f1(self, axes: Axes) -> None:
        measured = {"classes": [{"label": "a", "rows": 0, "f1": None}]}

        draw_classes(axes, measured, "test")

        assert axes.texts[0].get_text() == "No class has an F1."

    def test_agreement_and_residuals_are_in_the_targets_unit(self, axes: Axes) -> None:
        measured = regressed()
        truth, predicted = (np.array(measured["points"][name]) for name in ("truth", "predicted"))

        draw_agreement(axes, measured, "test", "price")
        draw_residuals(other := Figure().subplots(), measured, "test", "price")

        assert_array_equal(np.asarray(axes.collections[0].get_offsets()), np.stack([truth, predicted], axis=1))
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("true price", "predicted price")
        assert sum(bar.get_height() for bar in other.patches) == 50  # type: ignore[attr-defined] # as above
        assert f"mean {(truth - predicted).mean():.3g}" in drawn(other)

    def test_rows_that_are_not_finite_are_left_out(self, axes: Axes) -> None:
        draw_agreement(axes, {"points": {"truth": [1.0, None], "predicted": [2.0, 3.0]}}, "test", "price")
        draw_residuals(other := Figure().subplots(), {"points": {"truth": [None], "predicted": [1.0]}}, "test", "price")

        assert len(np.asarray(axes.collections[0].get_offsets())) == 1
        assert other.texts[0].get_text() == "There is no row to show."

    @pytest.mark.parametrize(
        ("label", "shown"), [("a" * 30, "a" * 17 + "…"), ("US$ 5", r"US\$ 5"), (True, "True"), (2.5, "2.5")]
    )
    def test_labels_are_cut_and_are_no_formulas(self, label: object, shown: str) -> None:
        assert shortened(label) == shown


class TestMake:
    def write(self, tmp_path: Path, evaluation: object, curves: dict[str, Curve], **model: Any) -> Path:
        """Make a report; gives its folder."""
        shape, layers = MODELS["dense"]
        folder = write_model(tmp_path / "model", layers, shape, **model)
        (tmp_path / "evaluation.json").write_text(json.dumps(evaluation))
        series = {
            name: {"step": points.step.tolist(), "epoch": points.epoch.tolist(), "value": points.value.tolist()}
            for name, points in curves.items()
        }
        (tmp_path / "series.json").write_text(json.dumps(series))
        request = Request(folder, tmp_path, tmp_path / "series.json", tmp_path / "evaluation.json")
        assert [file.name for file in make.make(request)] == ["report.png", "metrics.csv"]
        return tmp_path

    @pytest.mark.parametrize(("task", "part"), [("classification", classified()), ("regression", regressed())])
    def test_every_panel_of_the_picture_shows_something(self, tmp_path: Path, task: str, part: dict[str, Any]) -> None:
        folder = self.write(tmp_path, {"epoch": 3, "validation": part, "test": {"rows": 0}}, FALLING, task=task)

        picture = imread(folder / "report.png")
        height, width = picture.shape[0] // 2, picture.shape[1] // 2
        assert (height, width) == (552, 715)  # 11 × 8.5 inches at 130 dots an inch, halved
        for rows in (slice(0, height), slice(height, None)):
            for columns in (slice(0, width), slice(width, None)):
                inked = (picture[rows, columns, :3] < 0.9).any(axis=2)
                assert inked.mean() > 0.01

    @pytest.mark.parametrize("evaluation", [{}, {"epoch": 1, "validation": {"rows": 0}, "test": {"rows": 0}}])
    def test_model_that_nothing_was_measured_of_has_a_report_too(self, tmp_path: Path, evaluation: object) -> None:
        folder = self.write(tmp_path, evaluation, {})

        assert (folder / "metrics.csv").read_text() == "step,epoch\n"

    def test_test_part_comes_before_the_validation_part(self) -> None:
        evaluation = {"validation": classified(), "test": classified(rows=30)}

        assert make._summary(evaluation, "test").startswith("The saved model on the test part, 30 rows:  loss ")

    @pytest.mark.parametrize("content", ["{", "[1]"])
    def test_evaluation_that_is_none_is_refused(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "evaluation.json").write_text(content)

        with pytest.raises(CannotExport, match="The evaluation of the model cannot be read"):
            make._evaluation(tmp_path / "evaluation.json")


class TestMetrics:
    def test_one_row_per_step_and_one_column_per_series(self, tmp_path: Path) -> None:
        inside = Curve(np.array([5, 10]), np.array([1, 1]), np.array([3.0, 1e-9]))
        ends = Curve(np.array([10, 20]), np.array([1, 2]), np.array([0.1, math.inf]))

        table.write_metrics(tmp_path / "m.csv", {"step_loss": inside, "loss": ends, "lr": Curve(*3 * (np.array([]),))})

        assert (tmp_path / "m.csv").read_text().splitlines() == [
            "step,epoch,loss,lr,step_loss",
            "5,1,,,3.0",
            "10,1,0.1,,1e-09",
            "20,2,Infinity,,",
        ]

    def test_numbers_survive_to_the_last_bit(self, tmp_path: Path) -> None:
        values = np.random.default_rng(0).normal(size=8) * 10.0 ** np.arange(-200, 200, 50)

        table.write_metrics(tmp_path / "m.csv", {"loss": curve(values)})

        with (tmp_path / "m.csv").open(newline="") as file:
            assert [float(row["loss"]) for row in csv.DictReader(file)] == values.tolist()


class TestSeries:
    def test_empty_series_are_left_out_and_words_are_numbers(self, tmp_path: Path) -> None:
        path = tmp_path / "series.json"
        full = {"step": [1, 2], "epoch": [1, 1], "value": ["NaN", "-Infinity"], "attempt": [1, 1], "total": 2}
        path.write_text(json.dumps({"loss": full, "none": {"step": [], "epoch": [], "value": []}}))

        found = read_series(path)

        assert list(found) == ["loss"]
        assert math.isnan(found["loss"].value[0])
        assert found["loss"].value[1] == -math.inf

    def test_without_a_file_there_are_none(self) -> None:
        assert read_series(None) == {}

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "[]",
            '{"a": 1}',
            '{"a": {"step": [1]}}',
            '{"a": {"step": [1], "epoch": [1], "value": ["much"]}}',
            '{"a": {"step": [1, 2], "epoch": [1], "value": [1.0]}}',
        ],
    )
    def test_anything_else_is_refused(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "series.json").write_text(content)

        with pytest.raises(CannotExport, match="The series of the job cannot be read"):
            read_series(tmp_path / "series.json")
