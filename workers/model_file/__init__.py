"""A trained model on disk: weights as safetensors, everything else as JSON, readable without any framework.

    model.safetensors   every weight as `<layer>.<weight>`, float32, in the shapes of `app.spec.weights`
    model.json          layers, the encoder of raw rows, classes, the spec it was trained with, SHA-256 of the weights
    probe.safetensors   a few encoded rows `x` and the `outputs` that the framework gave for them

All are data, not programs: nothing in them is ever executed. `predict_rows` is the whole inference in NumPy; it takes
raw rows and gives original labels or values in the target's own unit, and is what the frameworks are compared with.

A model of a user's own code (format 3) has code.zip beside them. That is a program, which `workers.user_model` runs in
the framework; here it is a file with a digest.
"""

from workers.model_file.activations import ACTIVATIONS, softmax
from workers.model_file.description import (
    DESCRIPTION_NAME,
    FORMAT,
    PROBE_NAME,
    WEIGHTS_NAME,
    Columns,
    Description,
    WeightsFile,
)
from workers.model_file.errors import UnreadableModel
from workers.model_file.files import Probe, TrainedModel, encoder_of, read, read_probe, save
from workers.model_file.forward import NotARow, forward
from workers.model_file.predictions import LoadedModel, Predictions, decided, predict, predict_rows
from workers.model_file.python_description import CODE_NAME, PYTHON_FORMAT, PythonDescription, PythonSource
from workers.model_file.python_files import PythonTrained, is_python, read_python, save_python

__all__ = [
    "ACTIVATIONS",
    "CODE_NAME",
    "DESCRIPTION_NAME",
    "FORMAT",
    "PROBE_NAME",
    "PYTHON_FORMAT",
    "WEIGHTS_NAME",
    "Columns",
    "Description",
    "LoadedModel",
    "NotARow",
    "Predictions",
    "Probe",
    "PythonDescription",
    "PythonSource",
    "PythonTrained",
    "TrainedModel",
    "UnreadableModel",
    "WeightsFile",
    "decided",
    "encoder_of",
    "forward",
    "is_python",
    "predict",
    "predict_rows",
    "read",
    "read_probe",
    "read_python",
    "save",
    "save_python",
    "softmax",
]
