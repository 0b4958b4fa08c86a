"""A torch session: class weights, the order of what happens to gradients, and going on where another one stopped."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch.nn import functional

from app.spec.layers import DenseLayer, DropoutLayer, ParallelLayer
from app.spec.optimizers import Adagrad, Adam, AdamW, RmsProp, Sgd
from tests.workers.backends.conformance import same
from tests.workers.backends.sessions import CPU
from tests.workers.backends.tensorflow_models import PICTURES, SEQUENCES, curve, part, program
from workers.backends.base import Program, Session, Steps, load_backend
from workers.backends.initial import Weights, draw_weights
from workers.data.arrays import Arrays
from workers.data.metrics import no_sums

SETTINGS: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": Sgd(name="sgd"), "weight_decay": 0.0},
    "momentum": {"optimizer": Sgd(name="sgd", momentum=0.9, nesterov=True), "weight_decay": 0.0},
    "adam": {"optimizer": Adam(name="adam"), "weight_decay": 0.0},
    "adamw": {"optimizer": AdamW(name="adamw"), "weight_decay": 0.1},
    "rmsprop": {"optimizer": RmsProp(name="rmsprop", momentum=0.9), "weight_decay": 0.0},
    "adagrad": {"optimizer": Adagrad(name="adagrad", initial_accumulator=0.1), "weight_decay": 0.0},
    "adam in float16": {"optimizer": Adam(name="adam"), "weight_decay": 0.0, "precision": "float16"},
    "adamw in bfloat16": {"optimizer": AdamW(name="adamw"), "precision": "bfloat16"},
    "recurrent": {"layers": SEQUENCES},
}

SLOTS = {
    "sgd": set(),
    "momentum": {"velocity"},
    "adam": {"mean", "square"},
    "adamw": {"mean", "square"},
    "rmsprop": {"square", "velocity"},
    "adagrad": {"sum"},
}


def opened(wanted: Program) -> Session:
    backend = load_backend("torch")
    backend.prepare([CPU], 1)
    weights = draw_weights(wanted.layers, wanted.input_shape, 3)
    return backend.open(wanted, weights, {"train": part(35), "validation": part(11, 1)})


class TestGoingOn:
    """With batch norm, dropout, clipping and class weights."""

    @pytest.mark.parametrize("name", SETTINGS)
    def test_a_restored_session_goes_on_bit_by_bit(self, name: str) -> None:
        first, second = opened(program(**SETTINGS[name])), opened(program(**SETTINGS[name]))
        curve(first, epochs=[1, 2])

        second.restore(first.weights(), first.state())

        assert curve(second, epochs=[3, 4]) == curve(first, epochs=[3, 4])
        assert same(second.weights(), first.weights())
        assert same(second.state(), first.state())

    @pytest.mark.parametrize("name", ["momentum", "adam", "rmsprop", "adagrad"])
    def test_without_the_state_it_would_not(self, name: str) -> None:
        first, second = opened(program(**SETTINGS[name])), opened(program(**SETTINGS[name]))
        curve(first, epochs=[1, 2])

        second.restore(first.weights(), None)

        assert curve(second, epochs=[3]) != curve(first, epochs=[3])

    @pytest.mark.parametrize("name", SLOTS)
    def test_state_has_a_slot_for_each_trained_weight(self, name: str) -> None:
        session = opened(program(**SETTINGS[name]))
        still = ("moving_mean", "moving_variance")
        trained = {key: value for key, value in session.weights().items() if not key.endswith(still)}

        state = session.state()

        assert set(state) == {f"{weight}.{slot}" for weight in trained for slot in SLOTS[name]}
        assert all(value.shape == trained[key.rpartition(".")[0]].shape for key, value in state.items())

    def test_adagrad_starts_from_its_accumulator(self) -> None:
        state = opened(program(**SETTINGS["adagrad"])).state()

        assert {float(number) for value in state.values() for number in value.ravel()} == {float(np.float32(0.1))}

    def test_names_and_shapes_of_another_model_are_refused(self) -> None:
        session = opened(program())
        weights = session.weights()

        with pytest.raises(ValueError, match=r"differs from the model in: conv2d_1\.kernel"):
            session.restore({name: value for name, value in weights.items() if name != "conv2d_1.kernel"}, None)
        with pytest.raises(ValueError, match=r"'output\.bias' has shape \(4,\), where the model has \(3,\)"):
            session.restore(weights | {"output.bias": np.zeros(4)}, None)

    def test_the_state_of_another_optimizer_is_refused(self) -> None:
        adam, momentum = opened(program(**SETTINGS["adam"])), opened(program(**SETTINGS["momentum"]))

        with pytest.raises(ValueError, match="differs"):
            adam.restore(adam.weights(), momentum.state())

    def test_close_is_harmless_twice(self) -> None:
        session = opened(program())

        session.close()
        session.close()


LINEAR = (DenseLayer("output", 3),)


def moves(rows: int = 35, first: int = 0, **settings: Any) -> tuple[Weights, Weights, float]:
    """Make one step of SGD at rate 1 on a linear model; returns the weights before, the way back, and the loss."""
    given = {"optimizer": Sgd(name="sgd"), "l2": 0.0, "clip_norm": None, "class_weights": None, "weight_decay": 0.0}
    session = opened(program(LINEAR, dtype="float64", **given | settings))
    before = session.weights()
    sums = session.run(Steps(np.arange(first, first + rows)[None], np.ones(1), 0), no_sums("classification"))
    after = session.weights()
    return before, {name: before[name] - after[name] for name in before}, float(sums[0])


def by_torch(weights: Weights, rows: int, class_weights: tuple[float, ...] | None = None) -> tuple[Weights, float]:
    """The gradients of the loss by autograd: sum of weighted rows over the number of rows."""
    given = part(35)
    tensors = {name: torch.from_numpy(value).requires_grad_() for name, value in weights.items()}
    logits = torch.from_numpy(given.x[:rows]) @ tensors["output.kernel"] + tensors["output.bias"]
    y = torch.from_numpy(given.y[:rows])
    losses = functional.cross_entropy(logits, y, reduction="none")
    if class_weights is not None:
        losses = losses * torch.tensor(class_weights, dtype=torch.float64)[y]
    found = torch.autograd.grad(losses.sum() / rows, list(tensors.values()))
    return {name: value.numpy() for name, value in zip(tensors, found, strict=True)}, float(losses.detach().sum())


class TestOrder:
    def test_class_weights_multiply_rows_and_the_number_of_rows_divides(self) -> None:
        # torch's own mean divides by the sum of the weights.
        weights, found, loss = moves(16, class_weights=(1.0, 2.0, 0.5))

        expected, total = by_torch(weights, 16, (1.0, 2.0, 0.5))

        assert loss == pytest.approx(total, rel=1e-12)
        for name, move in found.items():
            assert_allclose(move, expected[name], rtol=1e-9, atol=1e-12)

    def test_penalty_then_value_then_norm(self) -> None:
        weights, found, _ = moves(16, l1=0.01, l2=0.1, clip_value=0.05, clip_norm=0.2)
        gradients, _ = by_torch(weights, 16)

        kernel = weights["output.kernel"]
        gradients["output.kernel"] = gradients["output.kernel"] + 0.01 * np.sign(kernel) + 0.2 * kernel
        cut = {name: value.clip(-0.05, 0.05) for name, value in gradients.items()}
        norm = np.sqrt(sum((value**2).sum() for value in cut.values()))
        assert norm > 0.2

        for name, move in found.items():
            assert_allclose(move, cut[name] * 0.2 / (norm + 1e-6), rtol=1e-9, atol=1e-12)

    def test_decay_acts_on_kernels_alone(self) -> None:
        # Adam's own way is the same in both; decay adds rate * decay * w, at rate 1.
        settings: dict[str, Any] = {"optimizer": AdamW(name="adamw"), "batch_size": 16}
        weights, plain, _ = moves(16, **settings)
        _, decayed, _ = moves(16, **settings, weight_decay=0.25)

        extra = {name: decayed[name] - plain[name] for name in plain}

        assert_allclose(extra["output.kernel"], 0.25 * weights["output.kernel"], rtol=1e-9, atol=1e-9)
        assert not extra["output.bias"].any()

    def test_branches_that_share_a_gradient_are_clipped_once(self) -> None:
        # In a batch of one row the two biases have one tensor as their gradient.
        branches = tuple((DenseLayer(f"dense_{place}", 3),) for place in (1, 2))
        settings: dict[str, Any] = {"l2": 0.0, "clip_norm": 1e-3, "class_weights": None, "weight_decay": 0.0}
        layers = (ParallelLayer("parallel_1", branches, "add"), DenseLayer("output", 3))
        session = opened(program(layers, dtype="float64", optimizer=Sgd(name="sgd"), **settings))
        before = session.weights()

        session.run(Steps(np.zeros((1, 1), np.int64), np.ones(1), 0), no_sums("classification"))

        ways = [(before[name] - after).ravel() for name, after in session.weights().items()]
        assert np.linalg.norm(np.concatenate(ways)) == pytest.approx(1e-3, rel=1e-2)


class TestPictures:
    def test_a_batch_of_any_size_passes(self) -> None:
        session = opened(program(PICTURES))

        for rows in (1, 2, 16):
            sums = session.run(Steps(np.zeros((1, rows), np.int64), np.ones(1), 0), no_sums("classification"))
            assert np.isfinite(sums).all()

    def test_a_part_without_rows_gives_no_outputs(self) -> None:
        assert opened(program(PICTURES)).outputs("validation", 3, 3).shape == (0, 3)

    def test_dropout_leaves_outputs_alone(self) -> None:
        layers = (DropoutLayer("dropout_1", 0.5), DenseLayer("output", 3))
        session = opened(program(layers, dtype="float64"))
        weights, x = session.weights(), part(11, 1).x

        expected = x @ weights["output.kernel"] + weights["output.bias"]

        assert_allclose(session.outputs("validation", 0, 11), expected, rtol=1e-12, atol=1e-14)


class TestRegression:
    def test_targets_keep_their_column(self) -> None:
        backend = load_backend("torch")
        backend.prepare([CPU], 1)
        wanted = Program((DenseLayer("output", 1),), (2,), "mse", Sgd(name="sgd"), 4, dtype="float64")
        given = Arrays(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0], [-1.0]]))
        weights: Weights = {"output.kernel": np.array([[1.0], [1.0]]), "output.bias": np.array([0.0])}
        session = backend.open(wanted, weights, {"train": given})

        sums = session.run(Steps(np.array([[0, 1]]), np.zeros(1), 0), no_sums("regression"))

        # By hand: 3 and 7 against 1 and -1: errors 2 and 8.
        assert sums.tolist() == [68.0, 10.0, 68.0]
