"""Learning rates, against closed forms and against torch's own schedules."""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo  # the first optimizer imports it, and it sets an environment variable, which no test may do
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from app.spec.training import Constant, Cosine, Exponential, ReduceOnPlateau, Schedule, Step
from workers.backends.schedules import Plateau, learning_rates

PLATEAU = ReduceOnPlateau(name="reduce_on_plateau")
EVERY: list[Schedule] = [
    Constant(name="constant"),
    Cosine(name="cosine", final_learning_rate=0.01),
    Step(name="step", every_epochs=2, factor=0.3),
    Exponential(name="exponential", factor=0.8),
    PLATEAU,
]


def optimizer(rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=rate)


def theirs(make: Callable[[torch.optim.Optimizer], Any], rate: float, count: int) -> list[float]:
    """The rates that a schedule of torch gives to `count` steps in a row."""
    moved = optimizer(rate)
    schedule = make(moved)
    rates = []
    for _ in range(count):
        rates.append(float(schedule.get_last_lr()[0]))
        moved.step()
        schedule.step()
    return rates


class TestConstant:
    def test_stays(self) -> None:
        assert learning_rates(Constant(name="constant"), 0.1, 100, 7, 3).tolist() == [0.1, 0.1, 0.1]


class TestCosine:
    def test_closed_form(self) -> None:
        rates = learning_rates(Cosine(name="cosine", final_learning_rate=0.02), 0.5, 40, 0, 40)

        expected = [0.02 + 0.48 * (1 + math.cos(math.pi * step / 40)) / 2 for step in range(40)]
        assert_allclose(rates, expected, rtol=1e-12)

    def test_starts_at_the_start_is_halfway_in_the_middle_and_ends_before_the_final_rate(self) -> None:
        rates = learning_rates(Cosine(name="cosine"), 1.0, 1000, 0, 1000)

        assert rates[0] == 1.0
        assert rates[500] == pytest.approx(0.5, abs=1e-12)
        assert 0 < rates[-1] < 1e-5
        assert (np.diff(rates) < 0).all()

    def test_equals_torchs_schedule(self) -> None:
        ours = learning_rates(Cosine(name="cosine", final_learning_rate=0.01), 0.3, 25, 0, 25)

        cosine = torch.optim.lr_scheduler.CosineAnnealingLR
        assert_allclose(ours, theirs(lambda moved: cosine(moved, T_max=25, eta_min=0.01), 0.3, 25), rtol=1e-12)

    def test_a_job_of_one_step_uses_the_start(self) -> None:
        assert learning_rates(Cosine(name="cosine"), 0.3, 1, 0, 1).tolist() == [0.3]


