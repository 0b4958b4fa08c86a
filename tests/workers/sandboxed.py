"""Tries, in a process of its own, what code can still do in a sandbox: entering one is for good."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from workers.sandbox import FILTER, NAMESPACE, USER_NAMESPACE, Sandbox
from workers.sandbox_probe import isolation

ROOT: Final = Path(__file__).parents[2]
NOBODY: Final = 65_534
OWN_USER: Final = 64_321
GIB: Final = 1024**3

# Modules first: another user may not be able to read them. The parent is what the worker is to a trainer.
_PROGRAM: Final = """
import ctypes, encodings.idna, errno, json, mmap, os, resource, signal, socket, sys, threading, time
from workers import call_filter, landlock, process_counts, sandbox
from workers.privileges import drop_capabilities
told = json.loads(sys.argv[1])
os.chdir(told["folder"])
if told["as_nobody"]:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
if told["without_namespaces"]:
    drop_capabilities()
    call_filter.install(call_filter.no_dangerous_calls(unix_sockets_only=False))
parent = os.getpid()
pid = os.fork()
if pid:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255)


def tried(work):
    try:
        return work()
    except OSError as error:
        return errno.errorcode[error.errno]


def called(name, *arguments):
    ctypes.set_errno(0)
    answer = getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments)
    return answer if answer >= 0 else errno.errorcode[ctypes.get_errno()]


try:
    how = sandbox.enter(sandbox.Sandbox(*told["sandbox"]), told["uid"])
except sandbox.NoIsolation as error:
    print(json.dumps(str(error)))
    sys.exit()
print(json.dumps({LINES}))
sys.stdout.flush()
os._exit(0)
"""


@dataclass(frozen=True)
class Who:
    """As whom the code is started, and as whom it then runs."""

    as_nobody: bool = False
    uid: int | None = None
    without_namespaces: bool = False


WORKER: Final = Who()
ORDINARY: Final = Who(as_nobody=os.geteuid() == 0)
OWN: Final = Who(uid=OWN_USER)
SHUT_IN: Final = Who(as_nobody=os.geteuid() == 0, without_namespaces=True)
EVERYBODY: Final = [
    pytest.param(WORKER, id="as the worker"),
    pytest.param(ORDINARY, id="as an ordinary user"),
    pytest.param(
        OWN,
        id="as a user of its own",
        marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
    ),
    pytest.param(SHUT_IN, id="where no namespace can be made"),
]


def sandboxed(
    expression: str,
    folder: Path,
    who: Who = WORKER,
    *,
    network: bool = False,
    needs_loopback: bool = False,
    max_file_bytes: int = GIB,
    max_processes: int = 200,
) -> Any:
    """What a Python expression is worth there; `how` in it is what `enter` answered."""
    folder.chmod(0o777)
    told = {
        "as_nobody": who.as_nobody,
        "without_namespaces": who.without_namespaces,
        "uid": who.uid,
        "folder": str(folder),
        "sandbox": Sandbox(network, needs_loopback, max_file_bytes, max_processes),
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.replace("{LINES}", expression), json.dumps(told)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def has_namespaces() -> bool:
    """Whether this machine lets us make namespaces at all; a container by Docker's defaults does not."""
    return isolation() in (NAMESPACE, USER_NAMESPACE)


def means(who: Who) -> set[str]:
    """How the network may be shut off for them."""
    return {FILTER} if who.without_namespaces or not has_namespaces() else {NAMESPACE, USER_NAMESPACE, FILTER}
