"""What every backend must do beside training: answer, give its state away, take it back. See test_conformance."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose

from app.spec.training import Adagrad, Adam, AdamW, Optimizer, RmsProp, Sgd
from tests.workers.backends.conformance import Create, same, steps
from tests.workers.backends.sessions import CPU, Recipe, arrays, open_session
from workers.backends.base import Steps
from workers.data.metrics import no_sums


class TestOutputs:
    def test_blocks_are_the_pieces_of_the_whole(self, create: Create) -> None:
        session = open_session(create(), Recipe(dtype="float64"))

        whole = session.outputs("validation", 0, 30)
        pieces = [session.outputs("validation", start, min(start + 7, 30)) for start in range(0, 30, 7)]

        assert whole.shape == (30, 3)
        assert_allclose(np.concatenate(pieces), whole, rtol=1e-12)

    def test_are_logits_of_the_weights(self, create: Create) -> None:
        # Two tanh layers and a linear one, by hand.
        session = open_session(create(), Recipe(dtype="float64"))
        weights = session.weights()
        x = arrays("cross_entropy", 30, 1, "float64").x
        for name in ("dense_1", "dense_2"):
            x = np.tanh(x @ weights[f"{name}.kernel"] + weights[f"{name}.bias"])

        expected = x @ weights["output.kernel"] + weights["output.bias"]

        assert_allclose(session.outputs("validation", 0, 30), expected, rtol=1e-12, atol=1e-14)

    def test_neither_drop_nor_learn(self, create: Create) -> None:
        session = open_session(create(), Recipe(dropout=0.5))
        before, state = session.weights(), session.state()

        first = session.outputs("validation", 0, 30)
        again = session.outputs("validation", 0, 30)

        assert first.tobytes() == again.tobytes()
        assert session.weights()["output.kernel"].tobytes() == before["output.kernel"].tobytes()
        assert same(session.state(), state)

    def test_are_a_copy_that_later_steps_leave_alone(self, create: Create) -> None:
        session = open_session(create(), Recipe())
        outputs = session.outputs("validation", 0, 30)
        kept = outputs.copy()

        session.run(steps(3), no_sums("classification"))
        session.outputs("validation", 0, 30)

        assert outputs.tobytes() == kept.tobytes()


OPTIMIZERS: dict[str, Optimizer] = {
    "adam": Adam(name="adam"),
    "adamw": AdamW(name="adamw"),
    "momentum": Sgd(name="sgd", momentum=0.9),
    "sgd": Sgd(name="sgd"),
    "rmsprop": RmsProp(name="rmsprop", momentum=0.5),
    "adagrad": Adagrad(name="adagrad", initial_accumulator=0.1),
}


class TestStateAndRestore:
    @pytest.mark.parametrize("optimizer", list(OPTIMIZERS.values()), ids=list(OPTIMIZERS))
    def test_a_fresh_session_goes_on_to_the_same_bits(self, create: Create, optimizer: Optimizer) -> None:
        recipe = Recipe(dropout=0.3, optimizer=optimizer, l2=1e-3)
        straight, fresh = open_session(create(), recipe), open_session(create(), dataclasses.replace(recipe, seed=9))
        straight.run(steps(7), no_sums("classification"))

        fresh.restore(straight.weights(), straight.state())
        # The masks follow the program's seed, not the weights: take the recipe's own for the other half.
        other = open_session(create(), recipe)
        other.restore(fresh.weights(), fresh.state())
        expected = straight.run(steps(5, 7), no_sums("classification"))
        found = other.run(steps(5, 7), no_sums("classification"))

        assert found.tolist() == expected.tolist()
        assert same(other.weights(), straight.weights())
        assert same(other.state(), straight.state())

    def test_state_comes_back_bit_by_bit(self, create: Create) -> None:
        session = open_session(create(), Recipe())
        session.run(steps(3), no_sums("classification"))
        weights, state = session.weights(), session.state()
        session.run(steps(4, 3), no_sums("classification"))

        session.restore(weights, state)

        assert same(session.weights(), weights)
        assert same(session.state(), state)

    def test_slots_are_named_by_their_weights_and_have_their_shapes(self, create: Create) -> None:
        session = open_session(create(), Recipe())
        session.run(steps(3), no_sums("classification"))

        weights, state = session.weights(), session.state()

        assert state
        for name, value in state.items():
            weight = name.rpartition(".")[0]
            assert value.shape == weights[weight].shape, name
            assert np.isfinite(value.astype(np.float64)).all()

    def test_state_is_a_copy(self, create: Create) -> None:
        session = open_session(create(), Recipe())
        session.run(steps(3), no_sums("classification"))
        state = session.state()
        kept = {name: value.copy() for name, value in state.items()}

        session.run(steps(2, 3), no_sums("classification"))

        assert same(state, kept)
        assert not same(session.state(), kept)

    def test_weights_alone_leave_the_optimizer_as_it_is(self, create: Create) -> None:
        session = open_session(create(), Recipe())
        start = session.weights()
        session.run(steps(3), no_sums("classification"))
        state = session.state()

        session.restore(start, None)

        assert same(session.weights(), start)
        assert same(session.state(), state)

    def test_what_was_given_is_not_kept_hold_of(self, create: Create) -> None:
        session = open_session(create(), Recipe())
        session.run(steps(2), no_sums("classification"))
        weights, state = session.weights(), session.state()
        kept = {name: value.copy() for name, value in weights.items()}

        session.restore(weights, state)
        session.run(steps(2, 2), no_sums("classification"))

        assert same(weights, kept)


class TestMovingStatistics:
    """Batch norm's statistics are weights that no optimizer moves."""

    def test_follow_the_batches_and_are_restored(self, create: Create) -> None:
        recipe = Recipe(batch_norm=True, dtype="float64", optimizer=Sgd(name="sgd"))
        session = open_session(create(), recipe)
        start = session.weights()
        assert start["batch_norm_1.moving_variance"].tolist() == [1.0] * 12

        session.run(steps(1), no_sums("classification"))
        after = session.weights()

        # 0.9 of the old and 0.1 of the first batch's own, over its 16 rows.
        rows = steps(1).rows[0]
        values = arrays("cross_entropy", dtype="float64").x[rows] @ start["dense_1.kernel"]
        assert_allclose(after["batch_norm_1.moving_mean"], 0.1 * values.mean(axis=0), rtol=1e-9, atol=1e-12)
        assert_allclose(after["batch_norm_1.moving_variance"], 0.9 + 0.1 * values.var(axis=0), rtol=1e-9)
        session.restore(start, None)
        assert same(session.weights(), start)

    def test_outputs_use_them_and_leave_them(self, create: Create) -> None:
        session = open_session(create(), Recipe(batch_norm=True))
        session.run(steps(3), no_sums("classification"))
        before = session.weights()

        whole = session.outputs("validation", 0, 30)
        one = session.outputs("validation", 4, 5)

        # With a batch's own statistics a single row would be all beta.
        assert_allclose(one[0], whole[4], rtol=1e-4, atol=1e-5)
        assert same(session.weights(), before)

    def test_have_no_slots(self, create: Create) -> None:
        session = open_session(create(), Recipe(batch_norm=True))
        session.run(steps(1), no_sums("classification"))

        assert not [name for name in session.state() if ".moving_" in name]


