"""How right the saved model is, from one part of evaluation.json."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from workers.exports.report.style import MAP, QUIET, TRAINING, VALIDATION, note, shortened

_NUMBERED: Final = 20
"""Up to so many classes, the cells of a confusion matrix have their numbers written in."""
_NAMED: Final = 40
_HALF_NAMED: Final = 12
"""Over so many classes, their names are written smaller and shorter."""
_BARS: Final = 25
_HALF: Final = 0.5


def draw_confusion(axes: Axes, measured: Mapping[str, Any], part: str) -> None:
    """Draw truth against prediction; the shade is the share of the class's rows, the number is how many."""
    axes.set_title(f"Confusion matrix ({part} part)", loc="left")
    matrix = np.array(measured["confusion_matrix"], np.int64)
    size = 18 if len(matrix) <= _HALF_NAMED else 12
    labels = [shortened(entry["label"], size) for entry in measured["classes"]]
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap=MAP, vmin=0, vmax=1, aspect="auto")
    axes.grid(visible=False)
    if len(labels) <= _NUMBERED:
        _write_numbers(axes, matrix, shares)
    if len(labels) <= _NAMED:
        slanted = max(map(len, labels)) * len(labels) > 50  # noqa: PLR2004 - about the characters of an axis
        font = 8 if len(labels) <= _HALF_NAMED else 6
        turned: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
        axes.set_xticks(range(len(labels)), labels, fontsize=font, **turned)
        axes.set_yticks(range(len(labels)), labels, fontsize=font)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")


def _write_numbers(axes: Axes, matrix: NDArray[np.int64], shares: NDArray[np.float64]) -> None:
    size = 9 if len(matrix) <= 10 else 6  # noqa: PLR2004 - as many digits fit into a cell
    for (row, column), count in np.ndenumerate(matrix):
        if count:
            colour = "white" if shares[row, column] > _HALF else "black"
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=colour, fontsize=size)


def draw_classes(axes: Axes, measured: Mapping[str, Any], part: str) -> None:
    """Draw F1 of each class, the worst of many."""
    classes = [entry for entry in measured["classes"] if entry["f1"] is not None]
    shown = sorted(classes, key=lambda entry: float(entry["f1"]))[:_BARS]
    which = f", the {_BARS} lowest of {len(classes)}" if len(classes) > _BARS else ""
    axes.set_title(f"F1 by class ({part} part{which})", loc="left")
    if not shown:
        note(axes, "No class has an F1.")
        return
    places = range(len(shown))
    bars = axes.barh(places, [entry["f1"] for entry in shown], color=TRAINING, height=0.7)
    axes.bar_label(bars, fmt="%.3f", padding=3, fontsize=7, color=QUIET)
    axes.set_yticks(places, [f"{shortened(entry['label'])} ({entry['rows']:,})" for entry in shown], fontsize=7)
    axes.set_xlim(0, 1.08)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.set_xlabel("F1; in brackets how many rows the class has")
    axes.grid(visible=False, axis="y")
    axes.invert_yaxis()


def draw_agreement(axes: Axes, measured: Mapping[str, Any], part: str, target: str) -> None:
    """Draw prediction against truth; on the line they are equal."""
    axes.set_title(f"Prediction and truth ({part} part)", loc="left")
    truth, predicted = _points(measured)
    if not len(truth):
        note(axes, "There is no row to show.")
        return
    both = np.concatenate([truth, predicted])
    ends = (both.min(), both.max())
    axes.plot(ends, ends, color=QUIET, linewidth=1, linestyle="--", label="equal")
    axes.scatter(truth, predicted, s=12, alpha=0.6, color=TRAINING, linewidths=0, label=f"{len(truth):,} rows")
    axes.set_xlabel(f"true {target}")
    axes.set_ylabel(f"predicted {target}")
    axes.legend(labelcolor=QUIET)


def draw_residuals(axes: Axes, measured: Mapping[str, Any], part: str, target: str) -> None:
    """Draw how the errors, truth minus prediction, are spread."""
    axes.set_title(f"Residuals ({part} part)", loc="left")
    truth, predicted = _points(measured)
    if not len(truth):
        note(axes, "There is no row to show.")
        return
    residuals = truth - predicted
    axes.hist(residuals, bins=int(np.clip(np.sqrt(len(residuals)), 5, 40)), color=TRAINING, edgecolor="white")
    axes.axvline(0, color=QUIET, linewidth=1)
    mean = float(residuals.mean())
    axes.axvline(mean, color=VALIDATION, linewidth=1.2, linestyle="--", label=f"mean {mean:.3g}")
    axes.set_xlabel(f"true minus predicted {target}")
    axes.set_ylabel("rows")
    axes.legend(labelcolor=QUIET)


def _points(measured: Mapping[str, Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Truth and prediction where both are finite (JSON has None for what is not)."""
    points: Mapping[str, Sequence[float | None]] = measured["points"]
    truth, predicted = (np.array(points[name], np.float64) for name in ("truth", "predicted"))
    known = np.isfinite(truth) & np.isfinite(predicted)
    return truth[known], predicted[known]
