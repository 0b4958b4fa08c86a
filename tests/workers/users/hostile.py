"""Entry points of trainers with a user of their own: what one sees, and what a hostile one tries.

Each says a line on the message socket when it has come so far that the test may go on.
"""

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.workers.launcher.entry_points import open_descriptors, say, wait_for_ever

LIMIT_S = 60.0
_PR_GET_PDEATHSIG = 2
_PR_GET_DUMPABLE = 3
_PR_GET_NO_NEW_PRIVS = 39


def question(assignment: int) -> dict[str, Any]:
    """What the test wants tried: the assignment carries it where a real one names the data."""
    with open(assignment) as file:
        asked: dict[str, Any] = json.loads(json.load(file)["table"]["path"])
    return asked


def describe(messages: int, _assignment: int) -> int:
    library, signal_of_parent = ctypes.CDLL(None), ctypes.c_int()
    library.prctl(_PR_GET_PDEATHSIG, ctypes.byref(signal_of_parent), 0, 0, 0)
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    Path("made").write_text("by the trainer")
    Path("folder").mkdir()
    say(
        messages,
        users=os.getresuid(),
        groups=[*os.getresgid(), *os.getgroups()],
        capabilities=[status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")],
        no_new_privileges=library.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0),
        dumpable=library.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0),
        parent_death_signal=signal_of_parent.value,
        umask=status["Umask"].strip(),
        core=resource.getrlimit(resource.RLIMIT_CORE),
        processes=resource.getrlimit(resource.RLIMIT_NPROC)[0],
        directory=str(Path.cwd()),
        variables={name: os.environ.get(name) for name in ("HOME", "TMPDIR", "USER", "LOGNAME")},
        own_environment=len(Path("/proc/self/environ").read_bytes()) > 0,
        made={name: _group_and_mode(Path(name)) for name in ("made", "folder")},
    )
    return 0


def _group_and_mode(path: Path) -> list[int]:
    facts = path.stat()
    return [facts.st_gid, stat.S_IMODE(facts.st_mode)]


def spy(messages: int, assignment: int) -> int:
    """Try to read each path, and to signal each process."""
    asked = question(assignment)
    read, signalled = [], []
    for path in asked["read"]:
        with suppress(OSError):
            if Path(path).is_dir():
                list(Path(path).iterdir())
            else:
                Path(path).read_bytes()
            read.append(path)
    for pid in asked["signal"]:
        with suppress(OSError):
            os.kill(pid, 0)
            signalled.append(pid)
    say(messages, read=read, signalled=signalled)
    wait_for_ever()
    return 0


def plant(messages: int, assignment: int) -> int:
    """Leave a work folder full of traps, and files elsewhere."""
    asked = question(assignment)
    secret, elsewhere = asked["secret"], asked["elsewhere"]
    Path("good").write_text("good")
    Path("link").symlink_to(secret)
    Path("root").symlink_to("/")
    os.mkfifo("fifo")
    with socket.socket(socket.AF_UNIX) as end:
        end.bind("socket")
    Path("original").write_text("twice")
    os.link("original", "second name")
    with suppress(OSError):
        os.link(secret, "hard link")  # where fs.protected_hardlinks is 0
    Path("closed/inside").mkdir(parents=True)
    Path("closed/inside/file").write_text("hidden")
    for path in ("closed/inside/file", "closed/inside", "closed"):
        Path(path).chmod(0)
    _deep(1500)
    with Path("holes").open("wb") as file, suppress(OSError):
        file.truncate(1 << 60)
    for folder in elsewhere:
        Path(f"{folder}/left-{os.getpid()}/below").mkdir(parents=True)
        Path(f"{folder}/left-{os.getpid()}.file").write_text("left")
    say(messages, size=Path("holes").stat().st_size)
    Path().chmod(0)
    return 0


def _deep(levels: int) -> None:
    start = os.open(".", os.O_RDONLY)
    for _ in range(levels):
        Path("d" * 50).mkdir()
        os.chdir("d" * 50)
    Path("bottom").write_text("deep")
    os.fchdir(start)
    os.close(start)


def unlock_and_hide(messages: int, _assignment: int) -> int:
    """Free the inherited locks, and leave a daemon of another session without them."""
    for number, target in open_descriptors().items():
        if "/locks/" in target:
            fcntl.flock(int(number), fcntl.LOCK_UN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(3, messages)
            say(messages)
            wait_for_ever()
        os._exit(0)
    os.wait()
    say(messages)
    wait_for_ever()
    return 0


def multiply(messages: int, _assignment: int) -> int:
    """Fork without end, up to a bound, each child again; should nobody end them, they do it themselves."""
    resource.setrlimit(resource.RLIMIT_NPROC, (40, 40))
    say(messages)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    give_up = time.monotonic() + LIMIT_S
    while time.monotonic() < give_up:
        with suppress(OSError):
            if os.fork() == 0:
                os.setsid()
    os._exit(0)


def zombie_with_a_thread(messages: int, _assignment: int) -> int:
    """The first thread leaves, and the kernel calls the process a zombie, although another one goes on."""
    if os.fork() == 0:
        os.setsid()
        threading.Thread(target=_say_and_wait, args=(messages,)).start()
        ctypes.CDLL(None).pthread_exit(None)
    wait_for_ever()
    return 0


def _say_and_wait(messages: int) -> None:
    while " Z " not in Path(f"/proc/{os.getpid()}/stat").read_text():
        time.sleep(0.01)
    say(messages)
    wait_for_ever()


def checkpoints(messages: int, assignment: int) -> int:
    """Folders as checkpoints are announced, some of them traps, while the trainer goes on."""
    secret = question(assignment)["secret"]
    for name in ("good", "linked", "piped", "closed", "doubled"):
        Path(f"checkpoints/{name}").mkdir(parents=True)
        Path(f"checkpoints/{name}/weights").write_text(name)
    Path("checkpoints/linked/state.json").symlink_to(secret)
    os.mkfifo("checkpoints/piped/state.json")
    os.link("checkpoints/doubled/weights", "checkpoints/doubled/again")
    Path("checkpoints/by-a-link").symlink_to("good")
    Path("checkpoints/closed").chmod(0)
    held = os.open("checkpoints/good", os.O_RDONLY)
    say(messages)
    answer = json.loads(socket.socket(fileno=os.dup(messages)).recv(4096))
    changed = []
    for path in (answer["taken"], f"/proc/self/fd/{held}"):
        with suppress(OSError):
            Path(path, "planted").write_text("planted")
            changed.append(path)
    say(messages, changed=changed)
    wait_for_ever()
    return 0


def leave_memory(messages: int, _assignment: int) -> int:
    """Leave shared memory, a queue and semaphores that no process has."""
    library = ctypes.CDLL(None)
    private, create = 0, 0o1000 | 0o666
    shared = library.shmget(private, 1 << 20, create)
    made = [shared, library.msgget(private, create), library.semget(private, 1, create)]
    say(messages, made=made)
    return 0


def use_setuid_program(messages: int, assignment: int) -> int:
    """A program that belongs to the worker's user and has the setuid bit gives nothing."""
    shown = subprocess.run([question(assignment)["program"], "-u"], capture_output=True, check=False)
    say(messages, user=shown.stdout.decode().strip())
    return 0
