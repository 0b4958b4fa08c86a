"""What a loaded file must answer: the model's own outputs, by NumPy in float64 and as the framework gave them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from app.spec.layers import EmbeddingLayer, walk
from app.spec.training import Precision
from workers.exports.request import CannotExport
from workers.model_file import Description, forward, read, read_probe, softmax
from workers.model_file.rounding import room_for_rounding

Values = NDArray[np.floating]

TOLERANCE: Final = 1e-5
"""How far an output may be from the exact one, in units of the largest output (at least 1)."""

_ROUNDING: Final = 4.0
"""A model that loses more than `TOLERANCE` to float32 by itself may lose this many times as much in another program."""

_LOOSE: Final[Mapping[Precision, float]] = {"float32": 1e-3, "bfloat16": 0.1, "float16": 0.02}
"""For the framework's own outputs where it did not compute in plain float32: on a card, whose convolutions may round to
TF32, or in half precision. The exact outputs hold such a model to `TOLERANCE` as any other."""

_ROWS: Final = 8


@dataclass(frozen=True)
class Reference:
    """Encoded rows, their exact outputs, and those of the framework (None for a model without a probe)."""

    description: Description
    x: NDArray[np.float32]
    exact: NDArray[np.float64]
    tolerance: float
    framework: Values | None
    framework_tolerance: float

    @classmethod
    def of(cls, model: Path) -> Self:
        """Compute it from the model's files.

        Raises:
            UnreadableModel: they are not what they should be.
        """
        description, weights = read(model)
        probe = read_probe(model)
        x = _drawn(description) if probe is None else probe.x.astype(np.float32)
        if x.shape[1:] != description.input_shape or not np.isfinite(x).all():
            raise CannotExport("The probe beside the model has rows that the model does not take.")
        precise = {name: value.astype(np.float64) for name, value in weights.items()}
        exact = forward(description.layers, precise, x.astype(np.float64)).astype(np.float64)
        plain = forward(description.layers, weights, x)
        tolerance = max(TOLERANCE, _ROUNDING * _distance(plain, exact, exact))
        loose = _loose(description)
        if loose > TOLERANCE:
            room = room_for_rounding(description.layers, weights, x, _precision(description), plain)
            loose += room / _scale(exact)
        return cls(description, x, exact, tolerance, None if probe is None else probe.outputs, max(tolerance, loose))

    def check(self, program: str, found: Values, rows: slice = slice(None)) -> None:
        """Compare the outputs that a program computed for these rows.

        Raises:
            CannotExport: they are something else; the sentence says by how much.
        """
        _compare(program, "the model's own", found, self.exact[rows], self.exact, self.tolerance)
        if self.framework is not None:
            _compare(program, "the framework's", found, self.framework[rows], self.exact, self.framework_tolerance)

    def check_answer(self, program: str, found: Values, rows: slice = slice(None)) -> None:
        """Compare probabilities, or values in the target's own unit. Raises as `check`."""
        scaling = self.description.target_scaling
        if self.description.classes is not None:
            answers = softmax(self.exact)
        else:
            answers = self.exact if scaling is None else self.exact * scaling.scale[0] + scaling.mean[0]
        _compare(program, "the model's own answers", found, answers[rows], answers, 2 * self.tolerance)


def _compare(program: str, whose: str, found: Values, wanted: Values, every: Values, tolerance: float) -> None:
    if found.shape != wanted.shape:
        raise CannotExport(f"Loaded in {program}, it gives the shape {found.shape} instead of {wanted.shape}.")
    error = _distance(found, wanted, every)
    if not error <= tolerance:  # not a number, too
        raise CannotExport(
            f"Loaded in {program}, its outputs differ from {whose} by {error:.1e} of the largest one; "
            f"{tolerance:.0e} is allowed."
        )


def _distance(found: Values, wanted: Values, every: Values) -> float:
    return float(np.abs(found.astype(np.float64) - wanted).max()) / _scale(every)


def _scale(outputs: Values) -> float:
    return max(1.0, float(np.abs(outputs).max()))


def _loose(description: Description) -> float:
    precision = _precision(description)
    exactly = precision == "float32" and description.spec.get("device_type") != "cuda"
    return TOLERANCE if exactly else _LOOSE[precision]


def _precision(description: Description) -> Precision:
    """A model of before there was a choice was trained in float32."""
    found = (description.spec.get("hyperparameters") or {}).get("precision", "float32")
    return found if found in _LOOSE else "float32"


def _drawn(description: Description) -> NDArray[np.float32]:
    """Rows for a model that has no probe: whole numbers where a table looks them up, else a normal draw."""
    shape = (_ROWS, *description.input_shape)
    tables = [layer.input_dim for layer in walk(description.layers) if isinstance(layer, EmbeddingLayer)]
    random = np.random.default_rng(0)
    drawn = random.integers(0, min(tables), shape) if tables else random.normal(size=shape)
    return drawn.astype(np.float32)
