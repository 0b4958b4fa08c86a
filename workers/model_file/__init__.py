"""A trained model on disk: weights as safetensors, everything else as JSON, readable without any framework.

    model.safetensors   every weight as `<layer>.<weight>`, float32, in the shapes of `app.spec.weights`
    model.json          layers, the encoder of raw rows, classes, the spec it was trained with, SHA-256 of the weights
    probe.safetensors   a few encoded rows `x` and the `outputs` that the framework gave for them

All are data, not programs: nothing in them is ever executed. `predict_rows` is the whole inference in NumPy; it takes
raw rows and gives original labels or values in the target's own unit, and is what the frameworks are compared with.
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
from workers.model_file.predictions import LoadedModel, Predictions, predict, predict_rows

__all__ = [
    "ACTIVATIONS",
    "DESCRIPTION_NAME",
    "FORMAT",
    "PROBE_NAME",
    "WEIGHTS_NAME",
    "Columns",
    "Description",
    "LoadedModel",
    "NotARow",
    "Predictions",
    "Probe",
    "TrainedModel",
    "UnreadableModel",
    "WeightsFile",
    "encoder_of",
    "forward",
    "predict",
    "predict_rows",
    "read",
    "read_probe",
    "save",
    "softmax",
]
