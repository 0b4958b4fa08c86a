"""The order of an epoch and its batches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.data.order import epoch_plan, largest_batch, steps_per_epoch


class TestEpochPlan:
    def test_order_is_numpys_permutation_of_seed_and_epoch(self) -> None:
        plan = epoch_plan(seed=5, epoch=3, rows=10, batch_size=4)

        # The definition itself, written out: default_rng([seed, epoch]).permutation(rows).
        order = np.random.default_rng([5, 3]).permutation(10)
        assert plan.full.tolist() == [order[:4].tolist(), order[4:8].tolist()]
        assert plan.rest.tolist() == order[8:].tolist()

    @given(st.integers(1, 200), st.integers(1, 70), st.sampled_from([False, True]))
    def test_every_row_is_visited_once_in_the_promised_steps(self, rows: int, batch_size: int, fold: object) -> None:
        fold_single = bool(fold)
        plan = epoch_plan(0, 1, rows, batch_size, fold_single=fold_single)

        assert sorted([*plan.full.ravel().tolist(), *plan.rest.tolist()]) == list(range(rows))
        assert plan.steps == steps_per_epoch(rows, batch_size, fold_single=fold_single)
        sizes = [batch_size] * len(plan.full) + [len(plan.rest)] * bool(len(plan.rest))
        assert max(sizes) == largest_batch(rows, batch_size, fold_single=fold_single)

    def test_epochs_and_seeds_differ(self) -> None:
        orders = {tuple(epoch_plan(seed, epoch, 50, 50).full[0].tolist()) for seed in range(3) for epoch in range(1, 4)}

        assert len(orders) == 9

    def test_batch_larger_than_the_table_is_one_uneven_batch(self) -> None:
        plan = epoch_plan(0, 1, 5, 64)

        assert (plan.full.shape, len(plan.rest), plan.steps) == ((0, 64), 5, 1)


class TestFoldSingle:
    """Batch normalisation knows no variance of one row (the reported case: 17 rows in batches of 16, 4 and 64)."""

    @pytest.mark.parametrize(
        ("batch_size", "full", "rest"),
        [(16, 0, 17), (4, 3, 5), (64, 0, 17), (17, 1, 0), (5, 3, 2), (1, 17, 0)],
    )
    def test_a_last_batch_of_one_row_joins_the_one_before(self, batch_size: int, full: int, rest: int) -> None:
        plan = epoch_plan(0, 1, 17, batch_size, fold_single=True)

        assert (len(plan.full), len(plan.rest)) == (full, rest)

    @given(st.integers(2, 200), st.integers(2, 70))
    def test_no_batch_has_one_row(self, rows: int, batch_size: int) -> None:
        assert len(epoch_plan(0, 1, rows, batch_size, fold_single=True).rest) != 1

    @given(st.integers(1, 200), st.integers(1, 70))
    def test_the_rows_keep_their_order(self, rows: int, batch_size: int) -> None:
        folded, plain = (epoch_plan(3, 2, rows, batch_size, fold_single=fold) for fold in (True, False))

        assert [*folded.full.ravel(), *folded.rest] == [*plain.full.ravel(), *plain.rest]


class TestStepsPerEpoch:
    @pytest.mark.parametrize(("rows", "batch_size", "steps"), [(10, 4, 3), (12, 4, 3), (1, 64, 1), (64, 64, 1)])
    def test_rounds_up(self, rows: int, batch_size: int, steps: int) -> None:
        assert steps_per_epoch(rows, batch_size) == steps

    @pytest.mark.parametrize(("rows", "batch_size", "steps"), [(17, 16, 1), (17, 4, 4), (17, 64, 1), (33, 16, 2)])
    def test_a_folded_batch_is_no_step_of_its_own(self, rows: int, batch_size: int, steps: int) -> None:
        assert steps_per_epoch(rows, batch_size, fold_single=True) == steps
