"""The worker's side of the step: start it, pass on what it says, and leave none of its processes behind."""

import codecs
import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from app.errors import Cause
from workers.environments.errors import EnvironmentFailed
from workers.processes import LAUNCH_TAG, kill_launch, kill_user

WAIT_MS: Final = 2_000
_LOOK_S: Final = 0.2
_GONE_S: Final = 5.0
_LONGEST_LINE: Final = 4_000
_BLOCK: Final = 64 * 1024


def run_step(
    python: Path,
    question: Mapping[str, Any],
    environment: Mapping[str, str],
    heard: Callable[[str], None],
    check: Callable[[], None],
) -> int:
    """Run `workers.environments.step` to its end; its exit code, negative after a signal.

    `heard` gets each line that is not empty; `check` is called a few times in a second, and raises when it must stop.
    All that the environment's launch tag, or the question's user, marks has ended when this returns.

    Raises:
        EnvironmentFailed: it could not be started.
    """
    uid = question["uid"]
    child = _start(python, question, environment)
    try:
        _listen(child, heard, check)
        return child.wait(_GONE_S)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        kill_launch(environment[LAUNCH_TAG], wait_ms=WAIT_MS)
        if uid is not None:
            kill_user(uid, wait_ms=WAIT_MS)
        child.wait(_GONE_S)
        if child.stdout is not None:
            child.stdout.close()


def _start(python: Path, question: Mapping[str, Any], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    try:
        child = subprocess.Popen(
            [str(python), "-P", "-m", "workers.environments.step"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=question["scratch"],
            env=dict(environment),
            start_new_session=True,
        )
    except OSError as error:
        told = f"The installation of packages could not be started: {error.strerror}."
        raise EnvironmentFailed(told, cause=Cause.WORKER_LOST) from error
    if child.stdin is not None:
        with contextlib.suppress(BrokenPipeError), child.stdin:
            child.stdin.write(json.dumps(question).encode())
    return child


def _listen(child: "subprocess.Popen[bytes]", heard: Callable[[str], None], check: Callable[[], None]) -> None:
    """Pass on its lines until it has ended, or nobody has its output any more."""
    if child.stdout is None:
        return
    decoder, rest = codecs.getincrementaldecoder("utf-8")("replace"), ""
    while True:
        check()
        if not select.select([child.stdout], [], [], _LOOK_S)[0]:
            if child.poll() is not None:  # what it started may keep the pipe open
                break
            continue
        block = os.read(child.stdout.fileno(), _BLOCK)
        rest += decoder.decode(block, final=not block)
        *lines, rest = rest.replace("\r", "\n").split("\n")
        for line in lines if block else [*lines, rest]:
            if line.strip():
                heard(line[:_LONGEST_LINE].rstrip())
        if not block:
            break
        rest = rest[:_LONGEST_LINE]
