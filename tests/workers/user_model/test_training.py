"""Jobs whose model is a user's own, from the bundle to the stored model, with both frameworks."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from app.errors import Cause
from tests.workers.test_resume import outcome, run, series
from tests.workers.training_jobs import CPU, Listener, going_on
from tests.workers.user_model.user_jobs import NETS, TORCH_NETS, python_job, with_the_code_of, write_folder
from workers.backends.base import TrainingFailed, load_backend
from workers.checkpoints import read
from workers.failure import failure_of
from workers.loop import train
from workers.model_file import is_python, read_probe, read_python
from workers.protocol import Assignment, Done, Failed
from workers.user_model.errors import UserCodeFailed
from workers.user_model.saved import load_saved

FRAMEWORKS = ["torch", "tensorflow"]
SPLIT = {"validation": 0.1, "test": 0.2}
DIGITS = {"source": "digits", "split": SPLIT}
QUICK = {"epochs": 3, "batch_size": 16, "learning_rate": 0.01}


def trained(assignment: Assignment, listener: Listener | None = None, lines: list[str] | None = None) -> Done:
    backend = load_backend(assignment.spec.framework)
    backend.prepare(assignment.devices, assignment.threads)
    return train(assignment, backend, listener or Listener(), say=(lines if lines is not None else []).append)


def failed(assignment: Assignment) -> Failed:
    backend = load_backend(assignment.spec.framework)
    backend.prepare(assignment.devices, assignment.threads)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the next line says which one
        train(assignment, backend, Listener(), say=lambda _: None)
    return failure_of(caught.value, backend)


def content(listener: Listener, name: str) -> Any:
    return json.loads(listener.artifacts[name][0].read_text())


@pytest.mark.parametrize("framework", FRAMEWORKS)
class TestDigits:
    def test_a_users_cnn_learns_them_and_answers_again_when_it_is_read_back(
        self, tmp_path: Path, framework: str
    ) -> None:
        settings = {"epochs": 10, "batch_size": 32, "learning_rate": 0.002}
        job = python_job(tmp_path / "job", framework, "nets:cnn", data=DIGITS, hyperparameters=settings)
        listener, lines = Listener(), list[str]()

        done = trained(job, listener, lines)

        assert done.metrics["test_accuracy"] >= 0.95  # the same net by hand in either framework: 0.96 to 0.98
        folder = listener.artifacts["model.json"][0].parent
        description, model = load_saved(folder, tmp_path / "fresh")
        probe = read_probe(folder)
        assert probe is not None
        assert np.abs(model.outputs(probe.x) - probe.outputs).max() < 1e-4
        assert (description.classes, description.input_shape, description.layers) == (list(range(10)), (64,), None)
        counts = sum(fact.size for fact in model.facts().values() if fact.trained)
        assert f"Model: python, nets:cnn, {counts:,} parameters" in "\n".join(lines)


@pytest.mark.parametrize("framework", FRAMEWORKS)
class TestFiles:
    def test_are_those_of_every_model_with_the_code_beside_them(self, tmp_path: Path, framework: str) -> None:
        job = python_job(tmp_path, framework, parameters={"hidden": 5}, hyperparameters=QUICK)
        listener = Listener()

        trained(job, listener)

        assert {name: kind for name, (_, _, kind) in listener.artifacts.items()} == {
            "model.safetensors": "model",
            "code.zip": "model",
            "model.json": "model",
            "probe.safetensors": "model",
            "split.safetensors": "report",
            "evaluation.json": "report",
            "environment.json": "environment",
        }
        path, media, _ = listener.artifacts["code.zip"]
        assert (path.read_bytes(), media) == ((tmp_path / "bundle.zip").read_bytes(), "application/zip")
        found = content(listener, "model.json")
        assert (found["format"], found["layers"]) == ("trainshed-model/3", None)
        source = found["python"]
        assert (source["entrypoint"], source["parameters"], source["framework"]) == (
            "nets:mlp",
            {"hidden": 5},
            framework,
        )
        assert source["code"] == {"file": "code.zip", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        assert {"python", framework} <= source["versions"].keys()

    def test_the_record_names_the_code_and_every_package(self, tmp_path: Path, framework: str) -> None:
        job, listener = python_job(tmp_path, framework, hyperparameters=QUICK), Listener()
        trained(job, listener)

        record = content(listener, "environment.json")

        bundle = getattr(job.spec.model, "bundle", None)
        digest = hashlib.sha256((tmp_path / "bundle.zip").read_bytes()).hexdigest()
        assert record["code"] == {"bundle": bundle, "sha256": digest, "entrypoint": "nets:mlp"}
        assert record["packages"]["numpy"] == np.__version__

    def test_weights_are_under_the_frameworks_own_names(self, tmp_path: Path, framework: str) -> None:
        listener = Listener()
        trained(python_job(tmp_path, framework, hyperparameters=QUICK), listener)

        names = set(load_file(listener.artifacts["model.safetensors"][0]))

        expected = {"0.weight", "1.running_mean", "1.num_batches_tracked", "4.bias"}
        if framework == "tensorflow":
            expected = {"dense/kernel", "batch_normalization/moving_mean", "dense_1/bias"}
        assert expected <= names

    def test_regression_is_trained_in_standard_units_and_answered_in_the_targets(
        self, tmp_path: Path, framework: str
    ) -> None:
        data = {"source": "diabetes", "split": SPLIT}
        settings = {"epochs": 20, "batch_size": 32, "learning_rate": 0.01}
        listener = Listener()

        done = trained(python_job(tmp_path, framework, data=data, hyperparameters=settings), listener)

        description, _ = read_python(listener.artifacts["model.json"][0].parent)
        assert description.target_scaling is not None
        assert (description.outputs, description.classes) == (1, None)
        # Linear regression has about 0.5; the mean alone would have 0 and an rmse of 77.
        assert done.metrics["val_r2"] > 0.2
        assert done.metrics["val_rmse"] > 20


@pytest.mark.parametrize("framework", FRAMEWORKS)
class TestResume:
    def test_goes_on_from_any_checkpoint_to_the_same_end(self, tmp_path: Path, framework: str) -> None:
        # Dropout and batch norm: both would differ if anything of the randomness or the buffers were lost.
        job = python_job(tmp_path / "whole", framework, hyperparameters=QUICK | {"early_stopping": {"patience": 5}})
        unbroken = Listener()
        expected = outcome(run(job, load_backend(framework), unbroken), unbroken)
        told = series(unbroken)

        for place in range(2, unbroken.safe_points, 11):
            first = Listener(stop_at=place)
            begun = python_job(
                tmp_path / f"{place}a", framework, hyperparameters=QUICK | {"early_stopping": {"patience": 5}}
            )
            run(begun, load_backend(framework), first)
            onward = with_the_code_of(begun, going_on(begun, first, tmp_path / f"{place}b"))
            second = Listener()

            found = outcome(run(onward, load_backend(framework), second), second)

            assert found == expected, place
            both = series(first, second)
            assert {key: values[-1] for key, values in both.items()} == {
                key: values[-1] for key, values in told.items()
            }

    def test_another_models_checkpoint_is_refused(self, tmp_path: Path, framework: str) -> None:
        first = Listener(stop_at=4)
        begun = python_job(tmp_path / "a", framework, hyperparameters=QUICK)
        run(begun, load_backend(framework), first)
        onward = with_the_code_of(begun, going_on(begun, first, tmp_path / "b"))
        # The same spec, but the worker's module builds something else now.
        write_folder(tmp_path / "b" / "code", {"nets.py": NETS[framework].replace("hidden=8", "hidden=9")})

        found = failed(onward)

        assert found.cause == Cause.ARTIFACT_UNREADABLE
        assert "its weights are those of another model" in found.message


@pytest.mark.parametrize("framework", FRAMEWORKS)
class TestInitializeFrom:
    def started(self, folder: Path, framework: str, source: Path, **parameters: Any) -> Assignment:
        job = python_job(folder, framework, parameters=parameters, hyperparameters=QUICK | {"learning_rate": 1e-30})
        shutil.copytree(source, folder / "initialize")
        return job.model_copy(update={"initialize": "initialize"})

    def test_takes_another_jobs_weights_by_name(self, tmp_path: Path, framework: str) -> None:
        first = Listener()
        trained(python_job(tmp_path / "a", framework, hyperparameters=QUICK), first)
        source = tmp_path / "a" / first.checkpoints[-1].path
        listener = Listener()

        trained(self.started(tmp_path / "b", framework, source), listener)

        wanted, found = read(source).weights, load_file(listener.artifacts["model.safetensors"][0])
        moving = {name for name in wanted if "running" in name or "moving" in name or "batches" in name}
        assert wanted.keys() == found.keys()
        assert all(np.allclose(found[name], wanted[name], atol=1e-20) for name in wanted.keys() - moving)

    def test_a_model_of_another_size_is_refused_by_name(self, tmp_path: Path, framework: str) -> None:
        first = Listener()
        trained(python_job(tmp_path / "a", framework, hyperparameters=QUICK), first)
        source = tmp_path / "a" / first.checkpoints[-1].path

        found = failed(self.started(tmp_path / "b", framework, source, hidden=9))

        assert found.cause == Cause.INVALID_DATA
        assert "does not fit at '0.weight'" in found.message or "does not fit at 'dense/kernel'" in found.message


class TestFailures:
    @pytest.mark.parametrize(
        ("text", "entrypoint", "sentence"),
        [
            ("def build(:\n", "nets:build", "'nets' cannot be imported: SyntaxError"),
            ("import no_such_package\n", "nets:build", "needs 'no_such_package', which is not installed"),
            (TORCH_NETS, "nets:mlq", "Did you mean 'mlp'?"),
            (TORCH_NETS, "net:mlp", "The bundle has no module 'net'. Did you mean 'nets'?"),
            ("def build():\n    return 'a model'\n", "nets:build", "returned builtins.str"),
            (
                "from torch import nn\ndef build():\n    return nn.Linear(4, 7)\n",
                "nets:build",
                "gives the shape [2, 7]",
            ),
        ],
    )
    def test_in_the_users_code_are_its_own_with_a_sentence(
        self, tmp_path: Path, text: str, entrypoint: str, sentence: str
    ) -> None:
        found = failed(python_job(tmp_path, "torch", entrypoint, text=text, hyperparameters=QUICK))

        assert found.cause == Cause.USER_CODE
        assert sentence in found.message

    def test_an_error_in_the_middle_of_training_has_its_place_and_its_traceback(self, tmp_path: Path) -> None:
        text = """
