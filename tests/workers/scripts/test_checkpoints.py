"""Checkpoints of what a script writes: made of complete files alone, whatever it does to its folder."""

import hashlib
import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from app.archives import Limits, check
from tests.workers.scripts.hosted import CPU, assignment, hosted, script
from workers.checkpoints import verify
from workers.protocol import Checkpoint, Report
from workers.scripts.assignment import Monitor, read
from workers.scripts.best import Best
from workers.scripts.checkpoints import MOST_FILES, WAITING_LIMIT, CheckpointFolder, Made, best_so_far
from workers.scripts.folders import prepare
from workers.scripts.metrics import Standing

QUIET = 5.0


class Shelf:
    """A folder that is looked at when the test says so."""

    def __init__(
        self, work_dir: Path, *, max_bytes: int = 1 << 28, monitor: Monitor | None = None, step: int = 0
    ) -> None:
        self.work_dir = work_dir
        self.here = work_dir / "checkpoints"
        self.said: list[tuple[str, str]] = []
        self.now_s = 0.0
        for folder in (self.here, work_dir / "staged"):
            folder.mkdir(exist_ok=True)
        self.folder = CheckpointFolder(
            self.here,
            work_dir / "staged",
            lambda code, sentence: self.said.append((code, sentence)),
            Best(monitor),
            max_bytes,
            step,
        )

    def look(self, step: int = 1, metrics: dict[str, float] | None = None, *, at_end: bool = False) -> Made | None:
        self.now_s += QUIET
        return self.folder.look(self.now_s, Standing(step, 2, metrics or {}), all_of_them=at_end, last=at_end)

    def settled(self, step: int = 1, metrics: dict[str, float] | None = None) -> Made | None:
        """Two looks: what is there now has rested."""
        assert self.look(step, metrics) is None
        return self.look(step, metrics)

    def names(self, made: Made | None) -> list[str]:
        assert made is not None
        with zipfile.ZipFile(self.work_dir / made.path / "files.zip") as archive:
            return sorted(archive.namelist())

    @property
    def codes(self) -> list[str]:
        return [code for code, _ in self.said]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


class TestMade:
    def test_archive_holds_the_files_and_the_manifest_vouches_for_it(self, shelf: Shelf) -> None:
        (shelf.here / "step-1").mkdir()
        (shelf.here / "step-1" / "model.bin").write_bytes(b"weights")
        (shelf.here / "state.json").write_text("{}")
        made = shelf.settled(7, {"loss": 0.5})

        assert made == Made("staged/ckpt-1", 7, 2, {"loss": 0.5}, best=True)
        assert shelf.names(made) == ["state.json", "step-1/model.bin"]
        folder = shelf.work_dir / made.path
        manifest = verify(folder)
        assert (manifest.step, manifest.epoch) == (7, 2)
        assert manifest.files[0].sha256 == hashlib.sha256((folder / "files.zip").read_bytes()).hexdigest()
        check(folder / "files.zip", Limits())

    def test_steps_always_grow(self, shelf: Shelf) -> None:
        steps = []
        for number in range(3):
            (shelf.here / "last.bin").write_text("x" * (number + 1))
            made = shelf.settled(5)
            assert made is not None
            steps.append(made.step)

        assert steps == [5, 6, 7]

    def test_it_goes_on_behind_the_step_that_the_attempt_began_with(self, tmp_path: Path) -> None:
        shelf = Shelf(tmp_path, step=40)
        (shelf.here / "last.bin").write_text("x")
        made = shelf.settled(0)

        assert made is not None
        assert made.step == 41

    def test_nothing_new_makes_nothing(self, shelf: Shelf) -> None:
        (shelf.here / "last.bin").write_text("x")
        assert shelf.settled() is not None

        assert shelf.settled() is None
        assert shelf.look(at_end=True) is None

    def test_unchanged_files_come_along(self, shelf: Shelf) -> None:
        (shelf.here / "best.bin").write_bytes(b"x" * 2_000_000)
        (shelf.here / "notes.txt").write_text("x")
        shelf.settled()
        (shelf.here / "last.bin").write_text("x")

        assert shelf.names(shelf.settled()) == ["best.bin", "last.bin", "notes.txt"]

    def test_no_further_one_is_made_while_the_worker_is_behind(self, shelf: Shelf) -> None:
        made = []
        for number in range(WAITING_LIMIT + 2):
            (shelf.here / "last.bin").write_text("x" * (number + 1))
            shelf.look()
            made.append(shelf.look())

        assert [found is not None for found in made] == [True] * WAITING_LIMIT + [False, False]
        assert shelf.look(at_end=True) is not None

    @pytest.mark.parametrize(
        "entry", ["last.bin", "checkpoints/last.bin", "./last.bin", "{here}/last.bin", "last.bin/inside"]
    )
    def test_announced_file_is_taken_at_once(self, entry: str, shelf: Shelf) -> None:
        (shelf.here / "last.bin").write_text("x")
        shelf.folder.announce(entry.format(here=shelf.here), Standing(9, 3, {}))
        made = shelf.look(12)

        assert made is not None
        assert (made.step, made.epoch) == (9, 3)


