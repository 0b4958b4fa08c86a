"""What every backend must do, run over torch, TensorFlow and a backend in NumPy."""

import dataclasses
import importlib

import numpy as np
import pytest
from numpy.testing import assert_allclose

from app.spec.training import Adam, Sgd
from tests.workers.backends.conformance import Create, steps
from tests.workers.backends.sessions import CPU, FEATURES, Recipe, arrays, layers, open_session, train
from workers.backends.base import Program, load_backend
from workers.backends.initial import draw_weights
from workers.data.arrays import Arrays
from workers.data.metrics import no_sums
from workers.protocol import Device


class TestPrepare:
    def test_says_what_it_runs_on(self, create: Create) -> None:
        prepared = create().prepare([CPU], 1)

        assert (prepared.device_kind, prepared.devices, prepared.simulated) == ("cpu", ("CPU",), False)
        assert prepared.threads == 1
        assert prepared.version

    def test_simulated_devices_compute_on_the_cpu_and_say_so(self, create: Create) -> None:
        cards = [Device(id=f"GPU-{place}", kind="simulated", name="Card") for place in range(2)]

        prepared = create().prepare(cards, 1)

        assert (prepared.device_kind, prepared.devices, prepared.simulated) == ("cpu", ("Card", "Card"), True)


class TestWeights:
    def test_are_those_that_came_in(self, create: Create) -> None:
        session = open_session(create(), Recipe())

        drawn = draw_weights(layers("cross_entropy"), (FEATURES,), 3)
        given = session.weights()
        assert list(given) == list(drawn)
        for name, value in given.items():
            assert value.dtype == np.float32
            assert value.tolist() == drawn[name].astype(np.float32).tolist()

    def test_are_a_copy_that_later_steps_leave_alone(self, create: Create) -> None:
        session = open_session(create(), Recipe())
        before = session.weights()
        kept = {name: value.copy() for name, value in before.items()}

        session.run(steps(3), no_sums("classification"))

        for name, value in before.items():
            assert value.tolist() == kept[name].tolist()
            assert value.tolist() != session.weights()[name].tolist()

    def test_two_sessions_share_nothing(self, create: Create) -> None:
        backend = create()
        first, second = open_session(backend, Recipe()), open_session(backend, Recipe())

        first.run(steps(3), no_sums("classification"))

        drawn = draw_weights(layers("cross_entropy"), (FEATURES,), 3)
        assert second.weights()["output.kernel"].tolist() == drawn["output.kernel"].astype(np.float32).tolist()


