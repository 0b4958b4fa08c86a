"""Cases C52, C53, C73, C74: nothing that we load can run code, and no switch for it is in the source."""

import base64
import json
import marshal
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.workers.exports.processes import ROOT
from workers.environment import framework_environment, trainer_environment

# Written apart, so that this file does not hold what it looks for.
SWITCHES = [
    "weights_only" + "=False",
    "safe_mode" + "=False",
    "enable_unsafe" + "_deserialization",
    "allow_pickle" + "=True",
    "pickle" + ".load",
    "yaml" + ".load(",
    "shell" + "=True",
]
# What users' own scripts may do with files of their own, in their own process, and we never.
OURS_NEVER = ["torch" + ".load(", "joblib" + ".load"]
OURS = ("app", "workers", "benchmarks", "scripts")
FOLDERS = (*OURS, "examples")


def files_in(folders: Sequence[str]) -> list[Path]:
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


class TestSource:
    @pytest.mark.parametrize("switch", SWITCHES)
    def test_no_file_loads_anything_unsafely(self, switch: str) -> None:
        files = files_in(FOLDERS)
        assert len(files) > 150

        written = (switch, switch.replace("=", " = "))
        found = [str(path) for path in files if any(form in path.read_text() for form in written)]

        assert found == []

    @pytest.mark.parametrize("loader", OURS_NEVER)
    def test_no_file_of_ours_loads_what_may_be_a_pickle(self, loader: str) -> None:
        assert [str(path) for path in files_in(OURS) if loader in path.read_text()] == []

    def test_examples_load_weights_alone(self) -> None:
        lines = [line for path in files_in(["examples"]) for line in path.read_text().splitlines()]

        assert [line for line in lines if OURS_NEVER[0] in line and "weights_only=True" not in line] == []


def with_lambda(path: Path, marker: Path) -> None:
    """Put a layer of Python byte code in place of the first activation: it would make a folder when it is called."""
    code = compile(f"(lambda x: (__import__('os').mkdir({str(marker)!r}), x)[1])", "x", "eval").co_consts[0]
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(parts["config.json"])
    layer = next(layer for layer in config["config"]["layers"] if layer["class_name"] == "Activation")
    layer["class_name"] = "Lambda"
    function = {"code": base64.b64encode(marshal.dumps(code)).decode(), "defaults": None, "closure": None}
    layer["config"] = {"name": layer["name"], "function": {"class_name": "__lambda__", "config": function}}
    parts["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


@pytest.mark.slow
class TestKeras:
    def test_file_with_code_in_it_is_refused_and_the_code_does_not_run(
        self, every_model: dict[str, Path], tmp_path: Path
    ) -> None:
        model = every_model["dense"]
        shutil.copy(model / "model.keras", tmp_path)
        with_lambda(tmp_path / "model.keras", tmp_path / "ran")
        environment = {**trainer_environment([], 1, tmp_path, os.environ), **framework_environment("tensorflow")}
        paths = ["--model", str(model), "--output", str(tmp_path), "--parent", str(os.getpid())]
        command = ["-P", "-m", "workers.exports", "--format", "keras", "--check", "--memory", str(2**33), *paths]

        done = subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=120, check=False
        )

        assert done.returncode == 1
        assert json.loads(done.stdout)["error"].startswith("Keras does not load it in safe mode (ValueError: ")
        assert "lambda" in done.stdout.lower()
        assert not (tmp_path / "ran").exists()
