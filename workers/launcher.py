"""A small process between a worker and a trainer: takes the locks, forks the trainer, watches, and proves its end.

Started as `python -P -m workers.launcher --socket FD --worker-pid N` with the trainer's environment, complete and
pinned at exec. Standard library only, one thread, no framework: so the fork is safe, and the trainer is the first to
touch a device.

The socket is AF_UNIX SOCK_SEQPACKET; each packet is one JSON object:

    worker -> launcher   run {entry, locks, until, uid, sandbox} + descriptors [messages, output, assignment]
                         until {boot_ns}        the deadline has moved
                         stop {signal}          signal the trainer's whole group
                         end of file            SIGKILL the group at once, even when it is frozen
    launcher -> worker   busy {lock}            a lock is held by somebody else; nothing was started
                         started {pid, pgid, start_time}
                         ended {code | signal, max_rss_bytes, survivors, deadline}

One run, then the launcher leaves: 0 when no descendant of the trainer is left, else not 0. With a `uid` the trainer
runs as that user, without any capability, and the launcher keeps its own, to be able to end it. With a `sandbox` (the
fields of `workers.sandbox.Sandbox`) it gets no more than that allows.
"""

import contextlib
import ctypes
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from workers.fork_guard import LOOK_MS, ForkGuard
from workers.locks import close_all, take_all
from workers.privileges import become
from workers.processes import kill_user, processes_of, read_stat
from workers.sandbox import NoIsolation, Sandbox, enter

PACKET_LIMIT: Final = 64 * 1024
POLL_LIMIT_MS: Final = 60_000
"""The poll's longest wait: a deadline of years would overflow it."""
KILL_AGAIN_NS: Final = 1_000_000_000
PROOF_NS: Final = 2_000_000_000
"""How long to look for descendants. The kernel took 10 to 45 ms to tear down loader processes behind their leader."""
PROOF_STEP_S: Final = 0.002
NO_PROOF: Final = 3
"""Exit status: something of the trainer may be left."""

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36

# A service manager that stops a container signals every process in it. The worker decides how its trainers end,
# so the launcher does not die of that signal: its death would kill the trainer without a checkpoint.
_IGNORED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Trainer:
    """The forked child, until it is reaped; a pidfd tells when it has ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        stat = read_stat(pid)
        self.start_time = stat.start_time if stat else 0

    def signal(self, signum: int) -> None:
        """Signal the group. Its id cannot be another's: the unreaped child, dead or alive, reserves it."""
        try:
            os.killpg(self.pid, signum)
        except ProcessLookupError:  # forked, but not yet in its own session: it has no descendants
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self.pidfd, signum)


def main(arguments: Sequence[str]) -> int:
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    if os.getppid() != int(options["--worker-pid"]):
        return 0  # the worker died while this interpreter started
    for signum in _IGNORED:
        signal.signal(signum, signal.SIG_IGN)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # whoever leaves the trainer's session becomes our child: found, and killed
    with socket.socket(fileno=int(options["--socket"])) as control:
        packet, descriptors, _, _ = socket.recv_fds(control, PACKET_LIMIT, 3, socket.MSG_CMSG_CLOEXEC)
        return _run(control, json.loads(packet), descriptors) if packet else 0


def _run(control: socket.socket, request: dict[str, Any], descriptors: list[int]) -> int:
    locks, held = take_all(request["locks"])
    if held is not None:
        _send(control, {"type": "busy", "lock": held})
        return 0
    if _boot_ns() >= request["until"]:
        _send(control, _ended(-signal.SIGKILL, max_rss_bytes=0, survivors=False, deadline=True))
        return 0
    launcher = os.getpid()
    pid = os.fork()
    if pid == 0:
        control.close()  # else the worker would not see the launcher's end
        _become_trainer(launcher, request, descriptors)
    # Closed, never LOCK_UN: that would free the locks under the trainer.
    close_all([*locks, *descriptors])
    trainer = Trainer(pid)
    _send(control, {"type": "started", "pid": pid, "pgid": pid, "start_time": trainer.start_time})
    deadline = _watch(control, trainer, request["until"], _guard(request))
    return _settle(control, trainer, request["locks"], request["uid"], deadline=deadline)


