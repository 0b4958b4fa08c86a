"""Half precision in TensorFlow: what is computed in which type, and the scale of float16's loss. Case C51."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from app.spec.layers import (
    BatchNormLayer,
    Conv2dLayer,
    DenseLayer,
    EmbeddingLayer,
    FlattenLayer,
    GlobalAvgPool2dLayer,
    GruLayer,
    Layer,
    LayerNormLayer,
    LstmLayer,
    ReshapeLayer,
    ResidualLayer,
)
from tests.workers.backends.conformance import same
from tests.workers.backends.sessions import CPU
from tests.workers.backends.tensorflow_models import PICTURES, SEQUENCES, program, session_of
from workers.backends.base import Session, Steps, load_backend
from workers.backends.initial import draw_weights
from workers.backends.tensorflow.framework import tf
from workers.backends.tensorflow.gradients import clipped
from workers.backends.tensorflow.layers import forward
from workers.backends.tensorflow.precision import GROWTH_INTERVAL, LossScale
from workers.data.metrics import no_sums

HALVES = ["bfloat16", "float16"]
CLOSE = {"bfloat16": 0.3, "float16": 0.03}
"""How far logits of size 1 may be off after ten steps, with 8 and 11 bits; seen were 0.11 and 0.006."""


def opened(layers: tuple[Layer, ...] = PICTURES, **settings: Any) -> Session:
    load_backend("tensorflow").prepare([CPU], 1)
    return session_of(program(layers, **settings))


def run(session: Session, count: int = 1, first: int = 0) -> np.ndarray[Any, Any]:
    rows = np.random.default_rng(first).integers(0, 35, (count, 16))
    return session.run(Steps(rows=rows, rates=np.full(count, 0.01), first=first), no_sums("classification"))


class TestTypes:
    @pytest.mark.parametrize("half", HALVES)
    @pytest.mark.parametrize(
        ("layer", "shape"),
        [
            (DenseLayer("dense_1", 3), (4,)),
            (Conv2dLayer("conv2d_1", 3, (3, 3)), (5, 5, 2)),
            (LstmLayer("lstm_1", 3), (5, 2)),
            (GruLayer("gru_1", 3, return_sequences=True), (5, 2)),
            (EmbeddingLayer("embedding_1", 9, 3), (4,)),
        ],
        ids=lambda value: getattr(value, "type", ""),
    )
    def test_products_give_the_half_type_close_to_the_full_one(
        self, layer: Layer, shape: tuple[int, ...], half: str
    ) -> None:
        weights = {name: tf.constant(value, tf.float32) for name, value in draw_weights([layer], shape, 1).items()}
        x = tf.constant(np.random.default_rng(0).integers(0, 8, (6, *shape)), tf.float32)

        found = forward([layer], weights, x, product=tf.as_dtype(half))
        full = forward([layer], weights, x)

        assert found.dtype == half
        assert_allclose(tf.cast(found, tf.float32).numpy(), full.numpy(), rtol=0.02, atol=0.1)

    @pytest.mark.parametrize("half", HALVES)
    @pytest.mark.parametrize("layer", [BatchNormLayer("batch_norm_1"), LayerNormLayer("layer_norm_1")])
    def test_norms_compute_in_float32_and_give_the_type_that_came(
        self, layer: BatchNormLayer | LayerNormLayer, half: str
    ) -> None:
        # The square of 300 is beyond float16; in float32 it is not.
        weights = {name: tf.constant(value, tf.float32) for name, value in draw_weights([layer], (4,), 1).items()}
        x = tf.cast([[300.0, -300.0, 300.0, -300.0]], half)

        found = forward([layer], weights, x, product=tf.as_dtype(half))

        assert found.dtype == half
        assert np.isfinite(tf.cast(found, tf.float32).numpy()).all()

    def test_a_mean_over_many_places_does_not_overflow(self) -> None:
        x = tf.fill([1, 32, 32, 1], tf.constant(200.0, tf.float16))  # the sum is 204 800, beyond float16

        found = forward([GlobalAvgPool2dLayer("global_avg_pool2d_1")], {}, x, product=tf.float16)

        assert found.numpy().tolist() == [[200.0]]

    @pytest.mark.parametrize("half", HALVES)
    def test_output_layer_and_what_enters_the_loss_are_float32(self, half: str) -> None:
        layers: tuple[Layer, ...] = (DenseLayer("dense_1", 4), DenseLayer("output", 3))
        weights = {name: tf.constant(value, tf.float32) for name, value in draw_weights(layers, (5,), 1).items()}

        logits = forward(layers, weights, tf.ones([2, 5]), product=tf.as_dtype(half))

        assert logits.dtype == tf.float32

    def test_a_sum_of_two_types_takes_the_wider(self) -> None:
        layer = ResidualLayer("residual_1", (DenseLayer("dense_1", 5),))
        weights = {name: tf.constant(value, tf.float32) for name, value in draw_weights([layer], (5,), 1).items()}

        assert forward([layer], weights, tf.ones([2, 5]), product=tf.float16).dtype == tf.float32


class TestTraining:
    @pytest.mark.parametrize("half", HALVES)
    @pytest.mark.parametrize("layers", [PICTURES, SEQUENCES], ids=["pictures", "sequences"])
    def test_losses_and_outputs_stay_close_to_float32(self, layers: tuple[Layer, ...], half: str) -> None:
        full, session = opened(layers), opened(layers, precision=half)

        expected, found = run(full, 10), run(session, 10)

        assert_allclose(found[0], expected[0], rtol=0.02)
        outputs = session.outputs("validation", 0, 11)
        assert outputs.dtype == np.float32
        assert_allclose(outputs, full.outputs("validation", 0, 11), atol=CLOSE[half])

    @pytest.mark.parametrize("half", HALVES)
    def test_weights_and_what_the_optimizer_remembers_are_float32(self, half: str) -> None:
        session = opened(precision=half)
        run(session)

        kept = {**session.weights(), **session.state()}

        assert {value.dtype for value in kept.values()} == {np.dtype(np.float32)}
        assert ("loss_scale.scale" in kept) == (half == "float16")


class TestLossScale:
    """What torch's GradScaler does, from 2**15."""

    def test_starts_high_and_counts_good_steps(self) -> None:
        session = opened(precision="float16")
        run(session, 3)

        state = session.state()

        assert (float(state["loss_scale.scale"]), float(state["loss_scale.good_steps"])) == (2.0**15, 3.0)

    def test_doubles_after_2000_good_steps(self) -> None:
        session = opened(precision="float16")
        state = session.state() | {"loss_scale.good_steps": np.array(GROWTH_INTERVAL - 1, np.float32)}
        session.restore(session.weights(), state)

        run(session)

        state = session.state()
        assert (float(state["loss_scale.scale"]), float(state["loss_scale.good_steps"])) == (2.0**16, 0.0)

    def test_an_overflow_halves_it_and_moves_nothing_else(self) -> None:
        session = opened(precision="float16")
        run(session)
        before = session.state() | {"loss_scale.scale": np.array(2.0**100, np.float32)}
        session.restore(session.weights(), before)
        weights = session.weights()

        sums = run(session, first=1)

        assert np.isfinite(sums).all()
        assert same(session.weights(), weights)
        after = session.state()
        assert float(after.pop("loss_scale.scale")) == 2.0**99
        assert float(after.pop("loss_scale.good_steps")) == 0.0
        assert same(after, {name: value for name, value in before.items() if name in after})

    def test_recovers_by_itself_from_a_scale_that_is_too_large(self) -> None:
        session = opened(precision="float16")
        session.restore(session.weights(), session.state() | {"loss_scale.scale": np.array(2.0**40, np.float32)})
        before = session.weights()["output.kernel"]

        run(session, 40)

        assert float(session.state()["loss_scale.scale"]) < 2.0**40
        assert not np.array_equal(session.weights()["output.kernel"], before)

    def test_never_falls_below_1_and_then_says_that_nothing_moves(self) -> None:
        scale = LossScale()
        scale.scale.assign(1.0)

        _, lost = scale.move(tf.constant(value=False))

        assert bool(lost)
        assert float(scale.scale) == 1.0

    def test_bfloat16_needs_none(self) -> None:
        assert not any(name.startswith("loss_scale") for name in opened(precision="bfloat16").state())


class TestClipping:
    def test_a_norm_that_is_not_finite_makes_nan_of_everything(self) -> None:
        # Its square overflows in float32: scaled by 0 the model would stand still with a finite loss.
        found = clipped([tf.constant([1e30, 1.0])], None, 1.0)

        assert all(math.isnan(value) for value in found[0].numpy())

    def test_numbers_are_cut_before_the_norm_is_taken(self) -> None:
        found = clipped([tf.constant([3.0, -40.0], tf.float64), tf.constant([0.5], tf.float64)], 4.0, 1.0)

        norm = math.sqrt(9 + 16 + 0.25)
        assert_allclose(np.concatenate(found), np.array([3.0, -4.0, 0.5]) / (norm + 1e-6), rtol=1e-12)

    def test_small_gradients_stay_as_they_are(self) -> None:
        found = clipped([tf.constant([0.3, -0.4], tf.float64)], 1.0, 1.0)

        assert found[0].numpy().tolist() == [0.3, -0.4]


def test_halves_flow_through_a_reshape() -> None:
    x = tf.ones([2, 8], tf.float16)

    found = forward([ReshapeLayer("reshape_1", (2, 4)), FlattenLayer("flatten_1")], {}, x, product=tf.float16)

    assert found.dtype == tf.float16
