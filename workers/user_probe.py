"""What a trainer's user sees of this host, found out by becoming one: what is closed to it, and what it needs.

`python -P -m workers.user_probe` is the child: it reads one JSON object, becomes the user, tries each path, answers
with one line, and waits to be killed, as a trainer would be. The child's side imports the standard library only.
"""

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from workers.ownership import remove_tree
from workers.privileges import become
from workers.processes import kill_user, processes_of
from workers.trainer_user import WAIT_MS, NoUserFree, TrainerUsers

TIMEOUT_S: Final = 30.0
FOLDER: Final = ".probe"
_WRITTEN: Final = "written"


@dataclass(frozen=True)
class Sight:
    """`open`: of the paths that must be closed those that can be read; `closed`: of the needed ones those that cannot.

    `fault`: why trainers cannot have users of their own here at all, or None.
    """

    uid: int
    open: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    fault: str | None = None


def look(
    users: TrainerUsers,
    *,
    secret: Sequence[Path] = (),
    needed: Sequence[Path] = (),
    python: Path = Path(sys.executable),
    timeout_s: float = TIMEOUT_S,
) -> Sight:
    """Give a user to a child in a work folder of its own, and see what it can do, and that it can be ended.

    Never raises. The child has `timeout_s` for its answer, and as much for its end.
    """
    try:
        uid = users.take()
    except (NoUserFree, OSError) as error:
        return Sight(users.uids[0], fault=str(error))
    folder = users.work / FOLDER
    try:
        remove_tree(folder)
        folder.mkdir(mode=0o700)
        users.hand_over(folder, uid)
        answer = _ask(python, folder, {"uid": uid, "secret": _texts(secret), "needed": _texts(needed)}, timeout_s)
        users.take_back(folder, uid, kill=True)
        fault = None if (folder / _WRITTEN).read_text() == str(uid) else "what it wrote cannot be read"
        return Sight(uid, tuple(answer["open"]), tuple(answer["closed"]), fault)
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        with contextlib.suppress(OSError):
            users.take_back(folder, uid, kill=True)
        return Sight(uid, fault=f"a process of user {uid} could not be tried: {error}")
    finally:
        remove_tree(folder)


def _texts(paths: Sequence[Path]) -> list[str]:
    return [str(path) for path in paths]


def _ask(python: Path, folder: Path, question: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """Raises OSError for what keeps a trainer from starting, from being seen, or from being killed."""
    command = [str(python), "-P", "-m", "workers.user_probe"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # nothing is left to be written to a child that has gone
        cwd=folder,
        start_new_session=True,
        env={name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH") if name in os.environ},
    ) as child:
        try:
            line, complaint = _first_line(child, question, timeout_s)
            if not line:
                raise OSError(complaint.strip().rpartition("\n")[2] or "it said nothing")
            answer: dict[str, Any] = json.loads(line)
            if child.pid not in processes_of(question["uid"]):
                raise OSError("its processes cannot be seen in /proc (is it mounted with hidepid?)")
            kill_user(question["uid"], wait_ms=WAIT_MS)
            if child.wait(timeout_s) != -signal.SIGKILL:
                raise OSError("it could not be killed")
        finally:
            child.kill()
    return answer


def _first_line(child: "subprocess.Popen[bytes]", question: dict[str, Any], timeout_s: float) -> tuple[bytes, str]:
    assert child.stdin is not None  # noqa: S101 - for the type checker: they are pipes
    assert child.stdout is not None  # noqa: S101
    assert child.stderr is not None  # noqa: S101
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(json.dumps(question).encode() + b"\n")
    if not select.select([child.stdout], [], [], timeout_s)[0]:
        raise OSError(f"it did not answer within {timeout_s:g} s")
    line = child.stdout.readline()
    return line, "" if line else child.stderr.read().decode(errors="replace")


def main() -> None:
    question = json.loads(sys.stdin.readline())
    become(question["uid"])
    importlib.import_module("colorsys")  # nothing has loaded it yet: can this user read the interpreter's own modules?
    Path(_WRITTEN).write_text(str(os.getuid()), encoding="ascii")
    answer = {
        "open": [path for path in question["secret"] if _may(path, any)],
        "closed": [path for path in question["needed"] if not _may(path, all)],
    }
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()  # until it is killed, or whoever asked has gone


def _may(path: str, enough: Callable[[Iterable[bool]], bool]) -> bool:
    """Whether a file can be opened, or a folder be listed and entered: any of the two, or all."""
    if os.path.isdir(path):  # noqa: PTH112 - the child imports little
        return enough(os.access(path, mode) for mode in (os.R_OK, os.X_OK))
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
