"""The curves of a training: losses, and the first metric, over epochs."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from workers.exports.report.style import GOOD, QUIET, TRAINING, VALIDATION, note
from workers.exports.series_file import Curve

_METRICS: Final = ("accuracy", "f1", "auc", "rmse", "mae", "r2")
_DECADES: Final = 50.0
"""A loss that falls by more than this factor is drawn on a logarithmic axis."""
_FEW: Final = 30

_TITLES: Final = {"accuracy": "Accuracy", "f1": "F1 (macro)", "auc": "AUC", "rmse": "RMSE", "mae": "MAE", "r2": "R²"}


def draw_losses(axes: Axes, curves: Mapping[str, Curve], saved_epoch: int | None) -> None:
    """Draw training and validation loss; `saved_epoch` is the epoch of the saved model."""
    axes.set_title("Loss", loc="left")
    if not _draw_pair(axes, curves, "loss", saved_epoch):
        note(axes, "No loss was reported.")
        return
    values = np.concatenate([curves[name].value for name in ("loss", "val_loss") if name in curves])
    values = values[np.isfinite(values)]
    if len(values) and values.min() > 0 and values.max() > _DECADES * values.min():
        axes.set_yscale("log")
    axes.set_ylabel("loss")


def draw_metric(axes: Axes, curves: Mapping[str, Curve], saved_epoch: int | None, target: str) -> None:
    """Draw the first metric that was reported; errors are in the unit of the target."""
    name = next((name for name in _METRICS if name in curves or f"val_{name}" in curves), None)
    if name is None:
        axes.set_title("Metric", loc="left")
        note(axes, "No metric was reported.")
        return
    axes.set_title(_TITLES[name], loc="left")
    _draw_pair(axes, curves, name, saved_epoch)
    axes.set_ylabel(f"{name} of {target}" if name in {"rmse", "mae"} else name)


def _draw_pair(axes: Axes, curves: Mapping[str, Curve], name: str, saved_epoch: int | None) -> bool:
    pairs = [(name, "training", TRAINING), (f"val_{name}", "validation", VALIDATION)]
    drawn = [(curves[key], label, colour) for key, label, colour in pairs if key in curves]
    for curve, label, colour in drawn:
        marker = "o" if len(curve) <= _FEW else ""
        value = np.where(np.isfinite(curve.value), curve.value, np.nan)
        axes.plot(curve.epoch, value, label=label, color=colour, marker=marker, markersize=3)
    if not drawn:
        return False
    last = max(int(curve.epoch[-1]) for curve, _, _ in drawn)
    if saved_epoch is not None and 0 < saved_epoch < last:
        axes.axvline(saved_epoch, color=GOOD, linestyle="--", linewidth=1, label=f"saved model (epoch {saved_epoch})")
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(labelcolor=QUIET)
    return True
