"""The folder of one `up`: who holds it, what runs in it, and what a dead holder left."""

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from app.errors import TrainshedError
from workers.processes import await_end, kill_process, open_process, read_stat

_PRIVATE: Final = 0o700


class HomeInUse(TrainshedError):
    """Another `up` holds this home; `listens` is where its API answers, as far as known."""

    code = "home_in_use"

    def __init__(self, root: Path, instance: "Instance | None") -> None:
        self.listens = instance.url if instance else ""
        where = f" and listens on {self.listens}" if self.listens else ""
        who = f" (process {instance.pid})" if instance else ""
        super().__init__(
            f"A trainshed is already up in {root}{who}{where}. Use that one, or start a second one in a folder of its "
            "own, for example: trainshed up --home /tmp/second"
        )


class HomeNotUsable(TrainshedError):
    code = "home_not_usable"


@dataclass(frozen=True)
class ProcessName:
    """A pid with its start time in clock ticks since boot: together they name one process of one boot."""

    pid: int
    started: int


@dataclass(frozen=True)
class Instance:
    """What a running `up` writes about itself, for the next one and for tools."""

    pid: int
    started: int
    boot_id: str
    url: str = ""
    children: Mapping[str, ProcessName] = field(default_factory=dict)


@dataclass(frozen=True)
class Home:
    """`root` keeps what lasts, `run` what belongs to running processes: sockets, locks, work folders."""

    root: Path
    run: Path

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def client_file(self) -> Path:
        return self.root / "client.json"

    @property
    def state_file(self) -> Path:
        return self.run / "up.json"

    @property
    def api_file(self) -> Path:
        """Where the API writes its address once it listens."""
        return self.run / "api.url"

    def make(self) -> None:
        """Make the folders, for this user alone.

        Raises:
            HomeNotUsable: one cannot be made, or belongs to somebody else.
        """
        for folder in (self.root, self.run, self.logs):
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
                owner = folder.stat().st_uid
                if owner != os.geteuid():
                    raise HomeNotUsable(f"{folder} belongs to user {owner}, not to you; choose another --home.")
                folder.chmod(_PRIVATE)
            except OSError as error:
                raise HomeNotUsable(f"{folder} cannot be used: {error.strerror}. Choose another --home.") from error

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Be the only `up` here. The kernel frees the lock with the process, however that ends.

        Raises:
            HomeInUse: another one holds it.
        """
        descriptor = os.open(self.root / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HomeInUse(self.root, self.read_instance()) from None
            yield
        finally:
            os.close(descriptor)

    def read_instance(self) -> Instance | None:
        """What the last `up` here wrote; None when it left nothing readable."""
        try:
            content = json.loads(self.state_file.read_text(encoding="utf-8"))
            children = {name: ProcessName(**process) for name, process in content.pop("children").items()}
            return Instance(**content, children=children)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def write_instance(self, url: str, children: Mapping[str, ProcessName]) -> None:
        stat = read_stat(os.getpid())
        started = 0 if stat is None else stat.start_time
        text = json.dumps(asdict(Instance(os.getpid(), started, boot_id(), url, children)))
        fresh = self.state_file.with_suffix(".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(self.state_file)

    def forget_instance(self) -> None:
        self.state_file.unlink(missing_ok=True)
        self.api_file.unlink(missing_ok=True)


def boot_id() -> str:
    """Which boot of this machine it is: start times mean nothing in another one."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def sweep(home: Home, grace_s: float) -> list[str]:
    """End what a dead `up` left running here, and answer the names.

    Only a process with the pid and the start time that were written down is touched. The kernel has sent each of them
    SIGTERM when their parent died, so they get `grace_s` in all to finish; SIGKILL ends the others.
    """
    instance = home.read_instance()
    if instance is None or instance.boot_id != boot_id():
        return []
    until = time.monotonic() + grace_s
    left = []
    for name, process in reversed(list(instance.children.items())):
        descriptor = open_process(process.pid, process.started)
        if descriptor is None:
            continue
        left.append(name)
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            # A frozen one can then still end in good order.
            signal.pidfd_send_signal(descriptor, signal.SIGCONT)
            if not await_end(descriptor, max(round((until - time.monotonic()) * 1000), 0)):
                _kill_session(process)
        except ProcessLookupError:
            continue
        finally:
            os.close(descriptor)
    return left


def _kill_session(process: ProcessName) -> None:
    """The leader was checked to live a moment ago, and a living leader's group cannot be anybody else's."""
    stat = read_stat(process.pid)
    if stat is not None and stat.start_time == process.started and stat.pgid == process.pid:
        os.killpg(process.pid, signal.SIGKILL)
    kill_process(process.pid, process.started, wait_ms=1000)