class TestSpoiledFolders:
    def test_file_that_was_cut_off_is_not_taken_and_named(self, shelf: Shelf) -> None:
        buffer = io.BytesIO()
        np.savez(buffer, weights=np.arange(1_000))
        (shelf.here / "weights.npz").write_bytes(buffer.getvalue()[:2_000])

        assert shelf.settled() is None
        assert shelf.codes == ["checkpoint_cut_off"]
        assert "'weights.npz'" in shelf.said[0][1]

        (shelf.here / "weights.npz").write_bytes(buffer.getvalue())
        assert shelf.names(shelf.settled()) == ["weights.npz"]

    def test_link_is_not_followed(self, shelf: Shelf) -> None:
        (shelf.work_dir / "secret").write_text("secret")
        (shelf.here / "step-1").mkdir()
        (shelf.here / "step-1" / "stolen").symlink_to(shelf.work_dir / "secret")
        (shelf.here / "step-1" / "real").write_text("x")

        assert shelf.names(shelf.settled()) == ["step-1/real"]
        assert shelf.codes == ["checkpoint_file_skipped"]

    def test_pipe_does_not_hold_it_up(self, shelf: Shelf) -> None:
        os.mkfifo(shelf.here / "pipe")
        (shelf.here / "real").write_text("x")

        assert shelf.names(shelf.settled()) == ["real"]

    @pytest.mark.parametrize("what", ["link", "pipe", "file", "nothing"])
    def test_folder_that_was_replaced_is_not_read_and_said_once(self, what: str, shelf: Shelf) -> None:
        shelf.here.rmdir()
        (shelf.work_dir / "other").mkdir()
        (shelf.work_dir / "other" / "secret").write_text("secret")
        if what == "link":
            shelf.here.symlink_to(shelf.work_dir / "other")
        elif what == "pipe":
            os.mkfifo(shelf.here)
        elif what == "file":
            shelf.here.write_text("x")

        assert [shelf.look(), shelf.look(), shelf.look(at_end=True)] == [None, None, None]
        assert shelf.codes == ["checkpoint_folder_lost"]

    def test_folder_of_too_many_files_is_not_gone_through(self, shelf: Shelf) -> None:
        for number in range(MOST_FILES + 1):
            (shelf.here / str(number)).touch()

        assert shelf.settled() is None
        assert shelf.codes == ["checkpoint_too_large"]

    def test_sparse_terabyte_is_not_read(self, shelf: Shelf) -> None:
        with (shelf.here / "huge").open("wb") as file:
            file.truncate(1 << 40)
        (shelf.here / "real").write_text("x")

        assert shelf.names(shelf.settled()) == ["real"]
        assert shelf.codes == ["checkpoint_too_large"]

    @pytest.mark.parametrize("names", [["bad\nname", "good"], ["Model", "model"], ["back\\slash", "good"]])
    def test_name_that_no_archive_holds_is_left_out(self, names: list[str], shelf: Shelf) -> None:
        for name in names:
            (shelf.here / name).write_text("x")
        made = shelf.settled()

        assert len(shelf.names(made)) == 1
        assert shelf.codes == ["checkpoint_file_skipped"]
        assert made is not None
        check(shelf.work_dir / made.path / "files.zip", Limits())

    def test_file_that_changes_while_it_is_packed_spoils_that_try_alone(self, shelf: Shelf) -> None:
        (shelf.here / "last.bin").write_text("old")
        shelf.look()
        (shelf.here / "last.bin").write_text("newer")

        assert shelf.folder._make(["last.bin"]) is None
        assert list((shelf.work_dir / "staged").iterdir()) == []
        assert shelf.codes == []
        assert shelf.names(shelf.settled()) == ["last.bin"]

    def test_staged_folder_that_was_taken_away_costs_a_notice(self, shelf: Shelf) -> None:
        (shelf.work_dir / "staged").rmdir()
        (shelf.here / "last.bin").write_text("x")

        assert shelf.settled() is None
        assert shelf.codes == ["checkpoint_not_stored"]

    def test_notices_do_not_fill_the_journal(self, shelf: Shelf) -> None:
        for number in range(50):
            (shelf.here / f"bad-{number}.safetensors").write_text("x")
            shelf.settled()

        assert len(shelf.said) <= 20


