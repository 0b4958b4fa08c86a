"""Each optimizer's updates, against torch.optim and against the formulas in NumPy, on given gradients."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
import torch._dynamo  # the first optimizer imports it, and it sets an environment variable, which no test may do
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from app.spec.training import Adam, Sgd
from tests.workers.backends.fake import Update
from workers.backends.tensorflow import optimizers as tensorflow_optimizers
from workers.backends.tensorflow.framework import tf
from workers.backends.torch import optimizers as torch_optimizers

Spec = Sgd | Adam
Matrices = list[NDArray[np.floating]]

WITHOUT_MEMORY = "adam without memory"
"""Not in float32: TensorFlow's kernel adds (1 - b2) (g² - v) to v, which rounds a small g² after a large one away."""

SPECS: dict[str, Spec] = {
    "sgd": Sgd(name="sgd"),
    "momentum": Sgd(name="sgd", momentum=0.9),
    "nesterov": Sgd(name="sgd", momentum=0.8, nesterov=True),
    "adam": Adam(name="adam"),
    "adam with other numbers": Adam(name="adam", beta_1=0.7, beta_2=0.95, epsilon=1e-3),
    WITHOUT_MEMORY: Adam(name="adam", beta_1=0.0, beta_2=0.0, epsilon=1e-8),
}
STEPS = 50
RATES = 0.05 * (1 + np.cos(np.pi * np.arange(STEPS) / STEPS))
"""A rate that changes: a velocity with the rate inside of it would be another one."""


def gradients(dtype: str, scale: float = 1.0) -> Iterator[Matrices]:
    generator = np.random.default_rng(4)
    for _ in range(STEPS):
        yield [(scale * generator.normal(size=shape)).astype(dtype) for shape in ((5, 3), (3,))]


def start(dtype: str) -> Matrices:
    generator = np.random.default_rng(5)
    return [generator.normal(size=shape).astype(dtype) for shape in ((5, 3), (3,))]


def in_torch(spec: Spec, dtype: str, scale: float = 1.0) -> Matrices:
    weights = [torch.from_numpy(value.copy()) for value in start(dtype)]
    optimizer = torch_optimizers.optimizer_for(spec, weights)
    for step, (rate, given) in enumerate(zip(RATES.tolist(), gradients(dtype, scale), strict=True), start=1):
        optimizer.update([torch.from_numpy(value) for value in given], rate, step)
    return [weight.numpy() for weight in weights]


def in_tensorflow(spec: Spec, dtype: str, scale: float = 1.0) -> Matrices:
    variables = [tf.Variable(value) for value in start(dtype)]
    optimizer = tensorflow_optimizers.optimizer_for(spec, variables)
    for step, (rate, given) in enumerate(zip(RATES, gradients(dtype, scale), strict=True)):
        row = optimizer.table(np.array([rate]), step)[0]
        optimizer.update([tf.constant(value) for value in given], tf.constant(row, dtype))
    return [variable.numpy() for variable in variables]


def by_formula(spec: Spec, dtype: str, scale: float = 1.0) -> Matrices:
    """The updates as torch's documentation writes them, in float64 whatever the gradients are."""
    weights = {str(place): value.astype(np.float64) for place, value in enumerate(start(dtype))}
    update = Update(weights, spec)
    for step, (rate, given) in enumerate(zip(RATES, gradients(dtype, scale), strict=True), start=1):
        update({str(place): value.astype(np.float64) for place, value in enumerate(given)}, float(rate), step)
    return list(weights.values())


def by_torch_optim(spec: Spec, dtype: str, scale: float = 1.0) -> Matrices:
    weights = [torch.from_numpy(value.copy()).requires_grad_() for value in start(dtype)]
    optimizer: torch.optim.Optimizer
    if isinstance(spec, Sgd):
        optimizer = torch.optim.SGD(weights, lr=1.0, momentum=spec.momentum, nesterov=spec.nesterov)
    else:
        optimizer = torch.optim.Adam(weights, lr=1.0, betas=(spec.beta_1, spec.beta_2), eps=spec.epsilon)
    for rate, given in zip(RATES.tolist(), gradients(dtype, scale), strict=True):
        optimizer.param_groups[0]["lr"] = rate
        for weight, gradient in zip(weights, given, strict=True):
            weight.grad = torch.from_numpy(gradient)
        optimizer.step()
    return [weight.detach().numpy() for weight in weights]


def distance(ours: Matrices, reference: Matrices, dtype: str) -> float:
    """Return the error as a share of the way travelled, the largest of any tensor."""
    shares = [
        np.linalg.norm(a - b) / np.linalg.norm(b - c) for a, b, c in zip(ours, reference, start(dtype), strict=True)
    ]
    return float(max(shares))


IMPLEMENTATIONS: dict[str, Callable[[Spec, str, float], Matrices]] = {"torch": in_torch, "tensorflow": in_tensorflow}


@pytest.mark.parametrize("framework", IMPLEMENTATIONS)
@pytest.mark.parametrize("name", SPECS)
class TestUpdates:
    def test_float64_equals_torch_optim(self, name: str, framework: str) -> None:
        ours = IMPLEMENTATIONS[framework](SPECS[name], "float64", 1.0)

        for value, reference in zip(ours, by_torch_optim(SPECS[name], "float64"), strict=True):
            assert_allclose(value, reference, rtol=1e-12, atol=1e-12)

    def test_float64_equals_the_formulas(self, name: str, framework: str) -> None:
        ours = IMPLEMENTATIONS[framework](SPECS[name], "float64", 1.0)

        assert distance(ours, by_formula(SPECS[name], "float64"), "float64") <= 1e-12

    def test_small_gradients_show_where_epsilon_stands(self, name: str, framework: str) -> None:
        ours = IMPLEMENTATIONS[framework](SPECS[name], "float64", 1e-6)

        assert distance(ours, by_torch_optim(SPECS[name], "float64", 1e-6), "float64") <= 1e-9


@pytest.mark.parametrize("framework", IMPLEMENTATIONS)
@pytest.mark.parametrize("name", [name for name in SPECS if name != WITHOUT_MEMORY])
class TestRounding:
    def test_float32_stays_close_to_the_formulas_in_float64(self, name: str, framework: str) -> None:
        # 1 - 0.999 in float32 is wrong by 1.3e-5, which would move the weights by 6e-6 of their way.
        ours = IMPLEMENTATIONS[framework](SPECS[name], "float32", 1.0)

        assert distance(ours, by_formula(SPECS[name], "float32"), "float32") <= 2e-6


class TestAdamTable:
    def test_chunks_continue_the_count_of_steps(self) -> None:
        optimizer = tensorflow_optimizers.optimizer_for(Adam(name="adam"), [tf.Variable([1.0])])

        whole = optimizer.table(RATES, 0)
        cut = np.concatenate([optimizer.table(RATES[first : first + 10], first) for first in range(0, STEPS, 10)])

        assert cut.tolist() == whole.tolist()
