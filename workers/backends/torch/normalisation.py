"""Batch norm with the statistics of the whole batch, on however many devices it lies, and layer norm.

Both compute in the type of their weights and give back the type that came in.
"""

import math
from collections.abc import Mapping
from typing import Any, Final, cast

import torch
from torch import Tensor
from torch.nn import functional

from app.spec.layers import BatchNormLayer, LayerNormLayer
from workers.backends.torch.group import Group
from workers.backends.torch.passes import Operation, Pass


def _batch_norm(layer: BatchNormLayer, x: Tensor, call: Pass) -> Tensor:
    weights = call.weights
    gamma, beta = weights[f"{layer.name}.gamma"], weights[f"{layer.name}.beta"]
    wide = x.to(gamma.dtype)
    if call.statistics is not None:
        return call.statistics.normalised(layer, wide, weights).to(x.dtype)
    mean, variance = weights[f"{layer.name}.moving_mean"], weights[f"{layer.name}.moving_variance"]
    rows = wide.flatten(0, -2)
    return functional.batch_norm(rows, mean, variance, gamma, beta, eps=layer.epsilon).reshape(x.shape).to(x.dtype)


def _layer_norm(layer: LayerNormLayer, x: Tensor, call: Pass) -> Tensor:
    gamma, beta = call.weights[f"{layer.name}.gamma"], call.weights[f"{layer.name}.beta"]
    return functional.layer_norm(x.to(gamma.dtype), gamma.shape, gamma, beta, layer.epsilon).to(x.dtype)


class BatchStatistics:
    """The moments of one batch of `rows` rows that lies on the devices of a group."""

    def __init__(self, group: Group, rows: int) -> None:
        self._group = group
        self._rows = rows

    def normalised(self, layer: BatchNormLayer, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        gamma, beta = weights[f"{layer.name}.gamma"], weights[f"{layer.name}.beta"]
        count = self._rows * math.prod(x.shape[1:-1])
        rows = x.flatten(0, -2)
        alone = self._group.world == 1
        y, mean, variance = (
            _by_kernel(rows, gamma, beta, layer.epsilon, count)
            if alone
            else _over_devices(rows, gamma, beta, layer.epsilon, count, self._group)
        )
        with torch.no_grad():
            # lerp moves by this share of the difference, from the old towards the new.
            weights[f"{layer.name}.moving_mean"].lerp_(mean, 1.0 - layer.momentum)
            weights[f"{layer.name}.moving_variance"].lerp_(variance, 1.0 - layer.momentum)
        return y.reshape(x.shape)


Moments = tuple[Tensor, Tensor, Tensor]
"""The normalised rows, and the mean and biased variance of the batch."""


def _by_kernel(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, count: int) -> Moments:
    """Use torch's own kernel, which leaves the moments where it would keep moving ones: momentum 1 keeps nothing old.

    It divides the variance by one less than the number of values; the biased one is what moves here.
    """
    mean, variance = torch.zeros_like(gamma), torch.zeros_like(gamma)
    y = torch.batch_norm(x, gamma, beta, mean, variance, True, 1.0, epsilon, True)  # noqa: FBT003 - torch's
    return y, mean, variance * ((count - 1) / count) if count > 1 else torch.zeros_like(gamma)


def _over_devices(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, count: int, group: Group) -> Moments:
    """Two passes, the mean first and then the centred squares, each summed over the devices.

    One pass over squares loses as many digits as the mean is larger than the deviation.
    """
    with torch.no_grad():
        mean = group.sum(x.sum(0)) / count
        variance = group.sum((x - mean).square().sum(0)) / count
    y: Tensor = _Normalise.apply(x, gamma, beta, mean, variance, epsilon, count, group)  # type: ignore[no-untyped-call]
    return y, mean, variance


class _Normalise(torch.autograd.Function):
    """`gamma (x - mean) / sqrt(variance + epsilon) + beta`, differentiated through moments of rows elsewhere.

    With z the normalised value and n the number of values on all devices, the gradient by x is
    `gamma / sqrt(variance + epsilon) (dy - sum(dy) / n - z sum(dy z) / n)` (Ioffe and Szegedy 2015, section 3).
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context
        x: Tensor,
        gamma: Tensor,
        beta: Tensor,
        mean: Tensor,
        variance: Tensor,
        epsilon: float,
        count: int,
        group: Group,
    ) -> Tensor:
        scale = torch.rsqrt(variance + epsilon)
        z = (x - mean) * scale
        ctx.save_for_backward(z, gamma, scale)
        ctx.count, ctx.group = count, group
        return z * gamma + beta

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - torch's context
        z, gamma, scale = ctx.saved_tensors
        beta_slope, gamma_slope = slope.sum(0), (slope * z).sum(0)
        x_slope = None
        if ctx.needs_input_grad[0]:
            over_all = ctx.group.sum(torch.stack([beta_slope, gamma_slope])) / ctx.count
            x_slope = gamma * scale * (slope - over_all[0] - z * over_all[1])
        return x_slope, gamma_slope, beta_slope, None, None, None, None, None


OPERATIONS: Final = cast("dict[str, Operation]", {"batch_norm": _batch_norm, "layer_norm": _layer_norm})
