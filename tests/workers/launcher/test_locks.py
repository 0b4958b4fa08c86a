"""Who holds a device is a fact of the kernel: refused while held, inherited by the trainer, free when it is gone."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workers.launcher.attempt import Watched
from tests.workers.launcher.conftest import Start
from workers.launch import Busy
from workers.locks import close_all, lock_names, take, take_all
from workers.sweep import holders

Watch = Callable[[int], Watched]


class TestNames:
    def test_job_comes_first_and_devices_are_sorted(self) -> None:
        assert lock_names("job_1", ["GPU-b", "GPU-a"]) == ["job-job_1.lock", "dev-GPU-a.lock", "dev-GPU-b.lock"]

    @pytest.mark.parametrize("identity", ["MIG-GPU-5c89852c/1/0", "../../etc/passwd", "cpu-0@host", "a\0b", "ü"])
    def test_any_id_is_one_file_in_the_directory(self, tmp_path: Path, identity: str) -> None:
        name = lock_names("job_1", [identity])[1]
        descriptor = take(str(tmp_path / name))
        assert descriptor is not None
        os.close(descriptor)

        assert [path.name for path in tmp_path.iterdir()] == [name]

    def test_different_ids_have_different_files(self) -> None:
        assert len(set(lock_names("j", ["a/b", "a%2fb", "a_b", "a%b"]))) == 5


class TestTake:
    def test_held_lock_is_refused_also_within_one_process(self, tmp_path: Path) -> None:
        first = take(str(tmp_path / "a.lock"))
        assert first is not None
        assert take(str(tmp_path / "a.lock")) is None
        os.close(first)
        second = take(str(tmp_path / "a.lock"))
        assert second is not None
        os.close(second)

    def test_all_or_none(self, tmp_path: Path) -> None:
        first, second = str(tmp_path / "a.lock"), str(tmp_path / "b.lock")
        held = take(second)
        assert held is not None
        assert take_all([first, second]) == ([], second)
        os.close(held)
        taken, refused = take_all([first, second])
        close_all(taken)

        assert (len(taken), refused) == (2, None)

    def test_symbolic_link_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "a.lock").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(OSError, match="symbolic links"):
            take(str(tmp_path / "a.lock"))

        assert not (tmp_path / "elsewhere").exists()


class TestBusy:
    @pytest.mark.parametrize(
        ("device", "job", "lock"),
        [("GPU-0", "job_2", "dev-GPU-0.lock"), ("GPU-1", "job_1", "job-job_1.lock")],
        ids=["same device", "same job"],
    )
    def test_second_attempt_is_refused(self, start: Start, device: str, job: str, lock: str) -> None:
        first = start("run")
        first.line()
        second = start("run", device=device, job=job)

        assert second.last() == Busy(str(first.request.lock_dir / lock))
        assert len(second.events) == 1

    def test_frozen_trainer_keeps_its_device(self, start: Start) -> None:
        start("freeze").line()

        assert isinstance(start("run", job="job_2").last(), Busy)

    def test_device_is_free_for_the_next_when_the_first_has_ended(self, start: Start) -> None:
        start("fork_children").run.close()

        assert start("exit_with_seed", job="job_2").ended().code == 0


class TestInheritance:
    def test_trainer_and_its_forks_hold_the_locks_and_the_launcher_does_not(self, start: Start, lock_dir: Path) -> None:
        attempt = start("fork_children")
        family = {attempt.line()["pid"] for _ in range(3)}

        assert set(holders(lock_dir, lock_names("job_1", ["GPU-0"]))) == family

    def test_locks_outlive_launcher_and_leader(self, start: Start, lock_dir: Path, watch: Watch) -> None:
        attempt = start("fork_children")
        family = {attempt.line()["pid"] for _ in range(3)}
        leader = watch(attempt.started().pid)
        os.kill(attempt.run._process.pid, signal.SIGKILL)  # type: ignore[attr-defined]  # a ColdRun has one
        assert leader.gone()

        assert set(holders(lock_dir, lock_names("job_1", ["GPU-0"]))) == family - {leader.pid}
        assert isinstance(start("run", job="job_2").last(), Busy)
