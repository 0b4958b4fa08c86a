"""Every example script by itself, and as a job: live, killed and gone on, cancelled, its files brought back."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.scripts import code_stack, devices_are_free
from tests.e2e.stack import Stack
from tests.examples.scripts import (
    FOLDER,
    Example,
    Started,
    hold_still,
    last_metrics,
    newest,
    run_alone,
    running,
    script_pids,
)

pytestmark = pytest.mark.e2e

PER_DEVICE = ("--devices", "2", "--processes", "per_device")
PACKAGES = ("--requirements", "requirements.txt")
PLAIN = Example("torch_plain", ("python", "train.py", "--epochs", "60"), ("model.pt",))
DDP = Example(
    "torch_ddp", ("python", "train.py", "--epochs", "40"), ("model.pt",), ("loss", "val_accuracy"), PER_DEVICE, ranks=2
)
KERAS = Example("keras_mlp", ("python", "train.py", "--epochs", "20"), ("model.keras",))
FOREST = Example(
    "sklearn_forest",
    ("python", "train.py", "--trees", "3", "--rounds", "40"),
    ("forest.joblib", "importances.json"),
    ("accuracy", "val_accuracy"),
)
LIGHTNING = Example("lightning_digits", ("python", "train.py", "--epochs", "20"), ("model.ckpt",), options=PACKAGES)
# It saves after it has told the metrics of an epoch, which has 90 steps.
HUGGING_FACE = Example(
    "hf_trainer",
    ("python", "train.py", "--epochs", "5"),
    ("model",),
    ("eval_loss", "eval_accuracy"),
    PACKAGES,
    saved_by=180,
)
ALL = (PLAIN, DDP, KERAS, FOREST, LIGHTNING, HUGGING_FACE)


def marked(*examples: Example) -> list[Any]:
    """As parameters; those that install packages from an index run with the long tests."""
    full = [pytest.mark.full]
    return [pytest.param(each, id=each.name, marks=full if each.needs_packages else []) for each in examples]


@pytest.fixture(scope="module")
def two_slots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A service with two CPU devices that takes code."""
    with code_stack(tmp_path_factory.mktemp("scripts") / "home", {"TRAINSHED_CPU_SLOTS": "2"}) as stack:
        yield stack


def killed_after_a_checkpoint(stack: Stack, started: Started, saved_by: int) -> str:
    """Kill the command of the first attempt once a checkpoint of it is stored; the job's id."""
    job_id = started.job_id(stack)
    stack.until(lambda: started.step() >= saved_by or None, "a metric", detail=started.said)
    pids = hold_still(job_id)
    assert pids
    path = f"/v1/jobs/{job_id}/checkpoints"
    stack.until(lambda: stack.client.get(path).json()["data"] or None, "a checkpoint", detail=started.said)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return job_id


