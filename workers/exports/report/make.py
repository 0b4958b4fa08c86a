"""Draw report.png and write metrics.csv."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from workers.exports.described import description_of
from workers.exports.report import table
from workers.exports.report.curves import draw_losses, draw_metric
from workers.exports.report.outcomes import draw_agreement, draw_classes, draw_confusion, draw_residuals
from workers.exports.report.style import DPI, QUIET, note, shortened, style
from workers.exports.request import CannotExport, Made, Request
from workers.exports.series_file import Curve, read_series
from workers.model_file import Description, PythonDescription

NAME: Final = "report.png"
_PARTS: Final = ("test", "validation")
_SHOWN: Final = ("loss", "accuracy", "balanced_accuracy", "f1", "auc", "rmse", "mae", "r2")
_SIZE: Final = (11.0, 8.5)


def make(request: Request) -> list[Made]:
    """Make both files from what there is; a panel without data says so."""
    description = description_of(request.model)
    curves = read_series(request.series)
    evaluation = _evaluation(request.evaluation)
    with style():
        _draw(description, curves, evaluation).savefig(
            request.output / NAME, dpi=DPI, metadata={"Software": "Trainshed"}
        )
    table.write_metrics(request.output / table.NAME, curves)
    return [Made(NAME, "image/png", "report"), Made(table.NAME, "text/csv", "report")]


def _draw(
    description: Description | PythonDescription, curves: Mapping[str, Curve], evaluation: Mapping[str, Any]
) -> Figure:
    figure = Figure(figsize=_SIZE, layout="constrained")
    FigureCanvasAgg(figure)  # draws without a display, and without the registry of open figures
    panels = figure.subplots(2, 2)
    part = next((name for name in _PARTS if evaluation.get(name, {}).get("rows")), None)
    saved = evaluation.get("epoch")
    target = shortened(description.target, 24)
    draw_losses(panels[0][0], curves, saved)
    draw_metric(panels[0][1], curves, saved, target)
    _outcome(panels[1][0], panels[1][1], evaluation, part, target)
    figure.suptitle(_title(description), x=0.01, ha="left", fontsize=14, fontweight="bold")
    figure.supxlabel(_summary(evaluation, part), x=0.01, ha="left", fontsize=9, color=QUIET)
    return figure


def _outcome(left: Axes, right: Axes, evaluation: Mapping[str, Any], part: str | None, target: str) -> None:
    if part is None:
        note(left, "There was no validation or test part to measure the model on.")
        right.set_axis_off()
    elif "confusion_matrix" in evaluation[part]:
        draw_confusion(left, evaluation[part], part)
        draw_classes(right, evaluation[part], part)
    else:
        draw_agreement(left, evaluation[part], part, target)
        draw_residuals(right, evaluation[part], part, target)


def _title(description: Description | PythonDescription) -> str:
    spec = description.spec
    model = (spec.get("model") or {}).get("type", "model")
    name = f"{shortened(spec['name'], 60)}: " if spec.get("name") else ""
    return f"{name}{model} for '{shortened(description.target, 30)}', trained with {description.framework}"


def _summary(evaluation: Mapping[str, Any], part: str | None) -> str:
    if part is None:
        return " "
    measured = evaluation[part]
    values = [f"{name} {measured['metrics'][name]:.4g}" for name in _SHOWN if _number(measured["metrics"].get(name))]
    return f"The saved model on the {part} part, {measured['rows']:,} rows:  " + ",  ".join(values)


def _number(value: object) -> bool:
    return isinstance(value, int | float)


def _evaluation(path: Path | None) -> dict[str, Any]:
    """Read the file; no file, nothing measured.

    Raises:
        CannotExport: it is no such file.
    """
    if path is None:
        return {}
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CannotExport(f"The evaluation of the model cannot be read ({error}).") from error
    if not isinstance(found, dict):
        raise CannotExport("The evaluation of the model cannot be read (it is no object).")
    return found
