"""Metrics: of training from sums that a device adds up, of validation and test from the model's outputs.

While training, the sums are (loss, hits) for classification and (loss, absolute errors, squared errors) for regression,
in standardised units; a device adds up, and once per report the sums are read and turned into numbers here. `mae` and
`rmse` are brought back to the target's own unit, `r2` has none. Losses are without the l1 and l2 terms, so that `loss`
and `val_loss` can be compared; class weights are in the training loss alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from workers.data.reports import report
from workers.data.scores import (
    confusion,
    log_softmax,
    loss_of_rows,
    mean_of_known,
    places,
    precision_recall_f1,
    roc_auc,
)

__all__ = ["Sums", "Task", "Yardstick", "evaluate", "no_sums", "readings", "report"]

Sums = NDArray[np.float64]
Task = Literal["classification", "regression"]

_WIDTH: Final[dict[Task, int]] = {"classification": 2, "regression": 3}
_TOP: Final = {"top_3": 3, "top_5": 5}


@dataclass(frozen=True)
class Yardstick:
    """What a part's sums are measured with: its row count, the target's unit, and how much the target varies.

    `variation` is the sum of squared distances from the part's own mean, in standardised units; `r2` is undefined (NaN,
    left out of reports) where the target does not vary.
    """

    task: Task
    rows: int
    unit: float = 1.0
    variation: float = 0.0

    @classmethod
    def of(cls, task: Task, targets: NDArray[np.generic], unit: float = 1.0) -> "Yardstick":
        if task == "classification":
            return cls(task, len(targets))
        return cls(task, len(targets), unit, _variation(targets))


def no_sums(task: Task) -> Sums:
    return np.zeros(_WIDTH[task])


def readings(sums: Sums, yardstick: Yardstick, metrics: Sequence[str]) -> dict[str, float]:
    """Return `loss` and those of the metrics that sums can tell, by name; the sums cover the whole part, not empty.

    Of a classification that is `accuracy` alone: the others need every row's outputs, and are measured on the
    validation and the test part.
    """
    rows = yardstick.rows
    values = {"loss": float(sums[0]) / rows}
    if yardstick.task == "classification":
        values["accuracy"] = float(sums[1]) / rows
    else:
        values |= _errors(float(sums[1]) / rows, float(sums[2]) / rows, yardstick.variation / rows, yardstick.unit)
    return {name: value for name, value in values.items() if name == "loss" or name in metrics}


def evaluate(
    outputs: NDArray[np.floating],
    y: NDArray[np.generic],
    task: Task,
    metrics: Sequence[str],
    unit: float,
    loss: str,
) -> dict[str, float]:
    """Return `loss` and the metrics asked for, of a part that is not empty, in float64.

    `outputs`: (rows, units) as the model gives them, logits or standardised predictions. `y`: class numbers (rows,), or
    standardised targets (rows, 1) of which `unit` is one standard deviation. A metric that is
    undefined for this part (r2 of a constant, auc of one class) is left out; outputs that are not finite give a loss
    that is not finite.
    """
    given = np.asarray(outputs, np.float64)
    values = {"loss": float(loss_of_rows(loss, given, y).mean())}
    values |= _of_numbers(given, y, unit) if task == "regression" else _of_classes(given, y.astype(np.int64), metrics)
    return {
        name: value for name, value in values.items() if name == "loss" or (name in metrics and not math.isnan(value))
    }


def _of_classes(logits: NDArray[np.float64], classes: NDArray[np.int64], metrics: Sequence[str]) -> dict[str, float]:
    """Only what is asked for: ranks of every class take longer than a small model's epoch."""
    place = places(logits, classes)
    values = {"accuracy": float((place == 0).mean())}
    values |= {name: float((place < k).mean()) for name, k in _TOP.items()}
    if "f1" in metrics:
        matrix = confusion(classes, logits.argmax(axis=1), logits.shape[1])
        values["f1"] = mean_of_known(precision_recall_f1(matrix)[2])
    if "auc" in metrics:
        values["auc"] = mean_of_known(roc_auc(log_softmax(logits), classes))
    return values


def _of_numbers(outputs: NDArray[np.float64], targets: NDArray[np.generic], unit: float) -> dict[str, float]:
    with np.errstate(over="ignore", invalid="ignore"):
        error = outputs.ravel() - targets.astype(np.float64).ravel()
        return _errors(float(np.abs(error).mean()), float((error**2).mean()), _variation(targets) / len(targets), unit)


def _errors(absolute: float, squared: float, variance: float, unit: float) -> dict[str, float]:
    """From mean absolute and squared errors in standardised units."""
    values = {"mae": absolute * unit, "rmse": math.sqrt(squared) * unit}
    return values | ({"r2": 1.0 - squared / variance} if variance > 0 else {})


def _variation(targets: NDArray[np.generic]) -> float:
    values = targets.astype(np.float64).ravel()
    return float(((values - values.mean()) ** 2).sum()) if len(values) else 0.0