class TestBest:
    @pytest.mark.parametrize(
        ("monitor", "values", "best"),
        [
            (None, [{"val_loss": 2.0}, {"val_loss": 1.0}, {"val_loss": 1.5}], [True, True, False]),
            (None, [{"loss": 2.0, "val_loss": 1.0}, {"loss": 1.0, "val_loss": 2.0}], [True, False]),
            (Monitor("acc", "max"), [{"acc": 0.5}, {"acc": 0.4}, {"acc": 0.6}], [True, False, True]),
            (None, [{"loss": float("nan")}, {"loss": 9.0}], [False, True]),
            (Monitor("acc", "max"), [{"loss": 1.0}], [False]),
        ],
    )
    def test_monitor_decides(
        self, monitor: Monitor | None, values: list[dict[str, float]], best: list[bool], tmp_path: Path
    ) -> None:
        shelf = Shelf(tmp_path, monitor=monitor)
        found = []
        for number, metrics in enumerate(values):
            (shelf.here / "last.bin").write_text("x" * (number + 1))
            made = shelf.settled(1, metrics)
            assert made is not None
            found.append(made.best)

        assert found == best

    def test_best_value_outlives_the_attempt(self, shelf: Shelf) -> None:
        (shelf.here / "last.bin").write_text("x")
        made = shelf.settled(1, {"val_loss": 0.25})
        assert made is not None

        assert best_so_far(shelf.work_dir / made.path) == 0.25
        assert best_so_far(shelf.work_dir) is None


