"""What the launcher runs in the tests instead of a trainer: each behaves badly in one way.

An entry point says a line on the message socket when it has come so far that the test may go on.
"""

import array
import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path


def say(messages: int, **facts: object) -> None:
    os.write(messages, json.dumps({"pid": os.getpid(), **facts}).encode() + b"\n")


def wait_for_ever() -> None:
    while True:
        signal.pause()


def seed_of(assignment: int) -> int:
    with open(assignment) as file:
        return int(json.load(file)["seed"])


def open_descriptors() -> dict[str, str]:
    found = {}
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists them
            found[path.name] = str(path.readlink())
    return found


def exit_with_seed(_messages: int, assignment: int) -> int:
    return seed_of(assignment)


def raise_system_exit(_messages: int, assignment: int) -> int:
    sys.exit(seed_of(assignment))


def raise_error(_messages: int, _assignment: int) -> int:
    raise RuntimeError("this entry point is broken")


def end_by_term(_messages: int, _assignment: int) -> int:
    os.kill(os.getpid(), signal.SIGTERM)
    return 0


def run(messages: int, _assignment: int) -> int:
    say(messages)
    wait_for_ever()
    return 0


def freeze(messages: int, _assignment: int) -> int:
    say(messages)
    os.kill(os.getpid(), signal.SIGSTOP)
    wait_for_ever()
    return 0


def ignore_term(messages: int, _assignment: int) -> int:
    signal.signal(signal.SIGTERM, lambda _signum, _frame: say(messages, ignored="TERM"))
    say(messages)
    wait_for_ever()
    return 0


def fork_and_ignore_term(messages: int, _assignment: int) -> int:
    signal.signal(signal.SIGTERM, lambda _signum, _frame: say(messages, ignored="TERM"))
    os.fork()
    say(messages)
    wait_for_ever()
    return 0


def fork_children(messages: int, _assignment: int) -> int:
    """Three generations in one group, all of them with the locks, and the youngest frozen."""
    if os.fork() == 0:
        frozen = os.fork() == 0
        say(messages)
        if frozen:
            os.kill(os.getpid(), signal.SIGSTOP)
        wait_for_ever()
    say(messages)
    wait_for_ever()
    return 0


def leave_daemon(messages: int, _assignment: int) -> int:
    """A daemon by the book: forked twice, with a session of its own, so no signal to the group reaches it."""
    _daemonise(messages)
    return 0


def leave_executed_daemon(messages: int, _assignment: int) -> int:
    """The same, but it exec'ed another program, which closed its copies of the locks."""
    _daemonise(messages, execute=True)
    return 0


def keep_daemon(messages: int, _assignment: int) -> int:
    _daemonise(messages, execute=True)
    say(messages)
    wait_for_ever()
    return 0


def _daemonise(messages: int, *, execute: bool = False) -> None:
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            say(messages)
            if execute:  # the pipe is close-on-exec: its end says that the exec has happened
                os.execv("/bin/sleep", ["sleep", "600"])  # noqa: S606 - no shell is the point
            os.close(write)
            wait_for_ever()
        os._exit(0)
    os.close(write)
    os.read(read, 1)


def write_much(_messages: int, _assignment: int) -> int:
    sys.stdout.write("o" * 50_000)
    sys.stderr.write("e" * 50_000)
    return 0


def fill_memory(_messages: int, assignment: int) -> int:
    return len(b"\1" * seed_of(assignment)) & 0


def outlive(_messages: int, assignment: int) -> int:
    """End by itself once the boot clock shows the seed."""
    until = seed_of(assignment)
    while (left := until - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) > 0:
        time.sleep(left / 1e9)
    return 0


def describe(messages: int, _assignment: int) -> int:
    variables = Path("/proc/self/environ").read_text().split("\0")
    say(
        messages,
        environment=dict(line.split("=", 1) for line in variables if line),
        descriptors=open_descriptors(),
        session=os.getsid(0),
        group=os.getpgid(0),
        directory=str(Path.cwd()),
        path=sys.path,
        term=signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
    )
    return 0


def echo(messages: int, _assignment: int) -> int:
    """Answer one message."""
    end = socket.socket(fileno=messages)
    end.sendall(end.recv(4096))
    return 0


def give_lock_away(messages: int, _assignment: int) -> int:
    """Send a copy of a lock to a process that is no descendant."""
    lock = next(int(name) for name, target in open_descriptors().items() if "/dev-" in target)
    end = socket.socket(fileno=messages)
    end.sendmsg([b"lock\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [lock]))])
    return 0


def tell_sandbox(messages: int, _assignment: int) -> int:
    """What code of a user's finds; SO_PEERCRED would tell the launcher's user, so it asks itself."""
    mask = os.umask(0)
    say(
        messages,
        uid=os.getuid(),
        umask=mask,
        temporary=os.environ["TMPDIR"],
        is_folder=Path(os.environ["TMPDIR"]).is_dir(),
        networks=sorted(name for _, name in socket.if_nameindex()),
        privileges=privileges(),
    )
    return 0


def tell_privileges(messages: int, _assignment: int) -> int:
    say(messages, privileges=privileges())
    return 0


def privileges() -> list[str]:
    """Whether it can get no new ones: "1" in a sandbox."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return [line.split()[1] for line in lines if line.startswith("NoNewPrivs")]


def fork_many(messages: int, _assignment: int) -> int:
    """Children that wait for their end, up to forty; where one is refused, the code of that is what it leaves with."""
    say(messages)
    for _ in range(40):
        if os.fork() == 0:
            wait_for_ever()
    wait_for_ever()
    return 0