def _become_trainer(launcher: int, request: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Turn the forked child into the trainer and run `entry` ("module:function") with its two descriptors."""
    code: object = 1
    try:
        messages, output, assignment = descriptors
        os.setsid()
        _give_up_rights(request, messages)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of user, which would clear it
        if os.getppid() != launcher:
            os._exit(NO_PROOF)  # the launcher died before its death could signal us
        for signum in _IGNORED:
            signal.signal(signum, signal.SIG_DFL)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        module, _, function = request["entry"].partition(":")
        code = getattr(importlib.import_module(module), function)(messages, assignment)
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001 - the process ends here; the log gets the traceback
        sys.excepthook(*sys.exc_info())
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    # No teardown of the interpreter: frameworks hang in it, and nothing of this copy belongs to the trainer.
    os._exit(code if isinstance(code, int) else int(code is not None))


def _give_up_rights(request: dict[str, Any], messages: int) -> None:
    if request["sandbox"] is None:
        if request["uid"] is not None:
            become(request["uid"])
        return
    try:
        enter(Sandbox(*request["sandbox"]), request["uid"])
    except NoIsolation as error:
        last_word = {"type": "failed", "cause": "environment_failed", "message": str(error)}
        os.write(messages, json.dumps(last_word).encode() + b"\n")
        raise SystemExit(1) from error


def _guard(request: dict[str, Any]) -> ForkGuard | None:
    """What counts the processes of a user's code that runs as root, for whom the kernel's limit does not hold."""
    unlimited = request["sandbox"] is not None and request["uid"] is None and os.getuid() == 0
    return ForkGuard(Sandbox(*request["sandbox"]).max_processes) if unlimited else None


def _watch(control: socket.socket, trainer: Trainer, until: int, guard: ForkGuard | None) -> bool:
    """Wait for the trainer's end, or bring it about; True when the deadline did."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(trainer.pidfd, select.POLLIN)
    deadline, give_up = False, 0
    while True:
        wait_ms = max(0, min((until - _boot_ns()) // 1_000_000 + 1, POLL_LIMIT_MS if guard is None else LOOK_MS))
        ready = {descriptor for descriptor, _ in poll.poll(wait_ms)}
        if trainer.pidfd in ready or 0 < give_up <= _boot_ns():
            return deadline
        if guard is not None:
            guard.check()
        if control.fileno() in ready:
            message = _receive(control)
            if message is None:
                trainer.signal(signal.SIGKILL)
                poll.unregister(control)
                give_up = _boot_ns() + PROOF_NS
                until = give_up
            elif message["type"] == "until":
                until = message["boot_ns"]
            else:
                trainer.signal(message["signal"])
        if _boot_ns() >= until:
            trainer.signal(signal.SIGKILL)
            deadline = True
            until = _boot_ns() + KILL_AGAIN_NS


def _settle(control: socket.socket, trainer: Trainer, locks: Sequence[str], uid: int | None, *, deadline: bool) -> int:
    # While the zombie reserves the group's id, and not a moment later.
    trainer.signal(signal.SIGKILL)
    pid, status, usage = os.wait4(trainer.pid, os.WNOHANG)
    if pid == 0:
        return NO_PROOF  # the worker is gone and the trainer cannot be killed (a device's driver holds it)
    survivors = not _all_gone(locks, uid)
    code = os.waitstatus_to_exitcode(status)
    _send(control, _ended(code, max_rss_bytes=usage.ru_maxrss * 1024, survivors=survivors, deadline=deadline))
    return NO_PROOF if survivors else 0


def _all_gone(locks: Sequence[str], uid: int | None) -> bool:
    """Prove that no descendant of the trainer is left: the launcher has no child, and every lock can be taken again.

    Children catch those that left the session, also when they exec'ed and so closed the locks; locks catch whoever
    was handed a descriptor. Children are killed, a lock's holder is not: it may be the device's next, rightful owner.
    A trainer with a user of its own could unlock what it inherited: there it counts too that the user has no process.
    """
    give_up = _boot_ns() + PROOF_NS
    while True:
        if not _kill_children() and (uid is None or not _kill_user(uid)):
            descriptors, held = take_all(locks)
            close_all(descriptors)
            if held is None:
                return True
        if _boot_ns() >= give_up:
            return False
        time.sleep(PROOF_STEP_S)


def _kill_children() -> bool:
    """Kill and reap whatever the launcher inherited; True while something is left."""
    with contextlib.suppress(FileNotFoundError):  # a kernel without CONFIG_PROC_CHILDREN: then they only get counted
        with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123 - see workers.processes
            children = file.read().split()
        for child in children:
            with contextlib.suppress(PermissionError):
                os.kill(int(child), signal.SIGKILL)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _kill_user(uid: int) -> bool:
    """Kill what runs as the trainer's user; True while something is left."""
    kill_user(uid)
    return bool(processes_of(uid))


def _ended(code: int, *, max_rss_bytes: int, survivors: bool, deadline: bool) -> dict[str, Any]:
    end = {"code": code, "signal": None} if code >= 0 else {"code": None, "signal": -code}
    return {"type": "ended", **end, "max_rss_bytes": max_rss_bytes, "survivors": survivors, "deadline": deadline}


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the worker is gone; the poll will say so
        control.send(json.dumps(message).encode())


def _receive(control: socket.socket) -> dict[str, Any] | None:
    try:
        packet = control.recv(PACKET_LIMIT)
    except ConnectionResetError:  # the worker closed with a packet of ours unread
        return None
    message: dict[str, Any] | None = json.loads(packet) if packet else None
    return message


def _boot_ns() -> int:
    # Goes on in suspend, where CLOCK_MONOTONIC stands still: a lease that ran out while asleep has run out.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _prctl(option: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