class TestGoingOn:
    def test_files_come_back_under_their_names_with_their_times(self, shelf: Shelf, tmp_path: Path) -> None:
        (shelf.here / "step-1").mkdir()
        for name, modified in (("step-1/a.bin", 1_700_000_000_123_456_789), ("b.bin", 1_600_000_000_000_000_001)):
            (shelf.here / name).write_bytes(name.encode())
            os.utime(shelf.here / name, ns=(modified, modified))
        made = shelf.settled()
        assert made is not None

        again = tmp_path / "again"
        again.mkdir()
        told = assignment(again, ["x"], resume=str(shelf.work_dir / made.path), resume_step=made.step)
        folders, _ = prepare(read(told.model_dump_json()))

        assert (folders.checkpoints / "step-1/a.bin").read_bytes() == b"step-1/a.bin"
        assert (folders.checkpoints / "step-1/a.bin").stat().st_mtime_ns == 1_700_000_000_123_456_789
        assert (folders.checkpoints / "b.bin").stat().st_mtime_ns == 1_600_000_000_000_000_001

    COUNTS = """
import json, os, pathlib, sys
folder = pathlib.Path(os.environ["TRAINSHED_CHECKPOINT_DIR"])
state = folder / "state.json"
step = json.loads(state.read_text())["at"] if "TRAINSHED_RESUME_DIR" in os.environ else 0
print("from", step, os.environ.get("TRAINSHED_RESUME_STEP"))
until = int(sys.argv[1])
while step < until:
    step += 1
    new = folder / "state.json.tmp"
    new.write_text(json.dumps({"at": step}))
    new.replace(state)
    print(json.dumps({"step": step, "loss": 1 / step, "checkpoint": "state.json"}), flush=True)
if until == 3: os.kill(os.getpid(), 9)
pathlib.Path(os.environ["TRAINSHED_OUTPUT_DIR"], "total").write_text(str(step))
"""

    def test_killed_command_goes_on_from_what_it_announced(self, tmp_path: Path) -> None:
        first = tmp_path / "first"
        with hosted(first, {"train.py": self.COUNTS}, "python", "train.py", "3") as host:
            host.finish()
            checkpoint = host.of(Checkpoint)[-1]
            assert "was ended by signal SIGKILL" in host.failed.message
        assert (checkpoint.step, checkpoint.metrics) == (3, {"loss": 1 / 3})

        second = tmp_path / "second"
        told = {"resume": str(first / checkpoint.path), "resume_step": checkpoint.step}
        with hosted(second, {"train.py": self.COUNTS}, "python", "train.py", "5", **told) as host:
            host.finish()

            assert host.log == "from 3 3\n"
            assert [point.step for point in host.points] == [4, 5]
            assert host.outputs["total"].read_text() == "5"
            assert host.done.checkpoint_step == 5

    def test_reports_come_before_the_checkpoint_that_they_lead_to(self, tmp_path: Path) -> None:
        with hosted(tmp_path, {"train.py": self.COUNTS}, "python", "train.py", "4") as host:
            host.finish()

        at = host.messages.index(host.of(Checkpoint)[-1])
        before = [message for message in host.messages[:at] if isinstance(message, Report)]
        assert before[-1].step == host.of(Checkpoint)[-1].step

    def test_file_that_rests_becomes_one_while_the_command_runs(self, tmp_path: Path) -> None:
        text = """
import os, pathlib, time
pathlib.Path(os.environ["TRAINSHED_CHECKPOINT_DIR"], "last.txt").write_text("saved")
time.sleep(600)
"""
        with hosted(tmp_path, {"train.py": text}, devices=[CPU]) as host:
            checkpoint = host.until(Checkpoint)

            assert (checkpoint.reason, checkpoint.step) == ("periodic", 1)

    def test_crash_leaves_what_had_not_rested_alone(self, tmp_path: Path) -> None:
        text = """
import os, pathlib
pathlib.Path(os.environ["TRAINSHED_CHECKPOINT_DIR"], "last.bin").write_text("half of ")
raise SystemExit(1)
"""
        assert script(tmp_path, text).of(Checkpoint) == []

    def test_end_in_order_takes_all(self, tmp_path: Path) -> None:
        text = """
import os, pathlib
pathlib.Path(os.environ["TRAINSHED_CHECKPOINT_DIR"], "last.bin").write_text("whole")
"""
        (checkpoint,) = script(tmp_path, text).of(Checkpoint)

        assert checkpoint.reason == "final"

    def test_what_came_from_a_checkpoint_is_not_one_again(self, tmp_path: Path) -> None:
        first = script(tmp_path / "first", self.END)
        (checkpoint,) = first.of(Checkpoint)
        told = {"resume": str(tmp_path / "first" / checkpoint.path), "resume_step": 1}

        assert script(tmp_path / "second", "", **told).of(Checkpoint) == []

    END = "import os, pathlib; pathlib.Path(os.environ['TRAINSHED_CHECKPOINT_DIR'], 'a').write_text('x')"


def test_manifest_is_plain_json(shelf: Shelf) -> None:
    (shelf.here / "a").write_text("x")
    made = shelf.settled()
    assert made is not None

    manifest = json.loads((shelf.work_dir / made.path / "manifest.json").read_text())
    assert manifest["files"][0]["name"] == "files.zip"
