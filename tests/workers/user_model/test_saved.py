"""A stored model of a user's code, built again from its files alone; and the check of one that was just saved."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from app.archives import ArchiveTooLarge, Limits
from app.errors import Cause
from tests.workers.training_jobs import Listener
from tests.workers.user_model.user_jobs import NETS, python_job
from workers.backends.base import TrainingFailed, load_backend
from workers.loop import train
from workers.model_file import UnreadableModel, read_probe, read_python
from workers.user_model.checking import check_python
from workers.user_model.errors import UserCodeFailed
from workers.user_model.module import UserModule
from workers.user_model.saved import load_saved, module_of

FRAMEWORKS = ["torch", "tensorflow"]


def stored(folder: Path, framework: str, text: str | None = None) -> Path:
    """Train two epochs on iris, and return the folder of the model."""
    job = python_job(folder, framework, text=text, hyperparameters={"epochs": 2, "batch_size": 32})
    backend, listener = load_backend(framework), Listener()
    backend.prepare(job.devices, job.threads)
    train(job, backend, listener, say=lambda _: None)
    return listener.artifacts["model.json"][0].parent


@pytest.mark.parametrize("framework", FRAMEWORKS)
class TestLoadSaved:
    def test_answers_as_the_trained_one_did(self, tmp_path: Path, framework: str) -> None:
        folder = stored(tmp_path / "job", framework)

        description, model = load_saved(folder, tmp_path / "code")

        probe = read_probe(folder)
        assert probe is not None
        assert np.abs(model.outputs(probe.x) - probe.outputs).max() < 1e-5
        assert description.python.framework == framework
        assert (tmp_path / "code" / "nets.py").read_text() == NETS[framework]

    def test_answers_rows_one_by_one_as_together(self, tmp_path: Path, framework: str) -> None:
        _, model = load_saved(stored(tmp_path / "job", framework), tmp_path / "code")
        rows = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)

        alone = np.concatenate([model.outputs(rows[place : place + 1]) for place in range(5)])

        assert np.abs(alone - model.outputs(rows)).max() < 1e-5


class TestRefused:
    def test_code_over_the_limits_is_not_unpacked(self, tmp_path: Path) -> None:
        folder = stored(tmp_path / "job", "torch")

        with pytest.raises(ArchiveTooLarge):
            load_saved(folder, tmp_path / "code", Limits(total_bytes=10, file_bytes=10))

        assert not (tmp_path / "code").exists()

    def test_code_that_is_not_the_models_is_not_run(self, tmp_path: Path) -> None:
        folder = stored(tmp_path / "job", "torch")
        (folder / "code.zip").write_bytes((folder / "code.zip").read_bytes() + b" ")

        with pytest.raises(UnreadableModel):
            load_saved(folder, tmp_path / "code")

        assert not (tmp_path / "code").exists()


class TestCheck:
    def module(self, folder: Path) -> UserModule:
        return module_of(read_python(folder)[0], folder.parent / "code")

    def changed(self, folder: Path, name: str, more: float) -> None:
        values = load_file(folder / "probe.safetensors")
        save_file(values | {name: values[name] + np.float32(more)}, folder / "probe.safetensors")

    def test_is_content_with_what_was_trained(self, tmp_path: Path) -> None:
        folder = stored(tmp_path / "job", "torch")

        check_python(folder, self.module(folder), "float32")

    @pytest.mark.parametrize(("more", "precision"), [(0.01, "float32"), (np.nan, "float32"), (0.5, "bfloat16")])
    def test_other_answers_are_the_users(self, tmp_path: Path, more: float, precision: str) -> None:
        folder = stored(tmp_path / "job", "torch")
        self.changed(folder, "outputs", more)

        with pytest.raises(UserCodeFailed, match="does not answer as the trained one did") as caught:
            check_python(folder, self.module(folder), "float32" if precision == "float32" else "bfloat16")

        assert caught.value.cause == Cause.USER_CODE

    def test_half_precision_has_more_room(self, tmp_path: Path) -> None:
        folder = stored(tmp_path / "job", "torch")
        self.changed(folder, "outputs", 0.01)

        check_python(folder, self.module(folder), "bfloat16")

    def test_files_that_are_gone_are_not(self, tmp_path: Path) -> None:
        folder = stored(tmp_path / "job", "torch")
        module = self.module(folder)
        (folder / "model.safetensors").unlink()

        with pytest.raises(TrainingFailed, match="cannot be read back") as caught:
            check_python(folder, module, "float32")

        assert caught.value.cause == Cause.ARTIFACT_UNREADABLE

    def test_a_function_that_builds_another_model_every_time_is_told_so(self, tmp_path: Path) -> None:
        text = """
from torch import nn

calls = []


def mlp(output_units):
    calls.append(1)
    return nn.Sequential(nn.Linear(4, 3 + len(calls)), nn.Linear(3 + len(calls), output_units))
"""
        with pytest.raises(UserCodeFailed, match="must build the same model every time"):
            stored(tmp_path / "job", "torch", text)
