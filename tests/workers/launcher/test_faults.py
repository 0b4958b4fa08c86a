"""Whoever dies or freezes, no trainer is left behind."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.workers.launcher.attempt import LIMIT_S, ROOT, Watched
from tests.workers.launcher.conftest import Start
from workers.launch import ColdLauncher, ColdRun, LauncherGone
from workers.locks import close_all, lock_names, take, take_all

Watch = Callable[[int], Watched]


def launcher_of(run: object) -> int:
    assert isinstance(run, ColdRun)
    return run._process.pid


class TestWorkerGone:
    @pytest.mark.parametrize("entry", ["run", "freeze", "fork_children"])
    def test_end_of_the_socket_kills_trainer_and_launcher(self, start: Start, watch: Watch, entry: str) -> None:
        attempt = start(entry)
        trainer, launcher = watch(attempt.line()["pid"]), watch(launcher_of(attempt.run))
        attempt.run.control.close()

        assert trainer.gone()
        assert launcher.gone()

    def test_killed_worker_takes_everything_with_it(self, watch: Watch, tmp_path: object) -> None:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tests.workers.launcher.worker", str(tmp_path)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert worker.stdout is not None
        launcher, trainer = (watch(int(pid)) for pid in worker.stdout.readline().split())
        worker.kill()
        worker.wait()
        worker.stdout.close()

        assert trainer.gone()
        assert launcher.gone()


class TestLauncherKilled:
    @pytest.mark.parametrize("entry", ["run", "freeze"])
    def test_kernel_kills_the_trainer(self, start: Start, watch: Watch, entry: str) -> None:
        attempt = start(entry)
        trainer = watch(attempt.line()["pid"])
        os.kill(launcher_of(attempt.run), signal.SIGKILL)

        assert trainer.gone()
        assert isinstance(attempt.last(), LauncherGone)

    def test_close_kills_what_the_kernel_left(self, start: Start, watch: Watch) -> None:
        attempt = start("fork_children")
        family = [watch(attempt.line()["pid"]) for _ in range(3)]
        os.kill(launcher_of(attempt.run), signal.SIGKILL)
        assert isinstance(attempt.last(), LauncherGone)
        attempt.run.close()

        assert not any(member.alive() for member in family)

    def test_close_finds_a_daemon_by_its_tag(self, start: Start, watch: Watch) -> None:
        attempt = start("keep_daemon")
        daemon, trainer = watch(attempt.line()["pid"]), watch(attempt.line()["pid"])
        os.kill(launcher_of(attempt.run), signal.SIGKILL)
        assert trainer.gone()
        assert daemon.alive()
        attempt.run.close()

        assert not daemon.alive()


class TestLauncherFrozen:
    def test_close_kills_launcher_and_trainer(self, start: Start, watch: Watch) -> None:
        attempt = start("fork_children", launcher=ColdLauncher(close_ms=100))
        family = [watch(attempt.line()["pid"]) for _ in range(3)]
        launcher = watch(launcher_of(attempt.run))
        os.kill(launcher.pid, signal.SIGSTOP)
        attempt.run.close()

        assert not any(process.alive() for process in [launcher, *family])


class TestLauncherIsSignalled:
    def test_signals_of_a_service_manager_do_not_end_it(self, start: Start) -> None:
        attempt = start("echo")
        attempt.started()
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(launcher_of(attempt.run), signum)
        attempt.run.messages.send(b"{}\n")

        assert attempt.ended().code == 0


class TestDescendants:
    def test_group_is_killed_when_its_leader_dies(self, start: Start, watch: Watch) -> None:
        attempt = start("fork_children")
        family = [watch(attempt.line()["pid"]) for _ in range(3)]
        os.kill(attempt.started().pid, signal.SIGKILL)
        end = attempt.ended()

        assert (end.signal, end.survivors) == (signal.SIGKILL, False)
        assert not any(member.alive() for member in family)

    @pytest.mark.parametrize("entry", ["leave_daemon", "leave_executed_daemon"])
    def test_daemon_that_left_the_session_is_found_and_killed(self, start: Start, entry: str) -> None:
        attempt = start(entry)
        daemon = attempt.line()["pid"]
        end = attempt.ended()

        assert (end.code, end.survivors) == (0, False)
        with pytest.raises(ProcessLookupError):  # reaped by the launcher, not only killed
            os.kill(daemon, 0)

    def test_locks_are_free_when_the_end_is_reported(self, start: Start) -> None:
        attempt = start("leave_daemon")
        attempt.ended()
        names = lock_names("job_1", ["GPU-0"])
        taken, held = take_all([str(attempt.request.lock_dir / name) for name in names])
        close_all(taken)

        assert (len(taken), held) == (2, None)

    def test_lock_in_a_strangers_hands_is_reported_and_the_stranger_lives(self, start: Start) -> None:
        attempt = start("give_lock_away")
        attempt.started()
        attempt.run.messages.settimeout(LIMIT_S)
        _, descriptors, _, _ = socket.recv_fds(attempt.run.messages, 100, 1)
        try:
            end = attempt.ended()
            lock = str(attempt.request.lock_dir / lock_names("job_1", ["GPU-0"])[1])
            assert take(lock) is None
        finally:
            close_all(descriptors)

        assert (end.code, end.survivors) == (0, True)
