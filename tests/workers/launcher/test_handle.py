"""The worker's handle: what it needs, what it gives back, and from which thread."""

import contextlib
import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.workers.launcher.attempt import Attempt
from tests.workers.launcher.conftest import RequestFor, Start
from workers.launch import ColdLauncher, LauncherGone, LaunchFailed
from workers.locks import close_all
from workers.protocol import Stop


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class TestInterpreter:
    def test_missing_one_is_named_in_the_error(self, start: Start) -> None:
        before = open_descriptors()
        with pytest.raises(LaunchFailed, match="'/no/such/python' could not be started: No such file") as caught:
            start("run", changes={"interpreter": Path("/no/such/python")})

        assert caught.value.code == "launch_failed"
        assert open_descriptors() == before

    def test_one_that_is_no_program_is_named_too(self, start: Start, tmp_path: Path) -> None:
        (tmp_path / "python").write_text("text")
        with pytest.raises(LaunchFailed, match="Permission denied"):
            start("run", changes={"interpreter": tmp_path / "python"})

    def test_broken_one_explains_itself_in_the_log(self, start: Start, tmp_path: Path) -> None:
        interpreter = tmp_path / "python"
        interpreter.write_text("#!/bin/sh\necho this environment is broken >&2\nexit 1\n")
        interpreter.chmod(0o755)
        attempt = start("run", changes={"interpreter": interpreter})

        assert isinstance(attempt.last(), LauncherGone)
        assert attempt.all_output() == b"this environment is broken\n"


class TestDescriptorsRunOut:
    @pytest.fixture
    def leave(self) -> Iterator[Callable[[int], None]]:
        """Use up all descriptors of this process but so many; all is as it was at the end."""
        used: list[int] = []
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

        def begin(room: int) -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
            with contextlib.suppress(OSError):
                while True:
                    used.append(os.dup(0))
            for _ in range(room):
                os.close(used.pop())

        yield begin
        close_all(used)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    @pytest.mark.parametrize("room", range(8))  # two pairs of sockets, a pipe, a memory file, a pipe of Popen
    def test_launch_that_fails_half_way_keeps_none(
        self, request_for: RequestFor, leave: Callable[[int], None], room: int
    ) -> None:
        request = request_for("run")
        leave(room)
        with pytest.raises((OSError, LaunchFailed)):
            ColdLauncher().start(request)
        taken = [os.dup(0) for _ in range(room)]
        close_all(taken)

        assert len(taken) == room


class TestGivesBack:
    def test_twenty_attempts_leave_no_descriptor(self, request_for: RequestFor) -> None:
        launcher = ColdLauncher()
        counts = []
        for _ in range(20):
            request = request_for("write_much")
            run = launcher.start(request)
            attempt = Attempt(run, request)
            assert attempt.ended().code == 0
            run.close()
            counts.append(open_descriptors())

        assert set(counts) == {counts[0]}

    def test_closed_handle_frees_both_ends(self, start: Start) -> None:
        before = open_descriptors()
        attempt = start("run")
        during = open_descriptors()
        attempt.run.close()

        assert (during - before, open_descriptors() - before) == (3, 0)


class TestThreads:
    def test_trainer_lives_on_when_the_thread_that_started_it_ends(self, start: Start) -> None:
        started: list[Attempt] = []
        thread = threading.Thread(target=lambda: started.append(start("echo")))
        thread.start()
        thread.join()
        attempt = started[0]
        pid = attempt.started().pid
        attempt.run.send(Stop(reason="cancel"))

        assert attempt.line() == {"type": "stop", "reason": "cancel"}
        assert attempt.started().pid == pid
        assert attempt.ended().code == 0

    def test_close_from_several_threads_closes_once(self, start: Start) -> None:
        before = open_descriptors()
        attempt = start("run")
        threads = [threading.Thread(target=attempt.run.close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert open_descriptors() == before
