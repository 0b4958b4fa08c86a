"""Every file in examples/ does what it says, against a real service."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli.demo.plan import penguins_file
from tests.e2e.stack import Stack, running_stack

FOLDER = Path(__file__).resolve().parents[2] / "examples"
SPECS = sorted(path.name for path in FOLDER.glob("*.json"))
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py"))


@pytest.fixture(scope="module")
def two_slots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A service with two CPU devices, whatever machine this is."""
    with running_stack(tmp_path_factory.mktemp("examples") / "home", {"TRAINSHED_CPU_SLOTS": "2"}) as running:
        yield running


def run_script(stack: Stack, name: str, *arguments: str) -> str:
    ours = {key: value for key, value in os.environ.items() if not key.startswith("TRAINSHED_")}
    environ = {**ours, "TRAINSHED_URL": stack.url, "TRAINSHED_KEY": stack.key}
    command = [sys.executable, str(FOLDER / name), *arguments]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class TestSpecs:
    @pytest.mark.parametrize("name", SPECS)
    def test_trains_and_leaves_a_model(self, two_slots: Stack, name: str) -> None:
        spec = json.loads((FOLDER / name).read_text())
        job = two_slots.wait(two_slots.submit(spec))
        assert job["state"] == "succeeded", job
        files = two_slots.client.get(f"/v1/jobs/{job['id']}/artifacts").json()["data"]
        assert {"model.safetensors", "model.json", "evaluation.json", "report.png"} <= {file["name"] for file in files}

    def test_every_one_is_listed_in_the_readme(self) -> None:
        text = (FOLDER / "README.md").read_text()
        assert [name for name in (*SPECS, *SCRIPTS) if f"`{name}`" not in text] == []


class TestScripts:
    @pytest.mark.parametrize("framework", ["torch", "tensorflow"])
    def test_penguins_are_told_apart_over_http(self, two_slots: Stack, framework: str) -> None:
        file = penguins_file()
        assert file is not None
        out = run_script(two_slots, "penguins.py", str(file), framework).splitlines()
        # The rows are three of the set's own: a Torgersen Adelie, a Biscoe Gentoo, a Dream Chinstrap.
        assert [line.partition(": ")[2].partition(" (")[0] for line in out[-3:]] == ["Adelie", "Gentoo", "Chinstrap"]

    def test_the_second_job_begins_where_the_first_was_best(self, two_slots: Stack) -> None:
        first, second = run_script(two_slots, "fine_tuning.py").splitlines()
        assert float(second.rpartition(" ")[2]) <= float(first.rpartition(" ")[2]) * 1.05

    def test_every_script_is_run_here(self) -> None:
        assert SCRIPTS == ["fine_tuning.py", "penguins.py"]