class TestAsJobs:
    @pytest.mark.parametrize("example", marked(*ALL))
    def test_one_that_was_killed_goes_on_and_ends_as_if_it_was_not(
        self, two_slots: Stack, tmp_path: Path, example: Example
    ) -> None:
        with running(two_slots, example, tmp_path, "--retries", "1", "--name", example.name) as started:
            job_id = killed_after_a_checkpoint(two_slots, started, example.saved_by)
            assert started.code() == 0, started.said()
        job, files = started.documents[-2:]
        assert (job["id"], job["state"], job["attempt"]) == (job_id, "succeeded", 2)
        assert job["attempts"][0]["cause"] == "trainer_killed"
        # The first report of the second attempt is behind a checkpoint of the first.
        begun = next(entry for entry in started.of_kind("metric") if entry["attempt"] == 2)
        assert begun["progress"]["step"] > 1
        for name in example.outputs:
            assert (started.folder / f"{example.name}-output" / name).exists()
        assert sorted(files["files"]) == sorted(example.outputs)
        assert newest(job, example.result) == self.uninterrupted(two_slots, tmp_path / "whole", example)

    def uninterrupted(self, stack: Stack, place: Path, example: Example) -> dict[str, float]:
        """The metrics of a whole run: by itself, or as a job where only a job has the packages."""
        place.mkdir()
        if not example.needs_packages:
            alone = last_metrics(run_alone(example, place))
            return {name: alone[name] for name in example.result}
        with running(stack, example, place) as started:
            assert started.code() == 0, started.said()
        return newest(started.documents[-2], example.result)

    @pytest.mark.parametrize(
        "example", [pytest.param(each, id=each.name, marks=[] if each is FOREST else pytest.mark.full) for each in ALL]
    )
    def test_ctrl_c_cancels_it_when_that_was_asked_for(
        self, two_slots: Stack, tmp_path: Path, example: Example
    ) -> None:
        endless = replace(example, command=(*example.command[:-1], "100000"))
        with running(two_slots, endless, tmp_path, "--cancel-on-interrupt") as started:
            job_id = started.job_id(two_slots)
            two_slots.until(lambda: started.of_kind("metric") or None, "a metric", detail=started.said)
            started.process.send_signal(signal.SIGINT)
            assert started.code() == 130
        assert two_slots.wait(job_id)["state"] == "cancelled"
        two_slots.until(lambda: devices_are_free(two_slots), "free devices")
        assert script_pids(job_id) == []

    def test_a_table_is_sent_and_learned_from(self, two_slots: Stack, tmp_path: Path) -> None:
        table = tmp_path / "birds.csv"
        rows = [f"{bill + number / 100:.2f},{kind},x" for kind, bill in (("a", 1), ("b", 5)) for number in range(40)]
        table.write_text("\n".join(["bill,kind,note", *rows, "NA,b,y", ""]))
        birds = Example("sklearn_forest", ("python", "train.py", "--rounds", "2", "--target", "kind"), ())
        with running(two_slots, birds, tmp_path, "--data", f"train={table}", "--output", "out") as started:
            assert started.code() == 0, started.said()
        # The two kinds do not overlap, so every bird of the validation part is told apart.
        assert newest(started.documents[-2], ["val_accuracy"]) == {"val_accuracy": 1.0}
        assert json.loads((started.folder / "out" / "importances.json").read_text()) == {"0": 1.0}

    def test_without_a_bundle_a_module_of_the_worker_runs(self, two_slots: Stack, tmp_path: Path) -> None:
        module = Example("sklearn_forest", ("python", "-m", "platform", "terse"), ())
        with running(two_slots, module, tmp_path, "--no-bundle", "--success", "exit") as started:
            assert started.code() == 0, started.said()
        assert started.documents[-1] == {"job_id": started.documents[0]["id"], "output": None, "files": []}
        lines = [line for entry in started.of_kind("log") for line in entry["lines"]]
        assert [line.startswith("Linux-") for line in lines] == [True]


class TestByThemselves:
    def test_a_forest_that_is_started_again_grows_on(self, tmp_path: Path) -> None:
        first = run_alone(FOREST, tmp_path, "--rounds", "3")
        second = run_alone(FOREST, tmp_path, "--rounds", "5")
        assert [json.loads(line)["epoch"] for line in (*first, *second)] == [1, 2, 3, 4, 5]
        assert (tmp_path / "outputs" / "forest.joblib").exists()

    def test_a_target_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("x,y\n1,2\n")
        with pytest.raises(AssertionError, match="has no column 'target'; it has x, y"):
            run_alone(FOREST, tmp_path, TRAINSHED_DATA_TRAIN=str(tmp_path / "a.csv"))


class TestFolder:
    def test_every_example_is_run_here(self) -> None:
        assert sorted(path.parent.name for path in FOLDER.glob("*/train.py")) == sorted(each.name for each in ALL)

    def test_every_one_is_in_the_readme(self) -> None:
        text = (FOLDER / "README.md").read_text()
        assert [each.name for each in ALL if f"`{each.name}`" not in text] == []

    def test_none_imports_anything_of_ours(self) -> None:
        scripts = [path.read_text() for path in FOLDER.glob("*/train.py")]
        lines = [line for text in scripts for line in text.splitlines() if line.startswith(("import ", "from "))]
        assert not [line for line in lines if line.split()[1].partition(".")[0] in ("app", "workers", "trainshed")]

    def test_the_packages_that_they_need_are_pinned(self) -> None:
        for example in (LIGHTNING, HUGGING_FACE):
            lines = (FOLDER / example.name / "requirements.txt").read_text().splitlines()
            assert all("==" in line for line in lines if line and not line.startswith("#"))
