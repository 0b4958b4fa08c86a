"""Learning rates, against closed forms and against torch's own schedule."""

import math

import numpy as np
import pytest
import torch
import torch._dynamo  # the first optimizer imports it, and it sets an environment variable, which no test may do
from numpy.testing import assert_allclose

from app.spec.training import Constant, Cosine
from workers.backends.schedules import learning_rates


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

    def test_depends_on_the_step_and_not_on_the_chunk(self) -> None:
        schedule = Cosine(name="cosine", final_learning_rate=0.01)
        whole = learning_rates(schedule, 0.3, 50, 0, 50)

        cut = np.concatenate([learning_rates(schedule, 0.3, 50, first, 10) for first in range(0, 50, 10)])

        assert cut.tolist() == whole.tolist()

    def test_equals_torchs_schedule(self) -> None:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=25, eta_min=0.01)
        theirs = []
        for _ in range(25):
            theirs.append(float(schedule.get_last_lr()[0]))
            optimizer.step()
            schedule.step()

        ours = learning_rates(Cosine(name="cosine", final_learning_rate=0.01), 0.3, 25, 0, 25)

        assert_allclose(ours, theirs, rtol=1e-12)

    def test_a_job_of_one_step_uses_the_start(self) -> None:
        assert learning_rates(Cosine(name="cosine"), 0.3, 1, 0, 1).tolist() == [0.3]
