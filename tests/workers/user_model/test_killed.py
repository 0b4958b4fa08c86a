"""Trainers of a user's model that are killed go on to the end of the unbroken run, to the bit; real processes."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from safetensors.numpy import load_file

from app.errors import Cause
from tests.workers.test_killed_trainers import outcome, require_same
from tests.workers.trainer_runs import Run, next_attempt, run_trainer
from tests.workers.user_model.user_jobs import python_job, with_code
from workers.protocol import Assignment, Device, Failed

DATA = {"source": "breast_cancer", "split": {"validation": 0.2, "test": 0.1}}
SETTINGS = {"epochs": 8, "batch_size": 32, "learning_rate": 0.01, "checkpoint_every_epochs": 1}

PLAIN = """
from torch import nn


def build(input_shape, output_units):
    return nn.Sequential(nn.Linear(*input_shape, 12), nn.Tanh(), nn.Linear(12, output_units))
"""

UNEQUAL = """
import os
import torch
from torch import nn


class Net(nn.Module):
    \"\"\"Every rank draws other weights; and says in a buffer how many of its rows it has seen.\"\"\"

    def __init__(self, inputs, units):
        super().__init__()
        torch.manual_seed(os.getpid())
        self.lin = nn.Linear(inputs, units)
        self.register_buffer("rows", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.rows += len(x)
        return self.lin(x)


def build(input_shape, output_units):
    return Net(*input_shape, output_units)
"""


def job(work_dir: Path, framework: str, devices: int, text: str | None = None, **settings: Any) -> Assignment:
    entrypoint = "nets:mlp" if text is None else "nets:build"
    found = python_job(
        work_dir, framework, entrypoint, text=text, data=DATA, packed=True, hyperparameters=SETTINGS | settings
    )
    slots = [Device(id=f"cpu-{place}@host", kind="cpu", name="CPU") for place in range(devices)]
    return found.model_copy(update={"devices": slots, "threads": devices})


def gone_on(run: Run, work_dir: Path) -> Run:
    """Run the next attempt, with the code that a worker fetches for it."""
    assignment = next_attempt(run, work_dir)
    shutil.copy(Path(run.assignment.work_dir) / "bundle.zip", work_dir)
    return run_trainer(with_code(assignment, work_dir))


def weights(run: Run) -> dict[str, Any]:
    return dict(load_file(Path(run.assignment.work_dir) / "model" / "model.safetensors"))


class TestKilled:
    @pytest.mark.parametrize(
        ("framework", "devices"),
        [pytest.param("torch", 1, marks=pytest.mark.full), ("torch", 2), ("tensorflow", 1)],
    )
    def test_goes_on_to_the_same_end(self, tmp_path: Path, framework: str, devices: int) -> None:
        whole = run_trainer(job(tmp_path / "whole", framework, devices))
        assert whole.status == 0, whole.output

        killed = run_trainer(job(tmp_path / "killed", framework, devices), fault="checkpoint.announced:3")
        onward = gone_on(killed, tmp_path / "onward")

        assert killed.status == -9
        assert onward.resumed_from > 0
        require_same(whole, killed, onward)


class TestRanks:
    def test_two_train_as_one_to_rounding(self, tmp_path: Path) -> None:
        one, two = (run_trainer(job(tmp_path / str(devices), "torch", devices, PLAIN)) for devices in (1, 2))

        assert (one.status, two.status) == (0, 0), (one.output, two.output)
        # Sums of float32 in another order, over 104 steps.
        for name, value in weights(one).items():
            assert_allclose(weights(two)[name], value, rtol=1e-3, atol=1e-4, err_msg=name)
        assert outcome(two)["metrics"].keys() == outcome(one)["metrics"].keys()

    def test_begin_alike_and_share_their_buffers(self, tmp_path: Path) -> None:
        # 398 rows for training in batches of 33: twelve, and two rows; each rank has half of each batch, on average.
        run = run_trainer(job(tmp_path / "run", "torch", 2, UNEQUAL, epochs=2, batch_size=33))

        assert run.status == 0, run.output
        found = weights(run)
        assert float(found["rows"]) == pytest.approx(2 * (12 * 16.5 + 2))

    def test_an_error_of_the_users_code_is_told_once(self, tmp_path: Path) -> None:
        text = PLAIN.replace("nn.Linear(12, output_units)", "nn.Linear(13, output_units)")

        run = run_trainer(job(tmp_path / "run", "torch", 2, text))

        last = run.messages[-1]
        assert isinstance(last, Failed)
        assert last.cause == Cause.USER_CODE
        assert "mat1 and mat2 shapes cannot be multiplied" in last.message
        assert np.sum([isinstance(message, Failed) for message in run.messages]) == 1
