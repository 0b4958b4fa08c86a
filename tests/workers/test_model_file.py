"""A saved model: the frameworks' own predictions, from NumPy alone."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from safetensors.numpy import load_file

from app.tables import features_and_target, read_table
from tests.workers.backends.fake import NumpyBackend
from tests.workers.training_jobs import Listener, builtin_job, csv_job, effective
from workers.backends.base import load_backend
from workers.context import NullContext
from workers.loop import train
from workers.model_file import UnreadableModel, predict
from workers.protocol import Assignment

ROOT = Path(__file__).parents[2]


def trained(assignment: Assignment, framework: str | None = None) -> tuple[Path, dict[str, float]]:
    """Train, by default with the backend in NumPy; returns the model's folder and the final metrics."""
    backend = NumpyBackend() if framework is None else load_backend(framework)
    backend.prepare(assignment.devices, 1)
    listener = Listener()
    done = train(assignment, backend, listener)
    return listener.artifacts["model.json"][0].parent, done.metrics


class TestPredict:
    @pytest.mark.parametrize("framework", ["torch", "tensorflow"])
    @pytest.mark.parametrize("activation", ["relu", "gelu"])
    def test_classes_and_loss_are_those_that_training_reported(
        self, tmp_path: Path, framework: str, activation: str
    ) -> None:
        assignment = builtin_job(
            tmp_path,
            {"source": "digits", "split": {"validation": 0.2, "test": 0.2}},
            framework,
            model={"type": "mlp", "hidden": [32], "activation": activation, "dropout": 0.2},
            hyperparameters={"epochs": 3},
        )
        folder, metrics = trained(assignment, framework)
        columns = features_and_target(read_table(None, "digits"), assignment.spec)
        test = np.isin(columns.row_numbers, load_file(folder / "split.safetensors")["test"])

        answer = predict(folder, columns.x[test])

        assert answer.labels is not None
        assert answer.probabilities is not None
        truth = columns.y[test].astype(int)
        assert np.mean(np.array(answer.labels) == truth) == pytest.approx(metrics["test_accuracy"], abs=1e-12)
        # The digits' classes are 0 to 9 in order, so a class is its own place.
        likelihood = answer.probabilities[np.arange(len(truth)), truth]
        assert -np.log(likelihood).mean() == pytest.approx(metrics["test_loss"], rel=1e-5)
        assert_allclose(answer.probabilities.sum(axis=1), 1, rtol=1e-12)

    @pytest.mark.parametrize("framework", ["torch", "tensorflow"])
    def test_values_come_in_the_targets_own_unit(self, tmp_path: Path, framework: str) -> None:
        assignment = builtin_job(tmp_path, {"source": "diabetes", "split": {"test": 0.2}}, framework)
        folder, metrics = trained(assignment, framework)
        columns = features_and_target(read_table(None, "diabetes"), assignment.spec)
        test = np.isin(columns.row_numbers, load_file(folder / "split.safetensors")["test"])

        answer = predict(folder, columns.x[test])

        assert answer.values is not None
        assert np.abs(answer.values - columns.y[test]).mean() == pytest.approx(metrics["test_mae"], rel=1e-5)

    def test_both_frameworks_give_the_same_answers(self, tmp_path: Path) -> None:
        answers = []
        for framework in ("torch", "tensorflow"):
            assignment = builtin_job(tmp_path / framework, "wine", framework, hyperparameters={"epochs": 5})
            rows = features_and_target(read_table(None, "wine"), assignment.spec).x
            answers.append(predict(trained(assignment, framework)[0], rows))

        assert answers[0].labels == answers[1].labels
        assert_allclose(answers[0].probabilities, answers[1].probabilities, atol=1e-5)  # type: ignore[arg-type]

    def test_gives_labels_as_the_table_writes_them(self, tmp_path: Path) -> None:
        path = tmp_path / "trees.csv"
        path.write_text("f,kind\n" + "".join(f"{n},{'pine tree' if n < 30 else 'oak'}\n" for n in range(60)))
        settings = {"epochs": 60, "learning_rate": 0.05}
        folder, _ = trained(csv_job(tmp_path, path, {"target": "kind"}, hyperparameters=settings))

        assert predict(folder, np.array([[2.0], [58.0]])).labels == ["pine tree", "oak"]

    def test_one_row_is_a_table(self, tmp_path: Path) -> None:
        folder, _ = trained(builtin_job(tmp_path, "iris"))

        answer = predict(folder, np.array([[5.1, 3.5, 1.4, 0.2]]))

        assert answer.labels is not None
        assert len(answer.labels) == 1

    @pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 5)])
    def test_rows_of_another_width_are_refused_with_the_columns_names(
        self, tmp_path: Path, shape: tuple[int, ...]
    ) -> None:
        folder, _ = trained(builtin_job(tmp_path, "iris"))

        with pytest.raises(ValueError, match=r"Rows must have 4 columns, sepal length"):
            predict(folder, np.zeros(shape))


