"""docs/exports.md: every line of Python in it runs on a job's files, and agrees with the model's own answer."""

import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workers.exports.processes import ROOT
from tests.workers.model_file.saved import penguins, trained
from tests.workers.training_jobs import csv_job
from workers.exports import run
from workers.model_file import predict_rows

ROW = {"island": "Dream", "bill_length_mm": 49.6, "sex": None}
SERIES = {"val_loss": {"step": [10, 20, 30], "epoch": [1, 2, 3], "value": [0.5, 0.25, 0.75]}}


def blocks() -> list[str]:
    text = (ROOT / "docs" / "exports.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job's files, as the page describes them, and a table of rows."""
    root = tmp_path_factory.mktemp("docs")
    data = {"target": "species", "missing": "impute"}
    settings = {"epochs": 20, "learning_rate": 0.01}
    model, _ = trained(csv_job(root, penguins(), data, "tensorflow", hyperparameters=settings))
    run("onnx", model, model)
    run("report", model, model, series=SERIES)
    shutil.copy(penguins(), model / "rows.csv")
    return model


@pytest.mark.slow
class TestDocs:
    def test_page_has_the_blocks_that_are_tested(self) -> None:
        assert [any(f"import {name}" in block for block in blocks()) for name in ("keras", "onnxruntime", "csv")] == [
            True,
            True,
            True,
        ]

    def test_every_block_but_keras_runs_and_agrees(self, folder: Path) -> None:
        code = "\n".join(block for block in blocks() if "import keras" not in block)
        done = subprocess.run(
            [sys.executable, "-W", "ignore::ResourceWarning", "-c", code],
            cwd=folder,
            env={"PYTHONPATH": str(ROOT), "PATH": ""},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

        assert done.returncode == 0, done.stderr
        expected = predict_rows(folder, [ROW])
        assert expected.labels is not None
        assert expected.probabilities is not None
        lines = done.stdout.splitlines()
        assert lines[0].startswith(f"{expected.labels} [[")
        onnx = next(line for line in lines if line.startswith(f"{expected.labels[0]} "))
        assert float(onnx.split()[1]) == pytest.approx(expected.probabilities.max(), abs=1e-6)
        assert lines[-1] == "2 0.25"  # the lowest val_loss of SERIES

    def test_block_of_keras_runs_and_agrees(self, folder: Path) -> None:
        assert [file.name for file in run("keras", folder, folder)] == ["model.keras"]
        start = next(block for block in blocks() if "def encode" in block)
        code = "\n".join([start, next(block for block in blocks() if "import keras" in block)])
        (folder / "example.py").write_text(code, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "example.py"],
            cwd=folder,
            env={"PYTHONPATH": str(ROOT), "PATH": "", "KERAS_BACKEND": "tensorflow", "HOME": str(folder)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

        assert done.returncode == 0, done.stderr
        expected = predict_rows(folder, [ROW]).labels
        assert expected is not None
        assert done.stdout.splitlines()[-1] == expected[0]

    def test_description_and_metrics_have_what_the_page_says(self, folder: Path) -> None:
        described = json.loads((folder / "model.json").read_text())
        with (folder / "metrics.csv").open(newline="") as file:
            header = next(csv.reader(file))

        assert header == ["step", "epoch", "val_loss"]
        assert {"encoder", "input_shape", "layers", "classes", "target_scaling", "spec", "weights"} <= described.keys()
