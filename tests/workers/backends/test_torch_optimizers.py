"""The optimizers that torch's backend has besides SGD and Adam, against torch.optim; test_optimizers has those two."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch._dynamo  # the first optimizer imports it, and it sets an environment variable, which no test may do
from numpy.testing import assert_allclose
from torch import Tensor

from app.spec.optimizers import Adagrad, AdamW, RmsProp
from workers.backends.torch.optimizers import optimizer_for

SHAPES = ((5, 3), (3,), (3, 2))
DECAYS = (0.3, 0.0, 0.3)
STEPS = 50
RATES = (0.05 * (1 + np.cos(np.pi * np.arange(STEPS) / STEPS))).tolist()

SPECS: dict[str, AdamW | RmsProp | Adagrad] = {
    "adamw": AdamW(name="adamw"),
    "adamw with other numbers": AdamW(name="adamw", beta_1=0.7, beta_2=0.95, epsilon=1e-3),
    "rmsprop": RmsProp(name="rmsprop"),
    "rmsprop with momentum": RmsProp(name="rmsprop", rho=0.8, momentum=0.9, epsilon=1e-3),
    "adagrad": Adagrad(name="adagrad"),
    "adagrad from a start": Adagrad(name="adagrad", initial_accumulator=0.1, epsilon=1e-3),
}


def start(dtype: torch.dtype) -> list[Tensor]:
    generator = np.random.default_rng(5)
    return [torch.from_numpy(generator.normal(size=shape)).to(dtype) for shape in SHAPES]


def gradients(dtype: torch.dtype, scale: float) -> Iterator[list[Tensor]]:
    generator = np.random.default_rng(4)
    for _ in range(STEPS):
        yield [torch.from_numpy(scale * generator.normal(size=shape)).to(dtype) for shape in SHAPES]


def reference(spec: AdamW | RmsProp | Adagrad, weights: list[Tensor]) -> torch.optim.Optimizer:
    groups = [{"params": [weight]} for weight in weights]
    if isinstance(spec, RmsProp):
        return torch.optim.RMSprop(groups, lr=1.0, alpha=spec.rho, eps=spec.epsilon, momentum=spec.momentum)
    if isinstance(spec, Adagrad):
        start_value = spec.initial_accumulator
        return torch.optim.Adagrad(groups, lr=1.0, eps=spec.epsilon, initial_accumulator_value=start_value)
    decayed = [{**group, "weight_decay": decay} for group, decay in zip(groups, DECAYS, strict=True)]
    return torch.optim.AdamW(decayed, lr=1.0, betas=(spec.beta_1, spec.beta_2), eps=spec.epsilon)


def ours(name: str, dtype: torch.dtype, scale: float) -> list[Tensor]:
    weights = start(dtype)
    optimizer = optimizer_for(SPECS[name], weights, DECAYS)
    for step, (rate, given) in enumerate(zip(RATES, gradients(dtype, scale), strict=True), start=1):
        optimizer.update(given, rate, step)
    return weights


def theirs(name: str, dtype: torch.dtype, scale: float) -> list[Tensor]:
    weights = [weight.requires_grad_() for weight in start(dtype)]
    optimizer = reference(SPECS[name], weights)
    for rate, given in zip(RATES, gradients(dtype, scale), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        for weight, gradient in zip(weights, given, strict=True):
            weight.grad = gradient
        optimizer.step()
    return [weight.detach() for weight in weights]


@pytest.mark.parametrize("name", SPECS)
class TestUpdates:
    @pytest.mark.parametrize("scale", [1.0, 1e-6])
    def test_float64_equals_torch_optim(self, name: str, scale: float) -> None:
        # Small gradients show where epsilon stands.
        for value, expected in zip(ours(name, torch.float64, scale), theirs(name, torch.float64, scale), strict=True):
            assert_allclose(value.numpy(), expected.numpy(), rtol=1e-11, atol=1e-12)

    def test_float32_is_close(self, name: str) -> None:
        for value, expected in zip(ours(name, torch.float32, 1.0), theirs(name, torch.float64, 1.0), strict=True):
            assert_allclose(value.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)

    def test_gradients_are_left_as_they_are(self, name: str) -> None:
        given = next(gradients(torch.float64, 1.0))
        before = [gradient.tolist() for gradient in given]

        optimizer_for(SPECS[name], start(torch.float64), DECAYS).update(given, 0.1, 1)

        assert [gradient.tolist() for gradient in given] == before


@pytest.mark.parametrize("name", SPECS)
class TestOverflow:
    def test_an_infinite_square_is_seen(self, name: str) -> None:
        # 1e30 squared is infinite in float32: from then on the weight would not move.
        optimizer = optimizer_for(SPECS[name], start(torch.float32), DECAYS)
        assert not optimizer.overflowed()

        optimizer.update([torch.full(shape, 1e30) for shape in SHAPES], 0.1, 1)

        assert optimizer.overflowed()
