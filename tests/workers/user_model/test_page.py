"""The models in docs/python-models.md are trained as they stand there."""

import re
from pathlib import Path

import pytest

from tests.workers.training_jobs import Listener
from tests.workers.user_model.user_jobs import python_job
from workers.backends.base import load_backend
from workers.loop import train
from workers.user_model.entrypoint import PROTECTED

PAGE = (Path(__file__).parents[3] / "docs" / "python-models.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


class TestExamples:
    @pytest.mark.parametrize("framework", ["torch", "tensorflow"])
    def test_learn_the_digits(self, tmp_path: Path, framework: str) -> None:
        (text,) = (
            block for block in BLOCKS if ("import torch" in block or "from torch" in block) == (framework == "torch")
        )
        settings = {"epochs": 4, "batch_size": 32, "learning_rate": 0.003}
        job = python_job(
            tmp_path,
            framework,
            "nets:build",
            text=text,
            data="digits",
            parameters={"width": 8},
            hyperparameters=settings,
        )
        backend, listener = load_backend(framework), Listener()
        backend.prepare(job.devices, job.threads)

        train(job, backend, listener, say=lambda _: None)

        # Ten classes: guessing is right in a tenth of the rows.
        assert listener.series("val_accuracy")[-1] > 0.8
        assert "code.zip" in listener.artifacts


class TestNames:
    def test_that_a_bundle_cannot_have_are_all_there(self) -> None:
        sentence = PAGE[PAGE.index("a bundle cannot have") : PAGE.index("at its top")]

        assert set(re.findall(r"`(\w+)`", sentence)) == PROTECTED
