"""What early stopping and reduce_on_plateau can look at, and which way is better."""

from typing import Literal, TypeAlias

MonitorName: TypeAlias = Literal[
    "val_loss",
    "val_accuracy",
    "val_top_3",
    "val_top_5",
    "val_f1",
    "val_auc",
    "val_mae",
    "val_rmse",
    "val_r2",
    "loss",
    "accuracy",
    "mae",
    "rmse",
    "r2",
]
"""A value that is reported every epoch; with `val_` it is that of the validation part, else of the training batches."""

_HIGHER = frozenset({"accuracy", "top_3", "top_5", "f1", "auc", "r2"})
_ALSO_HIGHER = _HIGHER | {"acc", "precision", "recall", "iou", "map", "bleu", "score", "reward"}


def higher_is_better(monitor: str) -> bool:
    """Tell whether a larger value is better: true for accuracy, top_3, top_5, f1, auc, r2; false for losses, errors."""
    return monitor.removeprefix("val_").removeprefix("test_") in _HIGHER


def direction_of(metric: str) -> Literal["min", "max"]:
    """Guess which way a metric of a script is better, by the last word of its name: `eval/f1` is max, `loss` is min.

    Max for accuracy, acc, precision, recall, f1, auc, r2, iou, map, bleu, score, reward and top_k; min for all else.
    """
    name = metric.rpartition("/")[2].lower()
    words = name.split("_")
    higher = name in _ALSO_HIGHER or words[-1] in _ALSO_HIGHER or "top" in words
    return "max" if higher else "min"
