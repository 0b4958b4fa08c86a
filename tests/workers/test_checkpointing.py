"""When checkpoints are written, and what is said of them."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from tests.workers.test_checkpoints import POSITION
from tests.workers.training_jobs import Listener
from workers import checkpointing
from workers.checkpointing import Capture, Checkpointer
from workers.checkpoints import Manifest, State, verify


class Watch:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Scene:
    """A checkpointer in a folder, with somebody who listens."""

    def __init__(self, work_dir: Path, every: int | None = None, resumed: tuple[int, int] | None = None) -> None:
        self.work_dir = work_dir
        self.listener = Listener()
        self.clock = Watch()
        self.sent_before: list[int] = []
        self.checkpointer = Checkpointer(
            work_dir, self.listener, self.clock, every, before=self._before, resumed=resumed
        )

    def _before(self) -> None:
        self.sent_before.append(len(self.listener.checkpoints))

    def epochs(self, which: str, seconds: float = 0.0, first: int = 1) -> None:
        """End epochs of ten steps: `B` one that is the best so far, `.` another."""
        for epoch, letter in enumerate(which, start=first):
            self.clock.now += seconds
            self.checkpointer.epoch_ended(epoch, at(10 * epoch, epoch), best=letter == "B")

    @property
    def written(self) -> list[tuple[int, str, bool]]:
        for checkpoint in self.listener.checkpoints:
            assert verify(self.work_dir / checkpoint.path).step == checkpoint.step
        return [(c.step, c.reason, c.best) for c in self.listener.checkpoints]


def at(step: int, epoch: int) -> Capture:
    position = POSITION.model_copy(update={"step": step, "epoch": epoch})
    return lambda: State({"w": np.full(3, float(step))}, {}, None, position)


class TestEveryN:
    def test_is_exact(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path, every=3)

        scene.epochs("." * 10, seconds=100.0)

        assert scene.written == [(30, "periodic", False), (60, "periodic", False), (90, "periodic", False)]

    def test_has_nothing_in_the_middle_of_an_epoch(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path, every=1)
        scene.clock.now = 1000.0

        scene.checkpointer.inside(at(5, 0))

        assert scene.written == []

    def test_the_best_epoch_is_written_when_it_is_due(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path, every=100)

        scene.epochs("B.B", seconds=100.0)

        assert scene.written == [(10, "best", True), (30, "best", True)]

    def test_one_for_both_reasons_is_one(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path, every=1)

        scene.epochs("B", seconds=100.0)

        assert scene.written == [(10, "periodic", True)]


class TestByCost:
    def test_the_first_is_due_after_a_second_and_others_in_a_distance(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path)

        scene.epochs("." * 100, seconds=0.3)

        steps = [step for step, _, _ in scene.written]
        assert steps[0] == 40  # at 1.2 s
        assert min(np.diff(steps)) == 170  # 17 epochs are 5.1 s

    def test_a_long_epoch_has_them_inside(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path)
        for step in range(1, 41):
            scene.clock.now += 1.0
            scene.checkpointer.inside(at(step, 0))

        steps = [step for step, _, _ in scene.written]
        assert len(steps) == 8
        assert all(reason == "periodic" for _, reason, _ in scene.written)

    def test_quick_jobs_write_nothing_on_the_way(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path)

        scene.epochs("BB.", seconds=0.01)

        assert scene.written == []


class TestTheBestThatWaits:
    @pytest.mark.parametrize("how", ["stopped", "ended"])
    def test_comes_before_anything_newer(self, tmp_path: Path, how: str) -> None:
        scene = Scene(tmp_path)
        scene.epochs("BB.")

        if how == "stopped":
            scene.checkpointer.stopped(at(35, 3))
        else:
            scene.checkpointer.ended(at(35, 3), best=False)

        assert scene.written == [(20, "best", True), (35, "stop" if how == "stopped" else "final", False)]

    def test_is_dropped_for_a_better_one(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path)
        scene.epochs("B.")

        scene.checkpointer.ended(at(30, 3), best=True)

        assert scene.written == [(30, "final", True)]

    def test_is_written_alone_when_there_is_nothing_newer_to_write(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path)
        scene.epochs("B.")

        scene.checkpointer.flush()
        scene.checkpointer.flush()

        assert scene.written == [(10, "best", True)]


class TestAnnouncing:
    def test_what_was_reported_is_on_its_way_before(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path, every=1)

        scene.epochs("..")

        assert scene.sent_before == [0, 1]

    def test_names_step_epoch_metrics_and_the_folder_inside_the_work_directory(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path, every=1)

        scene.epochs("B")

        (checkpoint,) = scene.listener.checkpoints
        assert (checkpoint.step, checkpoint.epoch) == (10, 1)
        assert checkpoint.metrics == POSITION.metrics
        assert not Path(checkpoint.path).is_absolute()
        assert (tmp_path / checkpoint.path / "manifest.json").is_file()

    def test_newest_step_is_known(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path, every=2, resumed=(10, 1))
        assert scene.checkpointer.newest_step == 10

        scene.epochs("..", first=2)

        assert scene.checkpointer.newest_step == 20
        assert Scene(tmp_path / "other").checkpointer.newest_step is None


class TestNothingNew:
    def test_before_the_first_step_there_is_none(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path)

        scene.checkpointer.stopped(at(0, 0))

        assert scene.written == []

    def test_the_place_it_came_from_is_not_written_again(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path, resumed=(25, 2))

        scene.checkpointer.stopped(at(25, 2))
        assert scene.written == []

        scene.checkpointer.ended(at(25, 3), best=False)  # the same step, and its epoch complete by now
        assert scene.written == [(25, "final", False)]

    def test_what_a_dead_attempt_left_at_that_place_is_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "checkpoints" / "10-1").mkdir(parents=True)
        (tmp_path / "checkpoints" / "10-1" / "weights.safetensors.tmp").write_bytes(b"half")
        scene = Scene(tmp_path, every=1)

        scene.epochs(".")

        assert scene.written == [(10, "periodic", False)]
        assert not list((tmp_path / "checkpoints").rglob("*.tmp"))


class TestFullDisk:
    def test_costs_a_notice_and_no_training(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        scene = Scene(tmp_path, every=1)

        def full(folder: Path, _state: State) -> Manifest:
            folder.mkdir(parents=True)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(checkpointing, "write", full)
            scene.epochs(".")
        assert scene.listener.checkpoints == []
        assert scene.checkpointer.newest_step is None
        assert list((tmp_path / "checkpoints").iterdir()) == []
        assert (
            "step 10 could not be written (No space left on device)" in scene.listener.notices["checkpoint_not_written"]
        )

        scene.epochs(".", first=2)
        assert scene.written == [(20, "periodic", False)]
