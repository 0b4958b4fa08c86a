"""metrics.csv: one row per step at which something was reported, one column per series."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from app.series.nonfinite import to_json
from workers.exports.series_file import Curve

NAME: Final = "metrics.csv"


def write_metrics(path: Path, curves: Mapping[str, Curve]) -> None:
    """Write `step,epoch,<series>…`; empty where a series has no point, and the words NaN, Infinity, -Infinity."""
    names = sorted(curves)
    rows: dict[tuple[int, int], dict[str, float | str]] = {}
    for name in names:
        curve = curves[name]
        for step, epoch, value in zip(curve.step.tolist(), curve.epoch.tolist(), curve.value.tolist(), strict=True):
            rows.setdefault((step, epoch), {})[name] = to_json(value)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", "epoch", *names])
        writer.writerows(
            [step, epoch, *(rows[step, epoch].get(name, "") for name in names)] for step, epoch in sorted(rows)
        )