class TestFiles:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return trained(builtin_job(tmp_path, "iris"))[0]

    def test_description_holds_what_is_needed_to_use_the_model(self, folder: Path) -> None:
        described = json.loads((folder / "model.json").read_text())

        spec = effective("iris")
        assert described["spec"] == spec.model_dump(mode="json")
        assert (described["framework"], described["task"], described["target"]) == ("torch", "classification", "target")
        assert described["features"] == spec.data.features
        assert described["classes"] == [0, 1, 2]
        assert described["target_scaling"] is None
        assert [layer["name"] for layer in described["layers"]] == ["dense_1", "activation_1", "output"]
        assert len(described["inputs"]["mean"]) == len(described["inputs"]["scale"]) == 4
        assert set(described["metrics"]) >= {"loss", "val_loss"}

    def test_weights_are_float32_under_the_layers_names(self, folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")

        assert {name: value.shape for name, value in weights.items()} == {
            "dense_1.kernel": (4, 8),
            "dense_1.bias": (8,),
            "output.kernel": (8, 3),
            "output.bias": (3,),
        }
        assert {value.dtype for value in weights.values()} == {np.dtype(np.float32)}

    def test_regression_keeps_the_targets_scaling(self, tmp_path: Path) -> None:
        folder, _ = trained(builtin_job(tmp_path, "diabetes"))

        described = json.loads((folder / "model.json").read_text())

        assert described["classes"] is None
        # The training part's mean; all 442 targets have mean 152 and standard deviation 77.
        assert described["target_scaling"]["mean"][0] == pytest.approx(152, abs=10)
        assert described["target_scaling"]["scale"][0] == pytest.approx(77, abs=8)

    def test_weights_of_another_training_are_refused(self, folder: Path) -> None:
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")

        with pytest.raises(UnreadableModel, match=r"is not the file that 'model\.json' belongs to"):
            predict(folder, np.zeros((1, 4)))

    def test_missing_file_is_refused(self, folder: Path) -> None:
        (folder / "model.safetensors").unlink()

        with pytest.raises(UnreadableModel, match="No such file"):
            predict(folder, np.zeros((1, 4)))

    @pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": "other/9"}', "\x00"])
    def test_anything_but_a_description_is_refused(self, folder: Path, text: str) -> None:
        (folder / "model.json").write_text(text)

        with pytest.raises(UnreadableModel) as caught:
            predict(folder, np.zeros((1, 4)))

        assert caught.value.code == "artifact_unreadable"


class TestContradictions:
    """Files that belong together by their digest and still are no model: refused when read, not by a wrong answer."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return trained(builtin_job(tmp_path, "iris"))[0]

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"layers": [{"type": "dense", "name": "output", "units": 3}]}, r"'output\.kernel' of shape \(4, 3\)"),
            ({"layers": []}, r"a weight 'dense_1\.\w+' of shape None, and there is \("),
            ({"features": ["a", "b"]}, r"'dense_1\.kernel' of shape \(2, 8\), and there is \(4, 8\)"),
            ({"classes": [0, 1]}, "last layer must have 2 outputs"),
            ({"classes": None}, "last layer must have 1 outputs"),
            ({"inputs": {"mean": [0.0], "scale": [1.0]}}, "must scale 4 features"),
        ],
    )
    def test_description_that_does_not_fit_the_weights_is_refused(
        self, folder: Path, change: dict[str, object], reason: str
    ) -> None:
        path = folder / "model.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))

        with pytest.raises(UnreadableModel, match=reason):
            predict(folder, np.zeros((1, 4)))

    def test_weights_that_are_no_safetensors_are_refused(self, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"no weights")
        described = json.loads((folder / "model.json").read_text())
        described["weights"]["sha256"] = hashlib.sha256(b"no weights").hexdigest()
        (folder / "model.json").write_text(json.dumps(described))

        with pytest.raises(UnreadableModel, match="is no file of weights"):
            predict(folder, np.zeros((1, 4)))


_TRAIN = """
import sys
from pathlib import Path
from tests.workers.backends.fake import NumpyBackend
from tests.workers.training_jobs import csv_job
from workers.context import NullContext
from workers.loop import train

folder = Path(sys.argv[1])
train(csv_job(folder, folder / "table.csv", {"target": "y"}), NumpyBackend(), NullContext())
"""


class TestScripts:
    def test_names_in_any_script_survive_whatever_the_locale(self, tmp_path: Path) -> None:
        text = "f1,f2,y\n" + "".join(f"{n},{n % 7},{'blå' if n % 2 else '赤'}\n" for n in range(60))
        (tmp_path / "table.csv").write_text(text, encoding="utf-8")
        plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}  # text files are ASCII by default
        command = [sys.executable, "-c", _TRAIN, str(tmp_path)]
        subprocess.run(command, check=True, timeout=60, cwd=ROOT, env={**os.environ, **plain})

        answer = predict(tmp_path / "model", np.zeros((1, 2)))

        assert answer.labels is not None
        assert answer.labels[0] in {"blå", "赤"}


class TestStandardisation:
    def test_saved_scaling_is_that_of_the_training_rows(self, tmp_path: Path) -> None:
        path = tmp_path / "table.csv"
        values = [1e6 if n in {7, 29, 44} else n * 0.5 for n in range(60)]
        path.write_text("f1,f2,y\n" + "".join(f"{value},{n % 7},{n % 2}\n" for n, value in enumerate(values)))
        assignment = csv_job(tmp_path, path, {"target": "y"})
        listener = Listener()
        train(assignment, NumpyBackend(), listener)

        folder = listener.artifacts["model.json"][0].parent
        rows = load_file(folder / "split.safetensors")["train"] - 2
        described = json.loads((folder / "model.json").read_text())

        assert described["inputs"]["mean"][0] == pytest.approx(np.array(values)[rows].mean(), rel=1e-12)
        assert described["inputs"]["scale"][0] == pytest.approx(np.array(values)[rows].std(), rel=1e-12)

    def test_null_context_is_enough_to_train(self, tmp_path: Path) -> None:
        assert train(builtin_job(tmp_path, "iris"), NumpyBackend(), NullContext()).stopped is None
        assert (tmp_path / "model" / "model.json").is_file()
