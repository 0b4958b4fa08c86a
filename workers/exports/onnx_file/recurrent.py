"""LSTM and GRU as ONNX operators, which want time first, one direction axis, and the gates in another order."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.spec.layers import GruLayer, LstmLayer
from workers.exports.onnx_file.graph import Graph

Values = NDArray[np.floating]

_LSTM_ORDER: Final = (0, 3, 1, 2)
"""ONNX has i, o, f, c where we have i, f, g, o."""
_GRU_ORDER: Final = (0, 1, 2)
"""Both have update (z), reset (r), hidden (h)."""


def recurrent(graph: Graph, layer: LstmLayer | GruLayer, weights: Mapping[str, Values], x: str) -> str:
    """Add the cell; gives (batch, units), or (batch, steps, units) with `return_sequences`."""
    order = _LSTM_ORDER if isinstance(layer, LstmLayer) else _GRU_ORDER
    kernel, hidden, bias = (weights[f"{layer.name}.{part}"] for part in ("kernel", "recurrent_kernel", "bias"))
    if isinstance(layer, LstmLayer):
        bias = np.stack([bias, np.zeros_like(bias)])  # ONNX has a second bias, for the recurrent products
    both = np.concatenate([_reordered(part[None], order)[0] for part in bias])
    inputs = [
        graph.weight(f"{layer.name}.kernel", _reordered(kernel, order).T[None]),
        graph.weight(f"{layer.name}.recurrent_kernel", _reordered(hidden, order).T[None]),
        graph.weight(f"{layer.name}.bias", both[None]),
    ]
    time_first = graph.node("Transpose", x, perm=[1, 0, 2])
    # linear_before_reset: the reset gate acts after the product, as `reset_after` says.
    gate = {"linear_before_reset": 1} if isinstance(layer, GruLayer) else {}
    operator = "LSTM" if isinstance(layer, LstmLayer) else "GRU"
    cell: dict[str, Any] = {"hidden_size": layer.units, **gate}
    zero, one = (graph.weight(f"axis_{axis}", np.array([axis], np.int64)) for axis in (0, 1))
    if not layer.return_sequences:
        last = graph.node(operator, time_first, *inputs, outputs=2, **cell)
        return graph.node("Squeeze", last, zero)
    every = graph.node("Squeeze", graph.node(operator, time_first, *inputs, **cell), one)
    return graph.node("Transpose", every, perm=[1, 0, 2])


def _reordered(matrix: Values, order: tuple[int, ...]) -> Values:
    """Put the gates, which stand side by side on the last axis, into another order."""
    gates = np.split(matrix, len(order), axis=-1)
    return np.concatenate([gates[place] for place in order], axis=-1)
