"""The same spec in torch and in TensorFlow gives the same curve: in float64 to rounding, in float32 nearly so.

Float64 tells a different definition from rounding: equal definitions agree to 1e-12 or better there, other ones differ
by 1e-3. Each curve has 10 epochs with an uneven last batch (77 rows, batches of 16). The bars are the project's own.
"""

import functools

import numpy as np
import pytest
from numpy.testing import assert_allclose

from app.spec.job import LossName
from app.spec.training import Adam, Cosine, Sgd
from tests.workers.backends.fake import NumpyBackend
from tests.workers.backends.sessions import Recipe, Result, train
from workers.backends.base import load_backend

OPTIMIZERS: dict[str, tuple[Sgd | Adam, float]] = {
    "sgd": (Sgd(name="sgd"), 0.1),
    "momentum": (Sgd(name="sgd", momentum=0.9), 0.03),
    "nesterov": (Sgd(name="sgd", momentum=0.9, nesterov=True), 0.03),
    "adam": (Adam(name="adam"), 0.01),
}
"""With a learning rate under which ten epochs get somewhere."""

LOSSES: tuple[LossName, ...] = ("cross_entropy", "mse", "mae", "huber")


@functools.cache
def curve(framework: str, recipe: Recipe) -> Result:
    backend = NumpyBackend() if framework == "numpy" else load_backend(framework)
    return train(backend, recipe)


def largest_difference(recipe: Recipe, first: str = "torch", second: str = "tensorflow") -> float:
    """Return the largest relative difference of the losses of any epoch, training or validation."""
    one, two = curve(first, recipe), curve(second, recipe)
    assert one.train[-1] < one.train[0]  # it learns, so the optimizer matters
    differences = [np.abs(a / b - 1).max() for a, b in ((one.train, two.train), (one.validation, two.validation))]
    return float(max(differences))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", OPTIMIZERS)
class TestEveryOptimizerAndLoss:
    def test_float64_agrees_to_rounding(self, name: str, loss: LossName, dropout: float) -> None:
        optimizer, rate = OPTIMIZERS[name]
        recipe = Recipe(loss=loss, optimizer=optimizer, rate=rate, dropout=dropout, dtype="float64")

        assert largest_difference(recipe) <= 1e-9

    def test_float32_agrees_to_a_hundred_thousandth(self, name: str, loss: LossName, dropout: float) -> None:
        optimizer, rate = OPTIMIZERS[name]

        assert largest_difference(Recipe(loss=loss, optimizer=optimizer, rate=rate, dropout=dropout)) <= 1e-5


class TestPenaltyAndSchedule:
    @pytest.mark.parametrize(("l1", "l2"), [(1e-3, 0.0), (0.0, 1e-2), (1e-3, 1e-2)])
    @pytest.mark.parametrize("name", ["momentum", "adam"])
    def test_penalties_agree(self, name: str, l1: float, l2: float) -> None:
        optimizer, rate = OPTIMIZERS[name]
        recipe = Recipe(optimizer=optimizer, rate=rate, l1=l1, l2=l2, dropout=0.3, dtype="float64")

        assert largest_difference(recipe) <= 1e-9

    @pytest.mark.parametrize("final", [0.0, 0.002])
    @pytest.mark.parametrize("name", OPTIMIZERS)
    def test_cosine_agrees(self, name: str, final: float) -> None:
        # Where the rate stands inside of the velocity, a changing rate makes the curves differ by a fifth.
        optimizer, rate = OPTIMIZERS[name]
        schedule = Cosine(name="cosine", final_learning_rate=final)
        recipe = Recipe(optimizer=optimizer, rate=rate, schedule=schedule, loss="mse", dtype="float64")

        assert largest_difference(recipe) <= 1e-9

    def test_a_large_epsilon_stands_in_the_same_place(self) -> None:
        # Before or after the bias correction: with the usual 1e-7 one hardly sees it.
        recipe = Recipe(optimizer=Adam(name="adam", epsilon=0.1), rate=0.05, dtype="float64")

        assert largest_difference(recipe) <= 1e-9

    @pytest.mark.parametrize("activation", ["relu", "elu", "selu", "gelu", "silu", "softplus", "softsign", "sigmoid"])
    def test_activations_agree(self, activation: str) -> None:
        recipe = Recipe(activation=activation, dtype="float64", optimizer=Sgd(name="sgd", momentum=0.9), rate=0.05)  # type: ignore[arg-type]

        assert largest_difference(recipe) <= 1e-9


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
@pytest.mark.parametrize("name", OPTIMIZERS)
class TestAgainstGradientsByHand:
    """A third opinion: the backend in NumPy, whose gradients and updates were written down from the formulas."""

    def test_float64_agrees_to_rounding(self, name: str, framework: str) -> None:
        optimizer, rate = OPTIMIZERS[name]
        recipe = Recipe(optimizer=optimizer, rate=rate, dropout=0.3, l1=1e-3, l2=1e-2, dtype="float64")

        assert largest_difference(recipe, framework, "numpy") <= 1e-9

    def test_weights_agree_too(self, name: str, framework: str) -> None:
        optimizer, rate = OPTIMIZERS[name]
        recipe = Recipe(optimizer=optimizer, rate=rate, loss="huber", dtype="float64")

        ours, reference = curve(framework, recipe).weights, curve("numpy", recipe).weights

        for key, value in ours.items():
            assert_allclose(value, reference[key], rtol=1e-9, atol=1e-12)