from torch import nn


class Net(nn.Linear):
    steps = 0

    def forward(self, x):
        Net.steps += self.training
        if Net.steps > 5:
            raise KeyError("late")
        return super().forward(x)


def build():
    return Net(4, 3)
"""
        found = failed(python_job(tmp_path, "torch", "nets:build", text=text, hyperparameters=QUICK))

        assert found.cause == Cause.USER_CODE
        assert "KeyError: 'late' (nets.py, line 11, in forward)" in found.message
        assert 'raise KeyError("late")' in found.detail

    @pytest.mark.parametrize("framework", FRAMEWORKS)
    def test_a_loss_that_is_no_number_has_diverged(self, tmp_path: Path, framework: str) -> None:
        settings = {"epochs": 5, "batch_size": 16, "learning_rate": 1e30, "optimizer": "sgd"}

        found = failed(python_job(tmp_path, framework, hyperparameters=settings))

        assert found.cause == Cause.DIVERGED

    def test_the_memory_of_the_host_is_told_as_ever(self, tmp_path: Path) -> None:
        found = failed(python_job(tmp_path, "torch", "nets:build", text="def build():\n    raise MemoryError\n"))

        assert found.cause == Cause.HOST_OUT_OF_MEMORY

    def test_a_model_that_keeps_what_it_learnt_where_nobody_saves_it_is_not_handed_over(self, tmp_path: Path) -> None:
        text = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.shift = nn.Linear(4, 3), torch.zeros(3)

    def forward(self, x):
        y = self.lin(x)
        if self.training:
            self.shift = self.shift + 1.0 * torch.tensor([1.0, 0.0, 0.0])
        return y + self.shift


def build():
    return Net()
"""
        listener = Listener()

        with pytest.raises(UserCodeFailed, match="does not answer as the trained one did"):
            trained(python_job(tmp_path, "torch", "nets:build", text=text, hyperparameters=QUICK), listener)

        assert listener.artifacts == {}

    def test_of_tensorflow_on_several_devices_has_a_way_out(self, tmp_path: Path) -> None:
        job = python_job(tmp_path, "tensorflow", hyperparameters=QUICK)
        slots = [CPU.model_copy(update={"id": f"cpu-{place}@host"}) for place in range(2)]

        with pytest.raises(TrainingFailed, match="device_count 1"):
            trained(job.model_copy(update={"devices": slots}))


class TestEnvironment:
    def test_a_module_without_a_bundle_is_that_of_the_interpreter(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "installed").mkdir()
        (tmp_path / "installed" / "installed_nets.py").write_text(TORCH_NETS)
        monkeypatch.syspath_prepend(str(tmp_path / "installed"))
        job = python_job(tmp_path / "job", "torch", "installed_nets:mlp", hyperparameters=QUICK)
        listener = Listener()

        trained(job.model_copy(update={"bundle": None, "code": None}), listener)

        folder = listener.artifacts["model.json"][0].parent
        assert is_python(folder)
        assert "code.zip" not in listener.artifacts
        assert load_saved(folder, tmp_path / "nothing")[0].python.code is None
        assert not (tmp_path / "nothing").exists()