class TestClipping:
    def test_norm_of_all_gradients_together_bounds_the_step(self, create: Create) -> None:
        # One step of SGD moves by rate times gradient, so the whole move has the norm rate times clip_norm.
        recipe = Recipe(dtype="float64", optimizer=Sgd(name="sgd"), clip_norm=1e-3)
        session = open_session(create(), recipe)
        before = session.weights()

        session.run(steps(1), no_sums("classification"))

        moved = np.sqrt(sum(float(((value - before[name]) ** 2).sum()) for name, value in session.weights().items()))
        assert moved == pytest.approx(0.01 * 1e-3, rel=1e-3)

    def test_value_bounds_each_number(self, create: Create) -> None:
        recipe = Recipe(dtype="float64", optimizer=Sgd(name="sgd"), clip_value=1e-4)
        session = open_session(create(), recipe)
        before = session.weights()

        session.run(steps(1), no_sums("classification"))

        moves = np.concatenate([np.abs(value - before[name]).ravel() for name, value in session.weights().items()])
        assert moves.max() == pytest.approx(0.01 * 1e-4, rel=1e-6)


class TestClassWeights:
    def test_count_in_the_loss_and_not_in_the_hits(self, create: Create) -> None:
        plain = open_session(create(), Recipe(dtype="float64"))
        doubled = open_session(create(), Recipe(dtype="float64", class_weights=(2.0, 2.0, 2.0)))

        loss, hits = plain.run(steps(1), no_sums("classification"))
        twice, same_hits = doubled.run(steps(1), no_sums("classification"))

        assert twice == pytest.approx(2 * loss, rel=1e-12)
        assert hits == same_hits

    def test_a_class_that_counts_nothing_teaches_nothing(self, create: Create) -> None:
        weights = (0.0, 1.0, 0.0)
        session = open_session(create(), Recipe(dtype="float64", optimizer=Sgd(name="sgd"), class_weights=weights))
        table = arrays("cross_entropy", dtype="float64")
        others = np.flatnonzero(table.y != 1)[:16]
        before = session.weights()

        session.run(Steps(rows=others[None], rates=np.array([0.1]), first=0), no_sums("classification"))

        assert same(session.weights(), before)


class TestClose:
    def test_is_harmless_twice(self, create: Create) -> None:
        session = open_session(create(), Recipe())

        session.close()
        session.close()


class TestVersions:
    def test_name_what_computes(self, create: Create) -> None:
        backend = create()
        backend.prepare([CPU], 1)

        versions = backend.versions()

        assert versions
        assert all(versions.values())