class TestRun:
    def test_same_calls_give_the_same_bits(self, create: Create) -> None:
        recipe = Recipe(dropout=0.3, l1=1e-4, l2=1e-4)

        first, second = train(create(), recipe), train(create(), recipe)

        assert first.train.tolist() == second.train.tolist()
        for name, value in first.weights.items():
            assert value.tobytes() == second.weights[name].tobytes()

    @pytest.mark.parametrize("optimizer", [Adam(name="adam"), Sgd(name="sgd", momentum=0.9)])
    def test_where_a_job_is_cut_into_chunks_changes_no_bit(self, create: Create, optimizer: Adam | Sgd) -> None:
        recipe = Recipe(dropout=0.3, epochs=4, optimizer=optimizer)

        whole, cut = train(create(), recipe), train(create(), dataclasses.replace(recipe, chunk=3))

        assert whole.train.tolist() == cut.train.tolist()
        assert whole.weights["dense_1.kernel"].tobytes() == cut.weights["dense_1.kernel"].tobytes()

    def test_learns(self, create: Create) -> None:
        result = train(create(), Recipe(epochs=30))

        # ln 3 is the loss of a guess among three classes.
        assert 0.8 < result.train[0] < 2 * np.log(3)
        assert result.train[-1] < 0.5

    def test_sums_are_added_to_what_came_in(self, create: Create) -> None:
        one, two = open_session(create(), Recipe()), open_session(create(), Recipe())

        fresh = one.run(steps(2), no_sums("classification"))
        onward = two.run(steps(2), np.array([100.0, 7.0]))

        assert_allclose(onward - fresh, [100.0, 7.0], rtol=1e-12)

    def test_sums_do_not_change_what_came_in(self, create: Create) -> None:
        given = no_sums("classification")

        open_session(create(), Recipe()).run(steps(2), given)

        assert given.tolist() == [0.0, 0.0]

    def test_a_batch_of_one_row_is_a_batch(self, create: Create) -> None:
        session = open_session(create(), Recipe(dropout=0.5))

        sums = session.run(steps(1, batch=1), no_sums("classification"))

        assert np.isfinite(sums).all()
        assert sums[1] in {0.0, 1.0}

    def test_learning_rate_of_each_step_is_used(self, create: Create) -> None:
        session = open_session(create(), Recipe(optimizer=Sgd(name="sgd")))
        before = session.weights()

        still = dataclasses.replace(steps(3), rates=np.zeros(3))
        session.run(still, no_sums("classification"))

        assert session.weights()["dense_1.kernel"].tobytes() == before["dense_1.kernel"].tobytes()

    def test_seed_chooses_the_masks(self, create: Create) -> None:
        sessions = [open_session(create(), Recipe(dropout=0.5), mask_seed) for mask_seed in (3, 3, 4)]

        first, again, other = (session.run(steps(1), no_sums("classification"))[0] for session in sessions)

        assert first == again != other

    def test_step_chooses_the_masks(self, create: Create) -> None:
        recipe = Recipe(dropout=0.5)
        early, late = (dataclasses.replace(steps(1), first=first) for first in (0, 1))

        losses = [open_session(create(), recipe).run(chunk, no_sums("classification"))[0] for chunk in (early, late)]

        assert losses[0] != losses[1]

    def test_penalty_shrinks_kernels_and_not_biases(self, create: Create) -> None:
        # The slope of l2 * sum(w^2) is 2 * l2 * w, and one step of SGD moves by rate times slope.
        recipe = Recipe(loss="mse", optimizer=Sgd(name="sgd"), dtype="float64")
        plain, shrunk = (open_session(create(), dataclasses.replace(recipe, l2=l2)) for l2 in (0.0, 0.5))
        start = plain.weights()

        plain.run(steps(1), no_sums("regression"))
        shrunk.run(steps(1), no_sums("regression"))

        difference = shrunk.weights()["dense_1.kernel"] - plain.weights()["dense_1.kernel"]
        assert_allclose(difference, -0.01 * 2 * 0.5 * start["dense_1.kernel"], rtol=1e-9, atol=1e-14)
        assert shrunk.weights()["dense_1.bias"].tobytes() == plain.weights()["dense_1.bias"].tobytes()

    def test_l1_moves_every_weight_of_a_kernel_by_the_same(self, create: Create) -> None:
        recipe = Recipe(loss="mse", optimizer=Sgd(name="sgd"), dtype="float64")
        plain, shrunk = (open_session(create(), dataclasses.replace(recipe, l1=l1)) for l1 in (0.0, 0.5))
        start = plain.weights()["output.kernel"]

        plain.run(steps(1), no_sums("regression"))
        shrunk.run(steps(1), no_sums("regression"))

        difference = shrunk.weights()["output.kernel"] - plain.weights()["output.kernel"]
        assert_allclose(difference, -0.01 * 0.5 * np.sign(start), rtol=1e-9)

    def test_reported_loss_leaves_the_penalty_out(self, create: Create) -> None:
        plain, shrunk = (open_session(create(), Recipe(l1=l1, l2=l1, dtype="float64")) for l1 in (0.0, 10.0))

        sums = [session.run(steps(1), no_sums("classification")) for session in (plain, shrunk)]

        assert_allclose(sums[0], sums[1], rtol=1e-12)


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
class TestOverflow:
    def test_adam_that_an_infinite_square_has_stopped_does_not_pass_for_trained(self, framework: str) -> None:
        # The losses stay finite, some 1e34; the gradients' squares do not, and Adam divides by their root.
        table = arrays("mse")
        huge = Arrays(x=table.x * np.float32(1e10), y=table.y.astype(np.float32) * np.float32(1e17))
        model = layers("mse", activation="relu")
        program = Program(
            layers=tuple(model), input_shape=(FEATURES,), loss="mse", optimizer=Adam(name="adam"), batch_size=16
        )
        backend = load_backend(framework)
        backend.prepare([CPU], 1)
        session = backend.open(program, draw_weights(model, (FEATURES,), 3), {"train": huge})

        sums = session.run(steps(3), no_sums("regression"))

        assert not np.isfinite(sums[0])


class TestCauseOf:
    def test_an_error_of_the_programs_own_is_not_the_frameworks(self, create: Create) -> None:
        backend = create()

        assert backend.cause_of(ValueError("x")) is None
        assert backend.cause_of(RuntimeError("shapes cannot be multiplied")) is None


class TestLoadBackend:
    def test_unknown_name_is_refused(self) -> None:
        with pytest.raises(KeyError):
            load_backend("jax")

    @pytest.mark.parametrize("name", ["torch", "tensorflow"])
    def test_each_framework_has_the_same_modules(self, name: str) -> None:
        for module in ("backend", "session", "layers", "losses", "optimizers", "dropout"):
            assert importlib.import_module(f"workers.backends.{name}.{module}").__doc__
