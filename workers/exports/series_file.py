"""The series of a job as the worker hands them over: a JSON file, arrays by name."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.series.nonfinite import from_json
from workers.exports.request import CannotExport


@dataclass(frozen=True)
class Curve:
    """One series, in order of step; arrays of one length. Values may be NaN or infinite."""

    step: NDArray[np.int64]
    epoch: NDArray[np.int64]
    value: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.step)


def read_series(path: Path | None) -> dict[str, Curve]:
    """Read the file; no file, no series. Empty series are left out.

    Raises:
        CannotExport: it is no such file.
    """
    if path is None:
        return {}
    try:
        found = json.loads(path.read_bytes())
        curves = {name: _curve(points) for name, points in found.items()}
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        raise CannotExport(f"The series of the job cannot be read ({type(error).__name__}: {error}).") from error
    return {name: curve for name, curve in curves.items() if len(curve)}


def _curve(points: dict[str, list[float | str]]) -> Curve:
    value = np.array([from_json(value) for value in points["value"]], np.float64)
    curve = Curve(np.array(points["step"], np.int64), np.array(points["epoch"], np.int64), value)
    if not len(curve.step) == len(curve.epoch) == len(curve.value):
        raise ValueError("arrays of different lengths")
    return curve