class TestStep:
    def test_closed_form(self) -> None:
        rates = learning_rates(Step(name="step", every_epochs=3, factor=0.1), 0.5, 70, 0, 70, steps_per_epoch=7)

        expected = [0.5 * 0.1 ** (epoch // 3) for epoch in range(10) for _ in range(7)]
        assert_allclose(rates, expected, rtol=1e-12)

    def test_equals_torchs_schedule(self) -> None:
        ours = learning_rates(Step(name="step", every_epochs=4, factor=0.5), 0.3, 20, 0, 20)

        assert_allclose(ours, theirs(lambda moved: torch.optim.lr_scheduler.StepLR(moved, 4, 0.5), 0.3, 20), rtol=1e-12)


class TestExponential:
    def test_closed_form(self) -> None:
        rates = learning_rates(Exponential(name="exponential", factor=0.9), 0.5, 70, 0, 70, steps_per_epoch=7)

        assert_allclose(rates, [0.5 * 0.9 ** (step / 7) for step in range(70)], rtol=1e-12)
        assert rates[7] == pytest.approx(0.45, rel=1e-12)

    def test_equals_torchs_schedule_at_the_epochs(self) -> None:
        ours = learning_rates(Exponential(name="exponential", factor=0.9), 0.3, 100, 0, 100, steps_per_epoch=5)[::5]

        exponential = torch.optim.lr_scheduler.ExponentialLR
        assert_allclose(ours, theirs(lambda moved: exponential(moved, 0.9), 0.3, 20), rtol=1e-12)


class TestWarmup:
    @pytest.mark.parametrize("schedule", EVERY, ids=lambda schedule: schedule.name)
    def test_it_rises_in_a_straight_line_and_then_the_schedule_begins(self, schedule: Schedule) -> None:
        late = schedule.model_copy(update={"warmup_steps": 8})
        rates = learning_rates(late, 0.4, 30, 0, 30, steps_per_epoch=5)

        assert_allclose(rates[:8], [0.4 * (step + 1) / 8 for step in range(8)], rtol=1e-12)
        assert rates[8:].tolist() == learning_rates(schedule, 0.4, 22, 0, 22, steps_per_epoch=5).tolist()

    def test_equals_torchs_linear_warmup(self) -> None:
        # Their factor goes from start_factor to 1 in total_iters steps: ours at step 0 is 1 / warmup_steps.
        warmup = torch.optim.lr_scheduler.LinearLR
        expected = theirs(lambda moved: warmup(moved, start_factor=1 / 8, total_iters=7), 0.4, 12)

        rates = learning_rates(Constant(name="constant", warmup_steps=8), 0.4, 12, 0, 12)
        assert_allclose(rates, expected, rtol=1e-12)


class TestEverySchedule:
    @pytest.mark.parametrize("schedule", EVERY, ids=lambda schedule: schedule.name)
    def test_the_rate_depends_on_the_step_and_not_on_the_chunk(self, schedule: Schedule) -> None:
        schedule = schedule.model_copy(update={"warmup_steps": 13})
        whole = learning_rates(schedule, 0.3, 50, 0, 50, steps_per_epoch=4)

        cut = [learning_rates(schedule, 0.3, 50, first, 10, steps_per_epoch=4) for first in range(0, 50, 10)]

        assert np.concatenate(cut).tolist() == whole.tolist()
        assert whole.dtype == np.float64

    @pytest.mark.parametrize("schedule", EVERY, ids=lambda schedule: schedule.name)
    def test_no_steps_are_no_rates(self, schedule: Schedule) -> None:
        assert learning_rates(schedule, 0.3, 50, 50, 0).shape == (0,)


class TestReducedRate:
    def test_the_scale_is_a_factor_and_never_goes_below_the_least_rate(self) -> None:
        schedule = ReduceOnPlateau(name="reduce_on_plateau", min_learning_rate=0.05)
        for scale, rate in ((1.0, 0.4), (0.5, 0.2), (0.25, 0.1), (0.125, 0.05), (1e-9, 0.05)):
            assert learning_rates(schedule, 0.4, 10, 3, 2, scale=scale).tolist() == [rate, rate]

    def test_a_least_rate_above_the_start_changes_nothing(self) -> None:
        schedule = ReduceOnPlateau(name="reduce_on_plateau", min_learning_rate=0.5)
        assert learning_rates(schedule, 0.4, 10, 0, 1, scale=0.1).tolist() == [0.4]


@st.composite
def plateaus(draw: st.DrawFn) -> ReduceOnPlateau:
    return ReduceOnPlateau(
        name="reduce_on_plateau",
        monitor=draw(st.sampled_from(["val_loss", "val_accuracy"])),
        factor=draw(st.sampled_from([0.1, 0.5, 0.9])),
        patience=draw(st.integers(0, 4)),
        min_delta=draw(st.sampled_from([0.0, 0.1])),
        cooldown=draw(st.integers(0, 3)),
        min_learning_rate=draw(st.sampled_from([0.0, 0.02])),
    )


VALUES = st.lists(st.sampled_from([0.1, 0.15, 0.2, 0.3, 0.5, 1.0]), min_size=1, max_size=40)


class TestPlateau:
    @given(plateaus(), VALUES)
    def test_equals_torchs_scheduler(self, schedule: ReduceOnPlateau, values: list[float]) -> None:
        moved = optimizer(0.4)
        reference = torch.optim.lr_scheduler.ReduceLROnPlateau(
            moved,
            mode="max" if schedule.monitor == "val_accuracy" else "min",
            factor=schedule.factor,
            patience=schedule.patience,
            threshold=schedule.min_delta,
            threshold_mode="abs",
            cooldown=schedule.cooldown,
            min_lr=schedule.min_learning_rate,
            eps=0.0,
        )
        plateau = Plateau(schedule)
        for value in values:
            reference.step(value)
            plateau.observe(value)
            rate = learning_rates(schedule, 0.4, 100, 0, 1, scale=plateau.scale)[0]
            assert rate == pytest.approx(moved.param_groups[0]["lr"], rel=1e-12)

    @given(plateaus(), VALUES, st.integers(0, 40))
    def test_it_goes_on_from_its_state_as_if_never_stopped(
        self, schedule: ReduceOnPlateau, values: list[float], cut: int
    ) -> None:
        whole, first, second = (Plateau(schedule) for _ in range(3))
        for value in values:
            whole.observe(value)
        for value in values[:cut]:
            first.observe(value)
        second.restore(json.loads(json.dumps(first.state())))
        for value in values[cut:]:
            second.observe(value)

        assert second.state() == whole.state()
        assert second.scale == whole.scale

    def test_a_value_that_is_no_number_is_not_better(self) -> None:
        plateau = Plateau(ReduceOnPlateau(name="reduce_on_plateau", patience=0))
        for value, scale in ((1.0, 1.0), (math.nan, 0.5), (0.5, 0.5), (math.inf, 0.25)):
            plateau.observe(value)
            assert plateau.scale == scale

    def test_the_first_value_is_better_than_nothing(self) -> None:
        for monitor in ("val_loss", "val_r2"):
            plateau = Plateau(PLATEAU.model_copy(update={"monitor": monitor, "patience": 0}))
            plateau.observe(-100.0)
            assert plateau.scale == 1.0
