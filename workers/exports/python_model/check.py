"""A file that was made of a user's model, loaded as another program would, without the user's code, and compared.

There is no exact answer to compare with, as for a model of our own layers: what counts is what the framework gave for
the probe when the model was handed over.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.spec.training import Precision
from workers.exports.onnx_file.names import LOGITS, PROBABILITIES, VALUES
from workers.exports.request import CannotExport
from workers.model_file import PythonDescription, read_probe, read_python, softmax

Values = NDArray[np.floating]

_LOADERS: Final = {"torch": "workers.exports.onnx_file.load", "tensorflow": "workers.exports.keras_file.load"}
"""By the model's framework, modules with `load(folder)`, which gives what answers rows; each needs its own program."""
_PROGRAMS: Final = {"torch": "onnxruntime", "tensorflow": "Keras"}
_HINTS: Final = {
    "torch": "",
    "tensorflow": " In safe mode it takes Keras' own layers alone: a class or a function of yours is not in the file.",
}

_TOLERANCES: Final[Mapping[Precision, float]] = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""How far a logit may be from the framework's, in units of the largest (at least 1)."""
_ON_A_CARD: Final = 1e-3
"""In plain float32 a card may round products to TF32."""


def check(folder: Path, framework: str) -> None:
    """Compare all rows of the probe at once, and one alone; `folder` has the model's files and the file to check.

    Raises:
        CannotExport: it cannot be loaded, or gives something else.
        UnreadableModel: the model's files are not what was saved.
    """
    description, _ = read_python(folder)
    probe = read_probe(folder)
    if probe is None:
        raise CannotExport("There is no probe beside the model to compare the file with.")
    program = _PROGRAMS[framework]
    try:
        answers = importlib.import_module(_LOADERS[framework]).load(folder)
        for rows in (slice(None), slice(0, 1)):
            _compare(program, description, dict(answers(probe.x[rows].astype(np.float32))), probe.outputs, rows)
    except CannotExport:
        raise
    except Exception as error:
        raise CannotExport(
            f"{program} does not load it ({type(error).__name__}: {error}).{_HINTS[framework]}"
        ) from error


def _compare(
    program: str, description: PythonDescription, found: Mapping[str, Values], every: Values, rows: slice
) -> None:
    tolerance, wanted = _tolerance(description), every[rows].astype(np.float64)
    _close(program, "logits", found[LOGITS], wanted, tolerance * _scale(every))
    if PROBABILITIES in found:
        _close(program, "probabilities", found[PROBABILITIES], softmax(wanted), 2 * tolerance * _scale(every))
    if VALUES in found:
        scaling = description.target_scaling
        factor, offset = (1.0, 0.0) if scaling is None else (scaling.scale[0], scaling.mean[0])
        allowed = 2 * tolerance * max(_scale(every) * factor, abs(offset))
        _close(program, "values", found[VALUES], wanted * factor + offset, allowed)


def _close(program: str, what: str, found: Values, wanted: Values, allowed: float) -> None:
    if found.shape != wanted.shape:
        raise CannotExport(f"Loaded in {program}, its {what} have the shape {found.shape} instead of {wanted.shape}.")
    error = float(np.abs(found.astype(np.float64) - wanted).max())
    if not error <= allowed:  # not a number, too
        raise CannotExport(
            f"Loaded in {program}, its {what} differ from the framework's own by {error:.1e}; {allowed:.1e} is allowed."
        )


def _scale(outputs: Values) -> float:
    return max(1.0, float(np.abs(outputs).max()))


def _tolerance(description: PythonDescription) -> float:
    precision: Precision = (description.spec.get("hyperparameters") or {}).get("precision", "float32")
    least = _ON_A_CARD if description.spec.get("device_type") == "cuda" else 0.0
    return max(least, _TOLERANCES.get(precision, _TOLERANCES["float32"]))
