"""One child process: how it is started, and how it is ended with everything in its group."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from workers.processes import read_stat

_SHIM: Final = Path(__file__).with_name("shim.py")
_LOG_LIMIT: Final = 4 * 1024 * 1024
_LOG_KEPT: Final = 1024 * 1024
_TAIL_LINES: Final = 20


@dataclass(frozen=True)
class Program:
    """What to run: `command` begins with an absolute path; `grace_s` is what it gets between SIGTERM and SIGKILL."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    grace_s: float = 10.0


class Child:
    """A running `Program`, leader of its own session, so that Ctrl-C reaches it through its parent alone."""

    def __init__(self, program: Program, *, keep_output: bool = False) -> None:
        """Start it. Only from the main thread: the kernel's notice of a parent's death follows the thread that forked.

        With `keep_output` standard output is a pipe, read by `output()`; else both streams go to the log.
        """
        self.program = program
        _shorten(program.log)
        with program.log.open("ab") as log:
            log.write(f"--- {program.name} started {datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z\n".encode())
            log.flush()
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_SHIM), str(os.getpid()), *program.command],
                env=dict(program.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if keep_output else log,
                stderr=log,
                start_new_session=True,
            )
        stat = read_stat(self.pid)
        self.started = 0 if stat is None else stat.start_time

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> bool:
        """Whether it has ended. The first to notice also ends what is left of its group."""
        if self._process.returncode is not None:
            return True
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if os.waitid(os.P_PID, self.pid, options) is None:
            return False
        # Before reaping: until then the zombie keeps the group's number from being given to others.
        self._kill_group()
        self._process.wait()
        return True

    @property
    def outcome(self) -> str:
        """How it ended, for people."""
        code = self._process.returncode
        if code is None:
            return "is running"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    @property
    def succeeded(self) -> bool:
        return self._process.returncode == 0

    def terminate(self) -> None:
        """Ask it to end; a frozen one is thawed for that."""
        if not self.ended():
            self._process.terminate()
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it and its group at once, frozen or not."""
        if not self.ended():
            self._kill_group()
            self._process.wait()

    def wait(self, timeout_s: float) -> None:
        """Wait for its end, at most so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def first_line(self) -> bytes:
        """Wait for the first line it prints; nothing when it ends without one."""
        return self._process.stdout.readline() if self._process.stdout is not None else b""

    def output(self) -> bytes:
        """All it printed; it must have ended."""
        pipe: IO[bytes] | None = self._process.stdout
        if pipe is None:
            return b""
        with pipe:
            return pipe.read()

    def last_lines(self) -> str:
        """The end of what this run wrote into its log."""
        with self.program.log.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def _shorten(log: Path) -> None:
    """Keep a log from growing over the years: at a start, only the end of a long one is kept."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > _LOG_LIMIT:
            with log.open("rb") as file:
                file.seek(-_LOG_KEPT, os.SEEK_END)
                kept = file.read().partition(b"\n")[2]
            log.write_bytes(kept)
