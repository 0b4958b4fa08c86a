"""Half precision in torch: what is half, what is not, and what an overflow leaves as it was."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from app.spec.layers import (
    ActivationLayer,
    BatchNormLayer,
    Conv1dLayer,
    Conv2dLayer,
    DenseLayer,
    EmbeddingLayer,
    FlattenLayer,
    GruLayer,
    Layer,
    LayerNormLayer,
    LstmLayer,
)
from app.spec.optimizers import Adagrad, Adam, AdamW, RmsProp, Sgd
from app.spec.training import Precision
from tests.workers.backends.conformance import same
from tests.workers.backends.sessions import CPU
from workers.backends.base import Program, Session, Steps, load_backend
from workers.backends.initial import draw_weights
from workers.backends.torch.layers import forward
from workers.backends.torch.precision import GROWTH_INTERVAL, START, LossScale, Undo
from workers.data.arrays import Arrays
from workers.data.metrics import no_sums

HALVES = (torch.bfloat16, torch.float16)

PRODUCTS: dict[str, tuple[Layer, tuple[int, ...]]] = {
    "dense": (DenseLayer("dense_1", 4), (3,)),
    "conv1d": (Conv1dLayer("conv1d_1", 4, 3), (5, 3)),
    "conv2d": (Conv2dLayer("conv2d_1", 4, (3, 3)), (5, 4, 3)),
    "embedding": (EmbeddingLayer("embedding_1", 3, 4), (5,)),
    "lstm": (LstmLayer("lstm_1", 4), (5, 3)),
    "gru": (GruLayer("gru_1", 4), (5, 3)),
}

MODEL: tuple[Layer, ...] = (
    Conv2dLayer("conv2d_1", 4, (3, 3), use_bias=False),
    BatchNormLayer("batch_norm_1"),
    ActivationLayer("activation_1", "relu"),
    FlattenLayer("flatten_1"),
    DenseLayer("output", 3),
)


def random_rows(shape: tuple[int, ...], rows: int = 4, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(rows, *shape)).astype(np.float32))


def weights_of(layers: tuple[Layer, ...], shape: tuple[int, ...]) -> dict[str, Tensor]:
    drawn = draw_weights(layers, shape, 1)
    return {name: torch.from_numpy(value.astype(np.float32)) for name, value in drawn.items()}


@pytest.mark.parametrize("half", HALVES)
class TestProducts:
    @pytest.mark.parametrize("kind", PRODUCTS)
    def test_are_half_and_close_to_float32(self, kind: str, half: torch.dtype) -> None:
        layer, shape = PRODUCTS[kind]
        x = torch.tensor([[0.0, 1.0, 2.0, 1.0, 0.0]]) if kind == "embedding" else random_rows(shape)
        weights = weights_of((layer,), shape)

        found, whole = (forward((layer,), weights, x, product=product) for product in (half, None))

        assert (found.dtype, whole.dtype) == (half, torch.float32)
        # bfloat16 keeps 8 bits: each of some ten roundings is wrong by at most 0.4 %.
        assert float((found.float() - whole).abs().max()) <= 0.04 * float(whole.abs().max())

    @pytest.mark.parametrize("layer", [BatchNormLayer("batch_norm_1"), LayerNormLayer("layer_norm_1")])
    def test_normalisation_computes_in_float32_and_gives_half_back(self, layer: Layer, half: torch.dtype) -> None:
        # 70000 is infinite in float16, and a square of 300 nearly is.
        x = (300 * random_rows((8,))).to(half)

        found = forward((layer,), weights_of((layer,), (8,)), x, product=half)

        assert found.dtype == half
        assert found.isfinite().all()


class TestOutput:
    @pytest.mark.parametrize("half", HALVES)
    def test_logits_are_float32_products_of_float32(self, half: torch.dtype) -> None:
        # Case C51: what enters the loss. Rounded factors would give another number than 1 + 2**-12.
        layer = DenseLayer("output", 1)
        weights = {"output.kernel": torch.full((1, 1), 1 + 2**-12), "output.bias": torch.zeros(1)}

        found = forward((layer,), weights, torch.ones(1, 1), product=half)

        assert found.dtype == torch.float32
        assert found.item() == 1 + 2**-12

    @pytest.mark.parametrize("precision", ["bfloat16", "float16"])
    def test_outputs_of_a_session_are_float32(self, precision: Precision) -> None:
        assert session(precision).outputs("train", 0, 4).dtype == np.float32


def session(precision: Precision, scale: float = 1.0, **settings: Any) -> Session:
    """Open a small picture model on 32 rows whose inputs are multiplied by `scale`."""
    backend = load_backend("torch")
    backend.prepare([CPU], 1)
    given: dict[str, Any] = {"optimizer": Adam(name="adam"), **settings}
    program = Program(MODEL, (5, 4, 1), "cross_entropy", batch_size=8, precision=precision, **given)
    x = scale * random_rows((5, 4, 1), 32, 3).numpy()
    y = (x.mean(axis=(1, 2, 3)) > 0).astype(np.int64)
    return backend.open(program, draw_weights(MODEL, (5, 4, 1), 1), {"train": Arrays(x, y)})


def steps(count: int, first: int = 0) -> Steps:
    rows = np.random.default_rng(first).integers(0, 32, (count, 8))
    return Steps(rows, np.full(count, 0.01), first)


class TestTraining:
    @pytest.mark.parametrize("precision", ["bfloat16", "float16"])
    def test_learns_as_float32_does(self, precision: Precision) -> None:
        found = []
        for each in (precision, "float32"):
            model = session(each)
            model.run(steps(150), no_sums("classification"))
            found.append(model.run(steps(10, 150), no_sums("classification"))[0] / 80)

        assert found[0] == pytest.approx(found[1], abs=0.05)
        assert found[0] < 0.4 < np.log(3)  # the loss of a guess among three classes

    def test_weights_and_what_the_optimizer_remembers_stay_float32(self) -> None:
        model = session("bfloat16")
        model.run(steps(2), no_sums("classification"))

        kinds = {value.dtype for value in (*model.weights().values(), *model.state().values())}

        assert kinds == {np.dtype(np.float32)}


OPTIMIZERS = [
    Sgd(name="sgd", momentum=0.9),
    Adam(name="adam"),
    AdamW(name="adamw"),
    RmsProp(name="rmsprop", momentum=0.9),
    Adagrad(name="adagrad"),
]


class TestOverflow:
    @pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: optimizer.name)
    def test_leaves_everything_as_it_was_but_the_scale(self, optimizer: Any) -> None:
        # A scale of 2**126 makes every gradient infinite.
        model = session("float16", optimizer=optimizer, weight_decay=0.1 if optimizer.name == "adamw" else 0.0)
        model.run(steps(3), no_sums("classification"))
        high = model.state() | {"loss_scale.scale": np.array(2.0**126, np.float32)}
        before = model.weights()
        model.restore(before, high)

        sums = model.run(steps(1, 3), no_sums("classification"))

        assert np.isfinite(sums).all()
        assert same(model.weights(), before)
        halved = {"loss_scale.scale": np.array(2.0**125, np.float32), "loss_scale.good_steps": np.array(0, np.float32)}
        assert same(model.state(), high | halved)

    def test_a_model_that_overflows_without_a_scale_does_not_pass_for_trained(self) -> None:
        model = session("float16", scale=1e30)
        model.restore(model.weights(), model.state() | {"loss_scale.scale": np.array(1.0, np.float32)})

        assert np.isnan(model.run(steps(1), no_sums("classification"))).all()

    def test_good_steps_are_counted_and_remembered(self) -> None:
        model = session("float16")
        assert model.state()["loss_scale.scale"] == START

        model.run(steps(5), no_sums("classification"))

        assert model.state()["loss_scale.good_steps"] == 5

    def test_other_precisions_have_no_scale(self) -> None:
        for precision in ("float32", "bfloat16"):
            assert not [name for name in session(precision).state() if name.startswith("loss_scale")]


def moved(scale: float, good_steps: float, *, finite: bool) -> tuple[float, float, bool]:
    state = LossScale(torch.device("cpu"))
    state.scale.fill_(scale)
    state.good_steps.fill_(good_steps)
    state.move(torch.tensor(finite))
    return state.scale.item(), state.good_steps.item(), state.lost()


class TestLossScale:
    def test_stays_while_steps_are_good(self) -> None:
        assert moved(8.0, 3.0, finite=True) == (8.0, 4.0, False)

    def test_doubles_after_2000_good_steps_and_counts_again(self) -> None:
        assert moved(8.0, GROWTH_INTERVAL - 1, finite=True) == (16.0, 0.0, False)

    def test_halves_at_an_overflow_and_counts_again(self) -> None:
        assert moved(8.0, 1500.0, finite=False) == (4.0, 0.0, False)

    def test_never_falls_below_one_and_says_when_it_would(self) -> None:
        assert moved(1.0, 10.0, finite=False) == (1.0, 0.0, True)

    def test_what_is_lost_stays_lost_whatever_the_next_step_of_a_chunk_is(self) -> None:
        state = LossScale(torch.device("cpu"))
        state.scale.fill_(1.0)

        for finite in (False, True):
            state.move(torch.tensor(finite))

        assert state.lost()

    @pytest.mark.parametrize("strange", [float("inf"), float("-inf"), float("nan")])
    def test_sees_one_number_that_is_not_finite(self, strange: float) -> None:
        gradients = [torch.ones(3, 2), torch.tensor([1.0, strange])]

        assert not LossScale(torch.device("cpu")).down(gradients)[1]

    def test_down_undoes_up(self) -> None:
        state = LossScale(torch.device("cpu"))

        (found,), finite = state.down([state.up(torch.tensor([3.0, -0.125]))])

        assert found.tolist() == [3.0, -0.125]  # powers of two are exact
        assert finite


class TestUndo:
    def test_keeps_a_good_step_and_takes_a_bad_one_back(self) -> None:
        for good, expected in ((True, [7.0, 7.0]), (False, [1.0, 2.0])):
            tensor = torch.tensor([1.0, 2.0])
            undo = Undo([tensor])
            tensor.fill_(float("nan") if not good else 7.0)

            undo.unless(torch.tensor(good))

            assert tensor.tolist() == expected
