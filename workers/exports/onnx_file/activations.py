"""The activation functions as ONNX operators."""

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from workers.exports.onnx_file.graph import Graph

_OPERATORS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "relu": ("Relu", {}),
    "leaky_relu": ("LeakyRelu", {"alpha": 0.01}),
    "tanh": ("Tanh", {}),
    "sigmoid": ("Sigmoid", {}),
    "elu": ("Elu", {"alpha": 1.0}),
    "selu": ("Selu", {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}),
    "softplus": ("Softplus", {}),
    "softsign": ("Softsign", {}),
}


def activation(graph: Graph, function: str, x: str) -> str:
    """Apply a function of `app.spec.layers`. The exact gelu is written out: its operator is newer than our opset."""
    if function == "linear":
        return x
    if function == "silu":
        return graph.node("Mul", x, graph.node("Sigmoid", x))
    if function == "gelu":
        one, half = graph.weight("one", np.array(1.0)), graph.weight("half", np.array(0.5))
        narrow = graph.node("Mul", x, graph.weight("sqrt_half", np.array(math.sqrt(0.5))))
        doubled = graph.node("Mul", x, graph.node("Add", graph.node("Erf", narrow), one))
        return graph.node("Mul", doubled, half)
    operator, attributes = _OPERATORS[function]
    return graph.node(operator, x, **attributes)
