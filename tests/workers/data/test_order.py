"""The order of an epoch and its batches."""

import numpy as np
import pytest

from workers.data.order import epoch_plan, steps_per_epoch


class TestEpochPlan:
    def test_order_is_numpys_permutation_of_seed_and_epoch(self) -> None:
        plan = epoch_plan(seed=5, epoch=3, rows=10, batch_size=4)

        # The definition itself, written out: default_rng([seed, epoch]).permutation(rows).
        order = np.random.default_rng([5, 3]).permutation(10)
        assert plan.full.tolist() == [order[:4].tolist(), order[4:8].tolist()]
        assert plan.rest.tolist() == order[8:].tolist()

    @pytest.mark.parametrize(("rows", "batch_size"), [(10, 4), (12, 4), (3, 64), (1, 1), (17, 16)])
    def test_every_row_is_visited_once(self, rows: int, batch_size: int) -> None:
        plan = epoch_plan(0, 1, rows, batch_size)

        assert sorted([*plan.full.ravel().tolist(), *plan.rest.tolist()]) == list(range(rows))
        assert plan.steps == steps_per_epoch(rows, batch_size)

    def test_epochs_and_seeds_differ(self) -> None:
        orders = {tuple(epoch_plan(seed, epoch, 50, 50).full[0].tolist()) for seed in range(3) for epoch in range(1, 4)}

        assert len(orders) == 9

    def test_batch_larger_than_the_table_is_one_uneven_batch(self) -> None:
        plan = epoch_plan(0, 1, 5, 64)

        assert (plan.full.shape, len(plan.rest), plan.steps) == ((0, 64), 5, 1)


class TestStepsPerEpoch:
    @pytest.mark.parametrize(("rows", "batch_size", "steps"), [(10, 4, 3), (12, 4, 3), (1, 64, 1), (64, 64, 1)])
    def test_rounds_up(self, rows: int, batch_size: int, steps: int) -> None:
        assert steps_per_epoch(rows, batch_size) == steps
