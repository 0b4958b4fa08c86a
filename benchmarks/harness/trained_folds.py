"""Trains one fold after the other with one framework, as a job would, and prints the predicted labels.

Started as `python -m benchmarks.harness.trained_folds torch FOLDER`: FOLDER/folds.json lists the folds, each a CSV file
whose column `part` says `train` or `test`. One JSON line per fold comes out. A process has one framework.
"""

import csv
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from app.spec import parse_job, resolve
from app.tables import profile
from benchmarks.harness.sklearn_mlp import BATCH, RATE
from workers.backends.base import load_backend
from workers.context import NullContext
from workers.loop import train
from workers.model_file import predict_rows
from workers.protocol import Assignment, DataSource, Device


def main(framework: str, folder: Path) -> None:
    for fold in json.loads((folder / "folds.json").read_text()):
        labels = _labels(framework, folder / fold["file"], fold)
        print(json.dumps({**fold, "labels": labels}), flush=True)


def _labels(framework: str, file: Path, fold: dict[str, Any]) -> list[str]:
    spec = {
        "framework": framework,
        "model": {"type": "mlp", "hidden": fold["hidden"]},
        "data": {
            "source": "ds_01k0000000000000000000000a",
            "target": fold["target"],
            "split": {"method": "given", "column": "part"},
            "missing": "impute",
        },
        "task": "classification",
        "hyperparameters": {
            "epochs": fold["epochs"],
            "batch_size": BATCH,
            "learning_rate": RATE,
            "seed": fold["seed"],
        },
        "device_count": 1,
    }
    effective = resolve(parse_job(spec), profile(file, "csv"), "cpu")
    backend = load_backend(framework)
    device = Device(id="cpu-0", kind="cpu", name="CPU")
    backend.prepare([device], 1)
    with tempfile.TemporaryDirectory() as work_dir:
        source = DataSource(path=str(file), format="csv")
        assignment = Assignment(
            job_id="job_1",
            attempt=1,
            spec=effective,
            table=source,
            devices=[device],
            threads=1,
            work_dir=work_dir,
            seed=fold["seed"],
        )
        train(assignment, backend, NullContext(), say=lambda _line: None)
        found = predict_rows(Path(work_dir) / "model", _test_rows(file, fold["target"]))
    return [str(label) for label in found.labels or []]


def _test_rows(file: Path, target: str) -> bytes:
    """The rows of the test part as a CSV file of their own, without what is to be predicted."""
    rows = list(csv.DictReader(file.read_text().splitlines()))
    out = io.StringIO()
    names = [name for name in rows[0] if name not in (target, "part")]
    writer = csv.DictWriter(out, names, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(row for row in rows if row["part"] == "test")
    return out.getvalue().encode()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
