"""A user's model in a backend: trained exactly as our own of the same layers, and to the same bits after a pause."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from app.spec.job import LossName
from app.spec.training import AdamW, Sgd
from tests.workers.backends.sessions import CPU, FEATURES, ROWS, arrays, layers
from tests.workers.user_model.user_jobs import write_folder
from workers.backends.base import Program, Session, Steps, load_backend
from workers.backends.initial import Weights, draw_weights
from workers.data.arrays import Arrays
from workers.data.metrics import no_sums
from workers.data.order import epoch_plan
from workers.data.split import PartName
from workers.user_model.errors import UserCodeFailed
from workers.user_model.module import UserModule

FRAMEWORKS = ["torch", "tensorflow"]

NETS = {
    "torch": """
from torch import nn
import torch


def build(input_shape, output_units, drop=0.0, norm=False):
    inner = [nn.Linear(*input_shape, 12), nn.Tanh(), nn.Dropout(drop), nn.Linear(12, 8), nn.Tanh()]
    return nn.Sequential(*inner, *([nn.BatchNorm1d(8)] if norm else []), nn.Linear(8, output_units))


class Partly(nn.Module):
    def __init__(self, used):
        super().__init__()
        self.a, self.b, self.used = nn.Linear(6, 3), nn.Linear(6, 3), used

    def forward(self, x):
        return self.a(x) if self.used else x[:, :3].clone()


class InPlace(nn.Linear):
    def forward(self, x):
        return super().forward(x.sub_(1.0))


def in_place():
    return InPlace(6, 3)


def without_gradients(input_shape, output_units):
    torch.set_grad_enabled(False)
    return build(input_shape, output_units)


def partly(used):
    return Partly(used)


def words():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(5, 3, sparse=True)

        def forward(self, x):
            return self.table(x[:, 0].long().clamp(0, 4))

    return Words()
""",
    "tensorflow": """
import keras
from keras import layers


def build(input_shape, output_units, drop=0.0, norm=False):
    inner = [layers.Dense(12, activation="tanh"), layers.Dropout(drop), layers.Dense(8, activation="tanh")]
    return keras.Sequential([*inner, *([layers.BatchNormalization()] if norm else []), layers.Dense(output_units)])


def partly(used):
    x = keras.Input((6,))
    a, b = layers.Dense(3, name="a"), layers.Dense(3, name="b")
    return keras.Model(x, a(x) + 0.0 * keras.ops.stop_gradient(b(x)))


def regularised():
    x = keras.Input((6,))
    return keras.Model(x, layers.Dense(3, name="a", kernel_regularizer=keras.regularizers.L2(0.25))(x))
""",
}

OURS = {
    "torch": {"0": "dense_1", "3": "dense_2", "5": "output"},
    "tensorflow": {"sequential/dense": "dense_1", "sequential/dense_1": "dense_2", "sequential/dense_2": "output"},
}


@dataclasses.dataclass(frozen=True)
class Case:
    loss: LossName = "cross_entropy"
    program: dict[str, Any] = dataclasses.field(default_factory=dict)


CASES = {
    "sgd with momentum": Case(program={"optimizer": Sgd(name="sgd", momentum=0.9)}),
    "adamw, whose decay spares biases": Case(program={"optimizer": AdamW(name="adamw"), "weight_decay": 0.1}),
    "penalties, which spare biases": Case(program={"l1": 0.01, "l2": 0.02}),
    "clipping": Case(program={"clip_norm": 0.1, "clip_value": 0.02}),
    "class weights": Case(program={"class_weights": (0.5, 2.0, 1.0)}),
    "regression": Case("huber"),
}


def program_of(loss: LossName, folder: Path | None, framework: Any, function: str = "build", **changes: Any) -> Program:
    parameters = changes.pop("parameters", {})
    values: dict[str, Any] = {
        "optimizer": Sgd(name="sgd"),
        "batch_size": 16,
        "seed": 3,
        "dtype": "float64",
        "loss": loss,
        "input_shape": (FEATURES,),
        "layers": tuple(layers(loss)) if folder is None else (),
        **changes,
    }
    if folder is not None:
        write_folder(folder, {"nets.py": NETS[framework]})
        units = 3 if loss == "cross_entropy" else 1
        values["module"] = UserModule(framework, str(folder), f"nets:{function}", parameters, (FEATURES,), units, 3)
    return Program(**values)


def opened(program: Program, framework: str, weights: Weights | None = None) -> Session:
    backend = load_backend(framework)
    backend.prepare([CPU], 1)
    parts: dict[PartName, Arrays] = {
        "train": arrays(program.loss, ROWS, 0, program.dtype),
        "validation": arrays(program.loss, 30, 1, program.dtype),
        "test": arrays(program.loss, 0, 2, program.dtype),
    }
    return backend.open(program, weights or {}, parts)


def trained(
    session: Session, loss: LossName, first: int, epochs: range, chunk: int = 4
) -> tuple[np.ndarray[Any, Any], int]:
    """Train whole epochs in chunks; the sums of the last epoch, and the step reached."""
    sums = no_sums("classification" if loss == "cross_entropy" else "regression")
    for epoch in epochs:
        sums = np.zeros_like(sums)
        plan = epoch_plan(3, epoch, ROWS, 16)
        for rows in [*(plan.full[place : place + chunk] for place in range(0, len(plan.full), chunk)), plan.rest[None]]:
            sums = session.run(Steps(rows, np.full(len(rows), 0.05), first), sums)
            first += len(rows)
    return sums, first


def as_ours(weights: Weights, framework: str) -> Weights:
    """Bring a user's weights to the names and shapes of our layers."""
    found = {}
    for name, value in weights.items():
        layer, _, kind = name.rpartition("." if framework == "torch" else "/")
        kernel = kind in {"weight", "kernel"}
        found[f"{OURS[framework][layer]}.{'kernel' if kernel else 'bias'}"] = (
            value.T if kernel and framework == "torch" else value
        )
    return found


