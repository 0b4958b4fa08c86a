"""The two recurrent cells, step by step; the order of the gates and the biases are Keras' (see `app.spec.layers`)."""

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.floating]


def _sigmoid(x: Values) -> Values:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def lstm(x: Values, kernel: Values, recurrent: Values, bias: Values, *, sequences: bool) -> Values:
    """Run (rows, steps, features) through the cell: the last output (rows, units), or all (rows, steps, units)."""
    inputs = x @ kernel + bias
    hidden: Values = np.zeros((len(x), len(recurrent)), inputs.dtype)
    cell = hidden
    outputs = []
    for step in range(x.shape[1]):
        i, f, g, o = np.split(inputs[:, step] + hidden @ recurrent, 4, axis=1)
        cell = _sigmoid(f) * cell + _sigmoid(i) * np.tanh(g)
        hidden = _sigmoid(o) * np.tanh(cell)
        outputs.append(hidden)
    return np.stack(outputs, axis=1) if sequences else hidden


def gru(x: Values, kernel: Values, recurrent: Values, bias: Values, *, sequences: bool) -> Values:
    """As `lstm`; bias (2, 3 units): one for the input's products, one for the recurrent ones (`reset_after`)."""
    inputs = x @ kernel + bias[0]
    hidden: Values = np.zeros((len(x), len(recurrent)), inputs.dtype)
    outputs = []
    for step in range(x.shape[1]):
        z, r, h = np.split(inputs[:, step], 3, axis=1)
        from_z, from_r, from_h = np.split(hidden @ recurrent + bias[1], 3, axis=1)
        update = _sigmoid(z + from_z)
        candidate = np.tanh(h + _sigmoid(r + from_r) * from_h)
        hidden = update * hidden + (1 - update) * candidate
        outputs.append(hidden)
    return np.stack(outputs, axis=1) if sequences else hidden
