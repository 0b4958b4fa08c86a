"""Write model.onnx: input `x`, encoded rows; outputs `logits`, and what they mean.

Classification has `probabilities`, (batch, classes), beside the logits; regression has `values`, (batch, 1), in the
target's own unit. The batch is free. The metadata say how raw rows become `x`: the encoder of model.json, the classes.
"""

from typing import Final

import numpy as np
import onnx

from workers.exports.onnx_file.graph import Graph
from workers.exports.onnx_file.layers import Place, add_layers
from workers.exports.onnx_file.metadata import metadata_of
from workers.exports.onnx_file.names import INPUT, LOGITS, NAME, PROBABILITIES, VALUES
from workers.exports.request import CannotExport, Made, Request
from workers.model_file import Description, read

_LIMIT: Final = 2**31 - 2**20
"""A file of protobuf cannot be larger than 2 GiB; ONNX would need a second file beside it then."""


def make(request: Request) -> list[Made]:
    """Write the file from the model's own files."""
    description, weights = read(request.model)
    if sum(4 * value.size for value in weights.values()) > _LIMIT:
        raise CannotExport("Its weights are larger than the 2 GiB that one file of ONNX can hold.")
    graph = Graph()
    end = add_layers(description.layers, Place(graph, weights, INPUT, description.input_shape))
    graph.node("Identity", end.x, output=LOGITS)
    outputs = {LOGITS: [description.outputs], _answer(graph, description): [description.outputs]}
    model = graph.build({INPUT: description.input_shape}, outputs, metadata_of(description))
    onnx.checker.check_model(model, full_check=True)
    onnx.save_model(model, request.output / NAME)
    return [Made(NAME, "application/octet-stream", "model")]


def _answer(graph: Graph, description: Description) -> str:
    if description.classes is not None:
        return graph.node("Softmax", LOGITS, output=PROBABILITIES, axis=-1)
    scaling = description.target_scaling
    if scaling is None:
        return graph.node("Identity", LOGITS, output=VALUES)
    scaled = graph.node("Mul", LOGITS, graph.weight("target.scale", np.array(scaling.scale)))
    return graph.node("Add", scaled, graph.weight("target.mean", np.array(scaling.mean)), output=VALUES)