def as_theirs(weights: Weights, framework: str, names: list[str]) -> Weights:
    """The same the other way."""
    found = {}
    for name in names:
        (ours,) = as_ours({name: np.zeros((1, 1))}, framework)
        found[name] = weights[ours].T if framework == "torch" and ours.endswith("kernel") else weights[ours]
    return found


@pytest.mark.parametrize("framework", FRAMEWORKS)
class TestAsOurOwn:
    @pytest.mark.parametrize("name", list(CASES))
    def test_the_same_layers_are_trained_the_same_way(self, tmp_path: Path, framework: str, name: str) -> None:
        case = CASES[name]
        drawn = draw_weights(layers(case.loss), (FEATURES,), 3)
        ours = opened(program_of(case.loss, None, framework, **case.program), framework, drawn)
        theirs = opened(program_of(case.loss, tmp_path, framework, **case.program), framework)
        theirs.restore(as_theirs(drawn, framework, list(theirs.facts())), None)

        sums, others = trained(ours, case.loss, 0, range(1, 3))[0], trained(theirs, case.loss, 0, range(1, 3))[0]

        assert_allclose(others, sums, rtol=1e-10)
        found = as_ours(theirs.weights(), framework)
        for key, value in ours.weights().items():
            assert_allclose(found[key], value, rtol=1e-9, atol=1e-12, err_msg=key)
        assert_allclose(theirs.outputs("validation", 3, 21), ours.outputs("validation", 3, 21), rtol=1e-9, atol=1e-12)

    def test_evaluation_is_without_dropout_and_changes_nothing(self, tmp_path: Path, framework: str) -> None:
        program = program_of("cross_entropy", tmp_path, framework, parameters={"drop": 0.5, "norm": True})
        session = opened(program, framework)
        _, step = trained(session, "cross_entropy", 0, range(1, 2))
        before = session.weights()

        first, second = session.outputs("validation", 0, 30), session.outputs("validation", 0, 30)
        pieces = [session.outputs("validation", 0, 11), session.outputs("validation", 11, 30)]

        assert np.array_equal(first, second)
        assert_allclose(np.concatenate(pieces), first, rtol=1e-9, atol=1e-12)
        assert all(np.array_equal(before[name], value) for name, value in session.weights().items())
        assert session.outputs("validation", 4, 4).shape == (0, 3)
        assert step == 5


@pytest.mark.parametrize("framework", FRAMEWORKS)
class TestGoesOn:
    @pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
    def test_from_what_was_copied_out_to_the_bit(self, tmp_path: Path, framework: str, precision: str) -> None:
        changes: dict[str, Any] = {"dtype": "float32", "precision": precision, "optimizer": AdamW(name="adamw")}
        program = program_of("cross_entropy", tmp_path, framework, parameters={"drop": 0.5, "norm": True}, **changes)
        straight = opened(program, framework)
        _, step = trained(straight, "cross_entropy", 0, range(1, 2))
        kept = straight.weights(), straight.state()
        expected = trained(straight, "cross_entropy", step, range(2, 4))

        resumed = opened(dataclasses.replace(program), framework)
        resumed.outputs("train", 0, 5)  # looking on the way draws nothing that training would have drawn
        resumed.restore(*kept)
        found = trained(resumed, "cross_entropy", step, range(2, 4), chunk=1)

        assert np.array_equal(found[0], expected[0])
        for one, other in ((straight.weights(), resumed.weights()), (straight.state(), resumed.state())):
            assert one.keys() == other.keys()
            assert all(np.array_equal(one[name], other[name]) for name in one)

    def test_dropout_is_another_in_every_step_and_with_every_seed(self, tmp_path: Path, framework: str) -> None:
        def loss(seed: int, first: int) -> float:
            program = program_of("cross_entropy", tmp_path, framework, parameters={"drop": 0.5}, seed=seed)
            rows = np.arange(16)[None]
            return float(opened(program, framework).run(Steps(rows, np.zeros(1), first), no_sums("classification"))[0])

        assert loss(3, 7) == loss(3, 7)
        assert len({loss(3, 7), loss(3, 8), loss(4, 7)}) == 3


