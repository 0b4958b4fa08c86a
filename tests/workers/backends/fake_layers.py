"""Dense networks and their gradients in NumPy, one pair of functions a layer, worked out by hand."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.spec.layers import ActivationLayer, BatchNormLayer, DenseLayer, DropoutLayer, FlattenLayer, Layer, ReshapeLayer
from workers.backends.base import Program
from workers.backends.hashing import kept, places, step_keys

Matrix = NDArray[np.floating]
Gradients = dict[str, Matrix]
Back = Callable[[Matrix], Matrix]
"""From the slope by a layer's output to the slope by its input; what it finds about weights it puts aside."""

ACTIVATIONS: Final[Mapping[str, tuple[Callable[[Matrix], Matrix], Callable[[Matrix], Matrix]]]] = {
    "relu": (lambda x: np.maximum(x, 0), lambda x: (x > 0).astype(x.dtype)),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
}
"""Functions and their derivatives."""


class NumpyModel:
    """The layers with their weights, which are changed in place."""

    def __init__(self, program: Program, weights: dict[str, Matrix]) -> None:
        self.weights = weights
        self._program = program
        self._dropouts = [layer.name for layer in program.layers if isinstance(layer, DropoutLayer)]

    def trained(self) -> dict[str, Matrix]:
        return {name: value for name, value in self.weights.items() if ".moving_" not in name}

    def outputs(self, x: Matrix) -> Matrix:
        for layer in self._program.layers:
            x, _ = self._forward(layer, x, None, {})
        return x

    def differentiate(self, x: Matrix, y: NDArray[np.generic], step: int) -> tuple[Matrix, Gradients, float]:
        """Return the logits of a batch, the gradients of what is minimised, and the loss summed over the rows."""
        rows, gradients = len(x), dict[str, Matrix]()
        backs: list[Back] = []
        for layer in self._program.layers:
            x, back = self._forward(layer, x, step, gradients)
            backs.append(back)
        loss, slope = loss_of(self._program.loss, x, y)
        if self._program.class_weights is not None:
            weight = np.array(self._program.class_weights)[y.astype(np.int64)]
            loss, slope = loss * weight, slope * weight[:, None].astype(slope.dtype)
        slope = slope / x.dtype.type(rows)
        for back in reversed(backs):
            slope = back(slope)
        for name in gradients:
            if name.endswith("kernel"):
                kernel = self.weights[name]
                penalty = self._program.l1 * np.sign(kernel) + 2 * self._program.l2 * kernel
                gradients[name] = (gradients[name] + penalty).astype(kernel.dtype)
        return x, gradients, float(loss.sum())

    def _forward(self, layer: Layer, x: Matrix, step: int | None, gradients: Gradients) -> tuple[Matrix, Back]:
        """`step` is None outside of training."""
        match layer:
            case DenseLayer():
                return self._dense(layer, x, gradients)
            case ActivationLayer():
                function, derivative = ACTIVATIONS[layer.function]
                return function(x), lambda slope: slope * derivative(x)
            case DropoutLayer():
                mask = np.ones_like(x) if step is None else self._mask(layer, x, step)
                return x * mask, lambda slope: slope * mask
            case BatchNormLayer():
                return self._batch_norm(layer, x, gradients, training=step is not None)
            case FlattenLayer() | ReshapeLayer():
                shape = layer.shape if isinstance(layer, ReshapeLayer) else (-1,)
                return x.reshape(len(x), *shape), lambda slope: slope.reshape(x.shape)
            case _:
                raise NotImplementedError(layer.type)

    def _dense(self, layer: DenseLayer, x: Matrix, gradients: Gradients) -> tuple[Matrix, Back]:
        kernel = self.weights[f"{layer.name}.kernel"]
        y = x @ kernel

        def back(slope: Matrix) -> Matrix:
            gradients[f"{layer.name}.kernel"] = x.T @ slope
            if layer.use_bias:
                gradients[f"{layer.name}.bias"] = slope.sum(axis=0)
            return slope @ kernel.T

        return (y + self.weights[f"{layer.name}.bias"] if layer.use_bias else y), back

    def _mask(self, layer: DropoutLayer, x: Matrix, step: int) -> Matrix:
        keys = step_keys(self._program.seed, len(self._dropouts), step, 1)[0]
        mask = kept(places(len(x), x[0].size), keys[self._dropouts.index(layer.name)], layer.rate)
        return mask.reshape(x.shape).astype(x.dtype) * x.dtype.type(1.0 / (1.0 - layer.rate))

    def _batch_norm(
        self, layer: BatchNormLayer, x: Matrix, gradients: Gradients, *, training: bool
    ) -> tuple[Matrix, Back]:
        """Ioffe and Szegedy 2015, algorithm 1 and the gradients below it, with biased variances."""
        gamma, beta, moving_mean, moving_variance = (
            self.weights[f"{layer.name}.{name}"] for name in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        axes = tuple(range(x.ndim - 1))
        mean, variance = (x.mean(axes), x.var(axes)) if training else (moving_mean.copy(), moving_variance.copy())
        if training:
            moving_mean += (1 - layer.momentum) * (mean - moving_mean)
            moving_variance += (1 - layer.momentum) * (variance - moving_variance)
        scale = 1 / np.sqrt(variance + layer.epsilon)
        normal = (x - mean) * scale

        def back(slope: Matrix) -> Matrix:
            gradients[f"{layer.name}.gamma"] = (slope * normal).sum(axes)
            gradients[f"{layer.name}.beta"] = slope.sum(axes)
            inner = slope * gamma
            return np.asarray(scale * (inner - inner.mean(axes) - normal * (inner * normal).mean(axes)))

        return (normal * gamma + beta).astype(x.dtype), back


def loss_of(name: str, logits: Matrix, y: NDArray[np.generic]) -> tuple[Matrix, Matrix]:
    """Return the loss of each row, and its slope by the logits."""
    if name == "cross_entropy":
        shifted = logits - logits.max(axis=1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        truth = np.eye(logits.shape[1], dtype=logits.dtype)[y.astype(np.int64)]
        return -(logs * truth).sum(axis=1), np.exp(logs) - truth
    error = logits - y.astype(logits.dtype)
    distance = np.abs(error)
    if name == "mse":
        return (error**2)[:, 0], 2 * error
    if name == "mae":
        return distance[:, 0], np.sign(error)
    return np.where(distance < 1, error**2 / 2, distance - 0.5)[:, 0], np.clip(error, -1, 1)
