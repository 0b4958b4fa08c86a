"""The sweep kills who holds a lock, wherever it came from, and nobody else."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.workers.launcher.attempt import ROOT
from workers.locks import take
from workers.processes import LAUNCH_TAG, kill_launch, launch_of
from workers.sweep import holders, sweep

Hold = Callable[..., "subprocess.Popen[bytes]"]

_HOLD = """
import os, signal, sys
from workers.locks import take
if sys.argv[1] == "lock":
    assert take(sys.argv[2]) is not None
else:
    os.open(sys.argv[2], os.O_RDONLY | os.O_CREAT)
os.write(1, b"ready")
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Hold]:
    """A frozen process in a session of its own that has a file locked, or only open."""
    with ExitStack() as stack:

        def begin(how: str, name: str, *, launch: str | None = None) -> "subprocess.Popen[bytes]":
            environment = {**os.environ, "PYTHONPATH": str(ROOT), **({LAUNCH_TAG: launch} if launch else {})}
            process = subprocess.Popen(
                [sys.executable, "-c", _HOLD, how, str(tmp_path / name)],
                stdout=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stdout is not None
            stack.callback(process.stdout.close)
            assert process.stdout.read(5) == b"ready"
            return process

        yield begin


class TestHolders:
    def test_having_a_file_open_is_not_holding_it(self, hold: Hold, tmp_path: Path) -> None:
        holder, _reader = hold("lock", "a.lock"), hold("open", "a.lock")

        assert holders(tmp_path, ["a.lock"]) == [holder.pid]

    def test_missing_files_and_other_locks_have_none(self, hold: Hold, tmp_path: Path) -> None:
        hold("lock", "a.lock")
        (tmp_path / "b.lock").touch()

        assert holders(tmp_path, ["b.lock", "c.lock"]) == []

    def test_own_process_is_left_out(self, tmp_path: Path) -> None:
        descriptor = take(str(tmp_path / "a.lock"))
        assert descriptor is not None
        try:
            assert holders(tmp_path, ["a.lock"]) == []
        finally:
            os.close(descriptor)


class TestSweep:
    def test_frozen_holder_is_killed_and_its_lock_is_free(self, hold: Hold, tmp_path: Path) -> None:
        holder = hold("lock", "a.lock")

        assert sweep(tmp_path, ["a.lock"]) == [holder.pid]
        descriptor = take(str(tmp_path / "a.lock"))
        assert descriptor is not None
        os.close(descriptor)

    def test_all_of_the_holders_launch_go_with_it(self, hold: Hold, tmp_path: Path) -> None:
        holder, loader = hold("lock", "a.lock", launch="one"), hold("open", "a.lock", launch="one")

        assert sweep(tmp_path, ["a.lock"]) == sorted([holder.pid, loader.pid])

    def test_others_live(self, hold: Hold, tmp_path: Path) -> None:
        hold("lock", "a.lock", launch="one")
        others = [hold("open", "a.lock"), hold("lock", "b.lock"), hold("open", "a.lock", launch="two")]
        sweep(tmp_path, ["a.lock"])

        assert [process.poll() for process in others] == [None, None, None]

    def test_nothing_to_sweep_is_no_error(self, tmp_path: Path) -> None:
        assert sweep(tmp_path / "missing", ["a.lock"]) == []


class TestForeignEnvironment:
    def test_tag_that_is_no_text_is_only_another_tag(self) -> None:
        # Any process of the host may have such a variable; it must not keep the worker from sweeping.
        tag = {os.fsencode(LAUNCH_TAG): b"\xff\xfe"}
        with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=tag) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"up\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"up\n"

            assert launch_of(process.pid) == "\ufffd\ufffd"
            assert kill_launch("0" * 32) == []
            process.stdin.close()