@pytest.mark.parametrize("framework", FRAMEWORKS)
class TestOdd:
    def test_a_weight_that_is_not_used_stays(self, tmp_path: Path, framework: str) -> None:
        session = opened(
            program_of("cross_entropy", tmp_path, framework, "partly", parameters={"used": True}), framework
        )
        before = session.weights()
        trained(session, "cross_entropy", 0, range(1, 2))

        moved = {name for name, value in session.weights().items() if not np.array_equal(value, before[name])}

        assert moved == ({"a.weight", "a.bias"} if framework == "torch" else {"a/kernel", "a/bias"})

    def test_rows_that_are_not_finite_say_so_in_the_loss(self, tmp_path: Path, framework: str) -> None:
        session = opened(program_of("cross_entropy", tmp_path, framework), framework)
        session.restore({name: value * np.nan for name, value in session.weights().items()}, None)

        assert np.isnan(trained(session, "cross_entropy", 0, range(1, 2))[0][0])


class TestTorch:
    def test_logits_that_depend_on_no_weight_are_refused(self, tmp_path: Path) -> None:
        session = opened(program_of("cross_entropy", tmp_path, "torch", "partly", parameters={"used": False}), "torch")

        with pytest.raises(UserCodeFailed, match="depend on none of its trained weights"):
            trained(session, "cross_entropy", 0, range(1, 2))

    def test_a_forward_that_changes_its_rows_changes_no_data(self, tmp_path: Path) -> None:
        session = opened(program_of("cross_entropy", tmp_path, "torch", "in_place"), "torch")
        first = session.outputs("validation", 0, 30)

        assert np.array_equal(session.outputs("validation", 0, 30), first)

    def test_gradients_that_the_code_turned_off_are_on_in_a_step(self, tmp_path: Path) -> None:
        def weights(function: str) -> Weights:
            session = opened(program_of("cross_entropy", tmp_path, "torch", function), "torch")
            trained(session, "cross_entropy", 0, range(1, 2))
            return session.weights()

        with torch.set_grad_enabled(True):  # and put back afterwards
            found, expected = weights("without_gradients"), weights("build")

        assert all(np.array_equal(found[name], value) for name, value in expected.items())

    def test_sparse_gradients_are_made_dense(self, tmp_path: Path) -> None:
        session = opened(program_of("cross_entropy", tmp_path, "torch", "words"), "torch")
        before = session.weights()["table.weight"]

        trained(session, "cross_entropy", 0, range(1, 2))

        assert not np.array_equal(session.weights()["table.weight"], before)


class TestTensorFlow:
    def test_losses_of_the_layers_are_penalties(self, tmp_path: Path) -> None:
        def kernel(function: str, **changes: Any) -> Any:
            session = opened(program_of("cross_entropy", tmp_path, "tensorflow", function, **changes), "tensorflow")
            names = [name for name in session.facts() if name.endswith("kernel")]
            start = np.linspace(-1.0, 1.0, 18).reshape(6, 3)
            session.restore(
                {name: start if name in names else value for name, value in session.weights().items()}, None
            )
            sums = session.run(Steps(np.arange(16)[None], np.full(1, 0.1), 0), no_sums("classification"))
            return session.weights()["a/kernel"], float(sums[0])

        (own, own_loss), (ours, our_loss) = kernel("regularised"), kernel("partly", parameters={"used": True}, l2=0.25)
        assert_allclose(own, ours, rtol=1e-9)
        assert own_loss == pytest.approx(our_loss)

    def test_several_devices_are_refused_with_a_way_out(self, tmp_path: Path) -> None:
        with pytest.raises(UserCodeFailed, match="use device_count 1, or framework 'torch'"):
            opened(program_of("cross_entropy", tmp_path, "tensorflow", world=2), "tensorflow")
