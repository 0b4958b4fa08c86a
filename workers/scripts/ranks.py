"""The processes that run the command: started, watched and ended; each leads a process group of its own.

A rank dies with the host (PR_SET_PDEATHSIG), and whatever leaves its group becomes the host's child (subreaper): so the
host finds it when the command has ended, and behind the host the launcher does.
"""

import contextlib
import ctypes
import errno
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_SWEEP_S: Final = 2.0
_SWEEP_STEP_S: Final = 0.002
_FIRST_VICTIM: Final = 300
"""Added to a rank's oom_score_adj: where memory runs out, the script goes, and its host can say so."""
_OOM_LIMIT: Final = 1000


class NotStarted(Exception):
    """The command could not be executed; `number` is the errno."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.number = number


@dataclass(frozen=True)
class Exit:
    """How one rank ended: by itself with `code`, or by a signal. `left`: processes that it left running."""

    rank: int
    code: int | None
    signal: int | None
    left: int = 0

    @property
    def good(self) -> bool:
        return self.code == 0


@dataclass(frozen=True)
class Program:
    """What a rank executes: a file, its arguments (the first is its name), its environment, and where."""

    path: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: Path


@dataclass(frozen=True)
class Rank:
    """A started process, and the host's ends of its two pipes."""

    number: int
    pid: int
    output: int
    errors: int

    def signal(self, signum: int) -> None:
        """Signal its group. To be called only before it is reaped, so that the group's id cannot be another's."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signum)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def start(number: int, program: Program) -> Rank:
    """Start a rank; when it returns, the program is running.

    To be called from the main thread, whose end is the host's end, and while there is no other thread.

    Raises:
        NotStarted: the file is not there, or is no program.
        OSError: there can be no more processes.
    """
    host = os.getpid()
    library = ctypes.CDLL(None, use_errno=True)
    output, their_output = os.pipe()
    errors, their_errors = os.pipe()
    told, tell = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        for descriptor in (output, their_output, errors, their_errors, told, tell):
            os.close(descriptor)
        raise
    if pid == 0:
        _become(program, host, library, their_output, their_errors, tell)
    for descriptor in (their_output, their_errors, tell):
        os.close(descriptor)
    with os.fdopen(told, "rb") as pipe:
        problem = pipe.read()
    if problem:
        os.waitpid(pid, 0)
        os.close(output)
        os.close(errors)
        raise NotStarted(int(problem))
    return Rank(number, pid, output, errors)


def _become(program: Program, host: int, library: ctypes.CDLL, output: int, errors: int, tell: int) -> NoReturn:
    """Turn the forked child into the program. Descriptors close at exec, since Python makes them so."""
    try:
        os.setpgid(0, 0)
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != host:
            os._exit(1)
        _die_first()
        # Python ignores two of them, and the host listens to the others; a program expects the default.
        for signum in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(signum, signal.SIG_DFL)
        os.chdir(program.folder)
        nothing = os.open("/dev/null", os.O_RDONLY)
        for source, target in ((nothing, 0), (output, 1), (errors, 2)):
            os.dup2(source, target)
        os.execve(program.path, list(program.arguments), dict(program.environment))  # noqa: S606 - argv, never a shell
    except OSError as error:
        os.write(tell, str(error.errno or errno.EIO).encode())
    except BaseException:  # noqa: BLE001 - the copy of the host ends here, whatever happened
        os.write(tell, str(errno.EINVAL).encode())
    os._exit(127)


def _die_first() -> None:
    with contextlib.suppress(OSError, ValueError):
        score = Path("/proc/self/oom_score_adj")
        score.write_text(str(min(_OOM_LIMIT, int(score.read_text()) + _FIRST_VICTIM)), encoding="ascii")


def reap(ranks: Mapping[int, Rank]) -> list[Exit]:
    """Reap every child that has ended; answers the ends of ranks (by pid), each with its group killed.

    A rank's group is killed while the unreaped child still reserves its id.
    """
    ended: list[Exit] = []
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return ended
        if found is None:
            return ended
        rank = ranks.get(found.si_pid)
        left = 0
        if rank is not None:
            # Its children are the host's by now.
            left = sum(1 for child in _children() if child not in ranks and _is_alive(child))
            rank.signal(signal.SIGKILL)
        _, status = os.waitpid(found.si_pid, 0)
        if rank is not None:
            code = os.waitstatus_to_exitcode(status)
            ended.append(Exit(rank.number, code if code >= 0 else None, -code if code < 0 else None, left))


def end_strays() -> bool:
    """Kill and reap all children that are left, whatever they forked; True when none is left.

    Where the kernel does not list children, or two seconds are not enough, the launcher does it behind the host.
    """
    give_up = time.monotonic() + _SWEEP_S
    while True:
        for child in _children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        if time.monotonic() >= give_up:
            return False
        time.sleep(_SWEEP_STEP_S)


def _children() -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        return [int(child) for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()]
    return []


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


def _prctl(option: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")
