"""What a training leaves: a model that can be read back, with the evaluation and the record of where it was made.

Case C52: a model that cannot be loaded again, or answers otherwise, fails the job and is not handed over.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import app
from app.errors import Cause
from tests.workers.backends.fake import NumpyBackend
from tests.workers.training_jobs import Listener, builtin_job, csv_job
from workers import handover
from workers.backends.base import TrainingFailed, load_backend
from workers.exports.reference import Reference
from workers.handover import TOLERANCES, check
from workers.loop import train
from workers.model_file import TrainedModel, forward, read, save
from workers.protocol import Assignment

SPLIT = {"validation": 0.2, "test": 0.2}
Damage = Callable[[Path], object]


def job(work_dir: Path, data: str = "iris", framework: str = "torch", **rest: object) -> Assignment:
    return builtin_job(
        work_dir, {"source": data, "split": SPLIT}, framework, hyperparameters={"epochs": 2, "batch_size": 16}, **rest
    )


def trained(assignment: Assignment, framework: str = "numpy") -> Listener:
    backend = NumpyBackend() if framework == "numpy" else load_backend(framework)
    backend.prepare(assignment.devices, assignment.threads)
    listener = Listener()
    train(assignment, backend, listener, say=lambda _: None)
    return listener


def content(listener: Listener, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(listener.artifacts[name][0].read_text())
    return found


class TestProbe:
    @pytest.mark.parametrize("framework", ["numpy", "torch", "tensorflow"])
    def test_holds_rows_and_what_the_framework_said_to_them(self, tmp_path: Path, framework: str) -> None:
        listener = trained(job(tmp_path, framework="torch" if framework == "numpy" else framework), framework)

        probe = load_file(listener.artifacts["probe.safetensors"][0])

        assert (probe["x"].shape, probe["outputs"].shape) == ((8, 4), (8, 3))
        assert probe["x"].dtype == np.float32
        check(listener.artifacts["model.json"][0].parent)

    def test_of_a_small_test_part_has_as_many_rows_as_there_are(self, tmp_path: Path) -> None:
        table = tmp_path / "table.csv"
        table.write_text("a,y\n" + "".join(f"{n},{n % 7}.5\n" for n in range(20)))
        data = {"target": "y", "split": {"validation": 0.0, "test": 0.1}}

        listener = trained(csv_job(tmp_path, table, data, hyperparameters={"epochs": 1}))

        assert load_file(listener.artifacts["probe.safetensors"][0])["x"].shape == (2, 1)


def _other(folder: Path, more: np.float32) -> None:
    probe = load_file(folder / "probe.safetensors")
    save_file({"x": probe["x"], "outputs": probe["outputs"] + more}, folder / "probe.safetensors")


def _other_answers(folder: Path) -> None:
    _other(folder, np.float32(0.01))


def _no_numbers(folder: Path) -> None:
    probe = load_file(folder / "probe.safetensors")
    save_file({"x": probe["x"] * np.float32(np.nan), "outputs": probe["outputs"]}, folder / "probe.safetensors")


DAMAGES: dict[str, Damage] = {
    "weights are missing": lambda folder: (folder / "model.safetensors").unlink(),
    "weights are others": lambda folder: (folder / "model.safetensors").write_bytes(b"x"),
    "description is cut": lambda folder: (folder / "model.json").write_text("{"),
    "probe is missing": lambda folder: (folder / "probe.safetensors").unlink(),
    "answers are others": _other_answers,
    "answers are no numbers": _no_numbers,
}


class TestCheck:
    @pytest.mark.parametrize("damage", list(DAMAGES.values()), ids=list(DAMAGES))
    def test_finds_a_model_that_is_not_the_trained_one(self, tmp_path: Path, damage: Damage) -> None:
        folder = trained(job(tmp_path)).artifacts["model.json"][0].parent
        damage(folder)

        with pytest.raises(TrainingFailed) as caught:
            check(folder)

        assert caught.value.cause == Cause.ARTIFACT_UNREADABLE

    def test_half_precision_has_more_room(self, tmp_path: Path) -> None:
        folder = trained(job(tmp_path)).artifacts["model.json"][0].parent
        _other_answers(folder)

        check(folder, "float16")
        assert TOLERANCES["float32"] < TOLERANCES["float16"] < TOLERANCES["bfloat16"]

    def test_rounding_that_the_inputs_bring_along_is_no_fault(self, tmp_path: Path) -> None:
        # Rows of millions, orthogonal to the kernel: hardly a digit of the small outputs is left in float32, and which
        # depends on the order of the sums.
        folder = trained(job(tmp_path, "diabetes", model="linear")).artifacts["model.json"][0].parent
        weights = load_file(folder / "model.safetensors")
        kernel = weights["output.kernel"][:, 0].astype(np.float64)
        rows = np.random.default_rng(0).normal(size=(8, len(kernel))) * 1e8
        x = (rows - (rows @ kernel)[:, None] / (kernel @ kernel) * kernel).astype(np.float32)
        outputs = np.zeros((8, 1), np.float32)
        for place in reversed(range(len(kernel))):
            outputs[:, 0] += x[:, place] * weights["output.kernel"][place, 0]
        save_file({"x": x, "outputs": outputs}, folder / "probe.safetensors")
        found = forward(read(folder)[0].layers, weights, x)
        assert np.abs(found - outputs).max() > 10 * TOLERANCES["float32"] * max(1.0, np.abs(outputs).max())

        check(folder)

    @pytest.mark.parametrize("framework", ["torch", "tensorflow"])
    def test_half_precision_of_large_numbers_that_nearly_cancel_is_no_fault(
        self, tmp_path: Path, framework: str
    ) -> None:
        # bfloat16 has 8 bits: of the years 1992, 2000, 2008 and 2016 are left, of prices around 100 000 every 512th
        random = np.random.default_rng(0)
        years, months = random.integers(1990, 2021, 400), random.integers(1, 13, 400)
        rows = [f"{y},{m},{50 * (y + m / 12):.4f},{(y - 2005) / 10}\n" for y, m in zip(years, months, strict=True)]
        table = tmp_path / "table.csv"
        table.write_text("year,month,price,y\n" + "".join(rows))
        assignment = csv_job(
            tmp_path,
            table,
            {"target": "y", "preprocess": {"numeric": "none"}},
            framework,
            task="regression",
            model={"type": "mlp", "hidden": [32, 32]},
            hyperparameters={"epochs": 20, "batch_size": 32, "learning_rate": 0.01, "precision": "bfloat16"},
        )

        folder = trained(assignment, framework).artifacts["model.json"][0].parent

        probe = load_file(folder / "probe.safetensors")
        found = forward(read(folder)[0].layers, load_file(folder / "model.safetensors"), probe["x"])
        room = TOLERANCES["bfloat16"] * max(1.0, np.abs(probe["outputs"]).max())
        assert np.abs(found - probe["outputs"]).max() > room
        reference = Reference.of(folder)
        reference.check("an export of it", reference.exact)  # nor is it one of what is exported
        _other(folder, np.float32(1000 * room))
        with pytest.raises(TrainingFailed):
            check(folder, "bfloat16")

    def test_numbers_of_an_embedding_are_not_rounded(self, tmp_path: Path) -> None:
        # 257 has nine bits: rounded to bfloat16 it would be the row of another word, or none at all.
        table = tmp_path / "table.csv"
        table.write_text("word,y\n" + "".join(f"{n % 258},{n % 2}\n" for n in range(600)))
        layers = [{"type": "embedding", "input_dim": 258, "output_dim": 4}, {"type": "flatten"}]
        assignment = csv_job(
            tmp_path,
            table,
            {"target": "y", "preprocess": {"numeric": "none"}, "split": SPLIT},
            task="classification",
            model={"type": "sequential", "layers": layers},
            hyperparameters={"epochs": 1, "precision": "bfloat16"},
        )

        folder = trained(assignment, "torch").artifacts["model.json"][0].parent
        probe = load_file(folder / "probe.safetensors")
        save_file({name: value[:1] for name, value in probe.items()}, folder / "probe.safetensors")

        check(folder, "bfloat16")

    def test_a_model_that_was_saved_wrong_is_handed_over_by_nobody(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def saves_another(folder: Path, model: TrainedModel) -> list[Path]:
            model.weights["output.bias"] += 1.0
            return save(folder, model)

        monkeypatch.setattr(handover, "save", saves_another)
        assignment, listener = job(tmp_path), Listener()
        with pytest.raises(TrainingFailed, match="does not answer as the trained one did"):
            train(assignment, NumpyBackend(), listener, say=lambda _: None)

        assert listener.artifacts == {}


class TestEvaluation:
    def test_measures_validation_and_test(self, tmp_path: Path) -> None:
        listener = trained(job(tmp_path))

        found = content(listener, "evaluation.json")

        assert found["epoch"] == 2
        for part in ("validation", "test"):
            assert found[part]["rows"] == 30
            assert sum(map(sum, found[part]["confusion_matrix"])) == 30
        assert found["validation"]["metrics"]["loss"] == pytest.approx(listener.series("val_loss")[-1], rel=1e-12)
        assert found["test"]["metrics"]["accuracy"] == listener.series("test_accuracy")[-1]

    def test_of_a_regression_is_in_the_targets_own_unit(self, tmp_path: Path) -> None:
        listener = trained(job(tmp_path, "diabetes"))

        found = content(listener, "evaluation.json")

        assert found["test"]["metrics"]["rmse"] == pytest.approx(listener.series("test_rmse")[-1], rel=1e-9)

    def test_an_empty_part_has_no_rows(self, tmp_path: Path) -> None:
        assignment = builtin_job(
            tmp_path, {"source": "iris", "split": {"validation": 0.0, "test": 0.2}}, hyperparameters={"epochs": 1}
        )

        assert content(trained(assignment), "evaluation.json")["validation"] == {"rows": 0}


class TestEnvironment:
    def test_names_versions_devices_threads_data_and_seed(self, tmp_path: Path) -> None:
        assignment = job(tmp_path).model_copy(update={"driver": "580.1"})

        found = content(trained(assignment), "environment.json")

        assert found["trainshed"] == app.__version__
        assert found["numpy"] == np.__version__
        assert (found["driver"], found["threads"], found["seed"]) == ("580.1", 1, 0)
        assert found["devices"] == [device.model_dump() for device in assignment.devices]
        assert found["dataset"]["rows"] == {"train": 90, "validation": 30, "test": 30}

    @pytest.mark.parametrize("framework", ["torch", "tensorflow"])
    def test_names_the_framework(self, tmp_path: Path, framework: str) -> None:
        found = content(trained(job(tmp_path, framework=framework), framework), "environment.json")

        assert found[framework].count(".") >= 2

    def test_digest_of_a_file_is_that_of_its_bytes(self, tmp_path: Path) -> None:
        table = tmp_path / "table.csv"
        table.write_text("a,y\n" + "".join(f"{n},{n % 2}\n" for n in range(40)))

        found = content(
            trained(csv_job(tmp_path, table, {"target": "y"}, hyperparameters={"epochs": 1})), "environment.json"
        )

        # From `sha256sum table.csv`.
        assert found["dataset"]["sha256"] == "336c5f9496e0b6977cefd74de5530d6d4ef3a898ce311b091b29c0f8eebaffb1"

    def test_digest_of_a_builtin_set_is_the_same_each_time(self, tmp_path: Path) -> None:
        digests = [
            content(trained(job(tmp_path / str(turn), data)), "environment.json")["dataset"]["sha256"]
            for turn, data in enumerate(["iris", "iris", "wine"])
        ]

        assert digests[0] == digests[1] != digests[2]
