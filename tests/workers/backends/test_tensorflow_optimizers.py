"""TensorFlow's optimizers inside of a session: what they remember, how they go on, that they do not stop in silence.

Their formulas are held against torch's own in tests/parity/test_training.py.
"""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from app.spec.layers import ActivationLayer, BatchNormLayer, DenseLayer, DropoutLayer, Layer
from app.spec.optimizers import Adagrad, Adam, AdamW, Optimizer, RmsProp, Sgd
from tests.workers.backends.conformance import same
from tests.workers.backends.sessions import CPU
from tests.workers.backends.tensorflow_models import curve, program, session_of
from workers.backends.base import Session, Steps, load_backend
from workers.backends.tensorflow.framework import tf
from workers.backends.tensorflow.optimizers import optimizer_for
from workers.data.metrics import no_sums

LAYERS: tuple[Layer, ...] = (
    DenseLayer("dense_1", 8, use_bias=False),
    BatchNormLayer("batch_norm_1", momentum=0.9),
    ActivationLayer("activation_1", "relu"),
    DropoutLayer("dropout_1", 0.3),
    DenseLayer("output", 3),
)

OPTIMIZERS: dict[str, tuple[Optimizer, list[str]]] = {
    "sgd": (Sgd(name="sgd"), []),
    "momentum": (Sgd(name="sgd", momentum=0.9), ["velocity"]),
    "adam": (Adam(name="adam"), ["mean", "square"]),
    "adamw": (AdamW(name="adamw"), ["mean", "square"]),
    "rmsprop": (RmsProp(name="rmsprop"), ["square"]),
    "rmsprop with momentum": (RmsProp(name="rmsprop", momentum=0.9), ["square", "velocity"]),
    "adagrad": (Adagrad(name="adagrad", initial_accumulator=0.5), ["sum"]),
}
"""With the slots that each has for every trained weight."""


def opened(optimizer: Optimizer, **settings: Any) -> Session:
    load_backend("tensorflow").prepare([CPU], 1)
    decay = 0.1 if isinstance(optimizer, AdamW) else 0.0
    return session_of(program(LAYERS, **{"optimizer": optimizer, "weight_decay": decay, **settings}))


def run(session: Session, count: int, first: int = 0, rate: float = 0.01) -> NDArray[np.float64]:
    rows = np.random.default_rng(first).integers(0, 35, (count, 16))
    return session.run(Steps(rows=rows, rates=np.full(count, rate), first=first), no_sums("classification"))


@pytest.mark.parametrize("name", OPTIMIZERS)
class TestState:
    def test_a_fresh_session_goes_on_to_the_same_bits(self, name: str) -> None:
        optimizer, _ = OPTIMIZERS[name]
        session, other = opened(optimizer), opened(optimizer)
        curve(session, epochs=[1, 2])

        other.restore(session.weights(), session.state())

        assert curve(session, epochs=[3, 4]) == curve(other, epochs=[3, 4])
        assert same(session.weights(), other.weights())
        assert same(session.state(), other.state())

    def test_has_the_optimizers_slots_for_every_trained_weight(self, name: str) -> None:
        optimizer, slots = OPTIMIZERS[name]

        session = opened(optimizer)

        trained = [weight for weight in session.weights() if ".moving_" not in weight]
        assert set(session.state()) == {f"{weight}.{slot}" for weight in trained for slot in slots}
        for key, value in session.state().items():
            assert value.shape == session.weights()[key.rsplit(".", 1)[0]].shape


class TestStart:
    def test_adagrad_starts_from_its_accumulator(self) -> None:
        state = opened(OPTIMIZERS["adagrad"][0]).state()

        assert {float(number) for value in state.values() for number in value.ravel()} == {0.5}


@pytest.mark.parametrize("name", ["adam", "adamw", "rmsprop", "rmsprop with momentum", "adagrad"])
class TestOverflow:
    def test_a_model_that_an_infinite_square_has_stopped_does_not_pass_for_trained(self, name: str) -> None:
        # Gradients of 1e30 are finite, and so is the loss; their squares are not, and the optimizer divides by them.
        session = opened(OPTIMIZERS[name][0], class_weights=(1e30, 1e30, 1e30), clip_norm=None, l2=0.0)

        sums = run(session, 2)

        assert not np.isfinite(sums[0])


class TestWeightDecay:
    def test_shrinks_kernels_alone_by_rate_times_decay(self) -> None:
        # Without a gradient Adam does not move; class weights of 0 leave none.
        settings: dict[str, Any] = {"class_weights": (0.0, 0.0, 0.0), "l2": 0.0, "dtype": "float64"}
        session = opened(AdamW(name="adamw"), weight_decay=0.5, **settings)
        before = session.weights()

        run(session, 1, rate=0.1)

        after = session.weights()
        for name in ("dense_1.kernel", "output.kernel"):
            assert_allclose(after[name], before[name] * (1 - 0.1 * 0.5), rtol=1e-12)
        for name in ("batch_norm_1.gamma", "output.bias"):
            assert after[name].tolist() == before[name].tolist()

    def test_is_nothing_by_itself(self) -> None:
        variable = tf.Variable([2.0])
        optimizer = optimizer_for(AdamW(name="adamw"), [variable])

        optimizer.update([tf.constant([0.0])], tf.constant(optimizer.table(np.array([0.1]), 0)[0], tf.float32))

        assert variable.numpy().tolist() == [2.0]
