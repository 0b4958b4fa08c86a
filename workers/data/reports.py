"""The evaluation report: all that is measured of one part at the end, ready to be written as JSON."""

import math
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from workers.data.labels import Label
from workers.data.scores import (
    Classes,
    Floats,
    confusion,
    log_softmax,
    loss_of_rows,
    mean_of_known,
    places,
    precision_recall_f1,
    roc_auc,
)
from workers.data.standardise import Scaling

_QUANTILES: Final = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_POINTS: Final = 1000
_CONFUSIONS: Final = 20
_TOP: Final = (3, 5)


def report(
    outputs: NDArray[np.floating],
    y: NDArray[np.generic],
    *,
    task: Literal["classification", "regression"],
    loss: str,
    labels: Sequence[Label] | None = None,
    target: Scaling | None = None,
) -> dict[str, Any]:
    """Measure a part from the model's outputs; `outputs` and `y` as `evaluate` takes them.

    Classification needs `labels`, the classes in order: the answer has `metrics`, `classes` (each with its label, rows,
    how often it was predicted, precision, recall, f1, auc), `confusion_matrix` (rows are the truth, in the order of
    `classes`) and `confusions` (the most frequent mistakes). Regression takes `target`, the scaling of the target: the
    answer has `metrics`, `residuals` (truth minus prediction, in the target's own unit: mean, quantiles) and `points`,
    truth and prediction of at most 1000 rows for a plot. What is undefined or not finite is None. An empty part gives
    `rows: 0` and nothing else.
    """
    rows = len(y)
    if not rows:
        return {"rows": 0}
    given = np.asarray(outputs, np.float64)
    mean_loss = float(loss_of_rows(loss, given, y).mean())
    if task == "regression":
        found = _regression(given, y, target or Scaling.identity(1))
    else:
        found = _classification(given, y.astype(np.int64), labels or tuple(range(given.shape[1])))
    metrics = {"loss": mean_loss} | found.pop("metrics")
    plain: dict[str, Any] = _finite({"rows": rows, "task": task, "metrics": metrics} | found)
    return plain


def _classification(logits: Floats, classes: Classes, labels: Sequence[Label]) -> dict[str, Any]:
    count = logits.shape[1]
    matrix = confusion(classes, logits.argmax(axis=1), count)
    precision, recall, f1 = precision_recall_f1(matrix)
    areas = roc_auc(log_softmax(logits), classes)
    place = places(logits, classes)
    metrics = {
        "accuracy": float((place == 0).mean()),
        "balanced_accuracy": mean_of_known(recall),
        "f1": mean_of_known(f1),
        "auc": mean_of_known(areas),
    } | {f"top_{k}": float((place < k).mean()) for k in _TOP if count > k}
    columns = (matrix.sum(axis=1), matrix.sum(axis=0), precision, recall, f1, areas)
    names = ("rows", "predicted", "precision", "recall", "f1", "auc")
    return {
        "metrics": metrics,
        "classes": [
            {"label": label, **dict(zip(names, values, strict=True))}
            for label, *values in zip(labels, *(column.tolist() for column in columns), strict=True)
        ],
        "confusion_matrix": matrix.tolist(),
        "confusions": _worst(matrix, labels),
    }


def _worst(matrix: Classes, labels: Sequence[Label]) -> list[dict[str, Any]]:
    """The most frequent mistakes, the most frequent first."""
    mistakes = matrix - np.diag(np.diag(matrix))
    order = np.argsort(-mistakes, axis=None, kind="stable")[:_CONFUSIONS]
    cells = [divmod(int(cell), len(labels)) for cell in order]
    return [
        {"truth": labels[truth], "predicted": labels[said], "rows": int(mistakes[truth, said])}
        for truth, said in cells
        if mistakes[truth, said]
    ]


def _regression(outputs: Floats, targets: NDArray[np.generic], target: Scaling) -> dict[str, Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        truth = target.undo(targets.astype(np.float64).reshape(-1, 1)).ravel()
        predicted = target.undo(outputs.reshape(-1, 1)).ravel()
        residuals = truth - predicted
        variance = float(truth.var())
        squared = float((residuals**2).mean())
    absolute = np.abs(residuals)
    shown = np.unique(np.linspace(0, len(truth) - 1, min(_POINTS, len(truth))).round().astype(np.int64))
    return {
        "metrics": {
            "mae": float(absolute.mean()),
            "rmse": math.sqrt(squared),
            "r2": 1.0 - squared / variance if variance > 0 else math.nan,
            "median_absolute_error": float(np.median(absolute)),
            "largest_error": float(absolute.max()),
        },
        "residuals": {
            "mean": float(residuals.mean()),
            "quantiles": dict(zip(map(str, _QUANTILES), np.quantile(residuals, _QUANTILES).tolist(), strict=True)),
        },
        "points": {"truth": truth[shown].tolist(), "predicted": predicted[shown].tolist()},
    }


def _finite(value: Any) -> Any:  # noqa: ANN401 - any part of a JSON document
    """Replace numbers that JSON cannot write by None."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
