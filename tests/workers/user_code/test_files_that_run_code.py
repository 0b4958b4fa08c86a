"""Cases C73 and C74: model files that run code when they are loaded are loaded nowhere but in the job's own sandbox."""

import ast
import hashlib
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.workers.user_code.conftest import Asker, code_of, launch_in
from tests.workers.user_code.models import KERAS, ROWS, TORCH, write_python_model
from workers.exports import ExportFailed, run
from workers.predictor_handle import PredictionRefused
from workers.user_exporter import UserExporter

ROOT = Path(__file__).parents[3]
LOADERS = {"pickle", "_pickle", "cPickle", "marshal", "dill", "cloudpickle", "shelve", "joblib"}
"""Modules that run what a file says."""


class Marker:
    """Unpickled, it makes a folder; the file of case C74 does the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.mkdir, (self._folder,)


class TestTheSource:
    def test_nothing_imports_what_unpickles(self) -> None:
        files = [path for folder in ("app", "workers") for path in (ROOT / folder).rglob("*.py")]
        assert len(files) > 300

        found = {f"{path}: {name}" for path in files for name in _imports(path) if name.split(".")[0] in LOADERS}

        assert found == set()

    def test_keras_files_are_loaded_at_one_place_in_safe_mode(self) -> None:
        files = [path for folder in ("app", "workers") for path in (ROOT / folder).rglob("*.py")]
        calls = [line.strip() for path in files for line in path.read_text().splitlines() if "load_model(" in line]
        assert len(calls) == 1
        assert "safe_mode=True" in calls[0]


class TestPickles:
    @pytest.mark.parametrize("name", ["model.safetensors", "probe.safetensors"])
    def test_one_in_place_of_a_models_file_is_not_unpickled(self, asker: Asker, name: str) -> None:
        saved = asker.write()
        marker = asker.folder / "C74_MARKER_SHOULD_NOT_EXIST"
        content = pickle.dumps(Marker(marker))
        (saved.folder / name).write_bytes(content)
        description = json.loads((saved.folder / "model.json").read_text())
        if name == "model.safetensors":
            description["weights"]["sha256"] = hashlib.sha256(content).hexdigest()
        (saved.folder / "model.json").write_text(json.dumps(description))

        if name == "model.safetensors":
            with pytest.raises(PredictionRefused) as caught:
                asker.ask(saved, ROWS)
            assert caught.value.code == "artifact_unreadable"
        with pytest.raises(ExportFailed) as failed:
            UserExporter(launch_in(asker.folder), code_of(), run)("onnx", saved.folder, asker.folder / "out")
        assert "is no file of weights" in str(failed.value)
        assert "C74_MARKER" not in str(failed.value), "what is in it is not told"
        assert not marker.exists()

    def test_one_in_the_bundle_is_a_file_like_any_other(self, asker: Asker) -> None:
        saved = asker.write()
        marker = asker.folder / "C74_MARKER_SHOULD_NOT_EXIST"
        with zipfile.ZipFile(saved.folder / "code.zip", "w") as archive:
            archive.writestr("net.py", TORCH)
            archive.writestr("weights.pt", pickle.dumps(Marker(marker)))
        description = json.loads((saved.folder / "model.json").read_text())
        description["python"]["code"]["sha256"] = hashlib.sha256((saved.folder / "code.zip").read_bytes()).hexdigest()
        (saved.folder / "model.json").write_text(json.dumps(description))

        assert asker.ask(saved, ROWS)["labels"] == saved.labels(ROWS)
        assert not marker.exists()


@pytest.mark.full
class TestKerasFiles:
    def test_one_with_a_lambda_is_loaded_once_in_safe_mode_and_refused(self, tmp_path: Path) -> None:
        marker = tmp_path / "C73_MARKER_SHOULD_NOT_EXIST"
        # It does nothing where the user's own module is there, so in the process that makes the file.
        act = f"__import__('os').mkdir({str(marker)!r}) if 'net' not in __import__('sys').modules else None"
        layer = f"keras.layers.Lambda(lambda x: ({act}, x)[1])"
        source = KERAS.replace("Dense(output_units)]", f"Dense(output_units), {layer}]")
        saved = write_python_model(tmp_path / "model", {"net.py": source}, framework="tensorflow")

        with pytest.raises(ExportFailed) as caught:
            UserExporter(launch_in(tmp_path), code_of("tensorflow"), run)("keras", saved.folder, tmp_path / "out")

        assert "Keras does not load it" in str(caught.value)
        assert "lambda" in str(caught.value).lower()
        assert not marker.exists()


def _imports(path: Path) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(node.module or "")
    return found
