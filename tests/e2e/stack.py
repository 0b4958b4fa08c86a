"""A whole service of real processes for a test: `trainshed up` in a home of its own, with small intervals.

    with running_stack(home) as stack:
        job = stack.wait(stack.submit(spec))

Children are named redis, api, control and worker. `kill` takes one down and `up` starts it again; `down` keeps it down
for a block by freezing `up` meanwhile; `frozen` stops one without ending it.
"""

import contextlib
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx

from app.cli.up.child import Child, Program
from app.cli.up.home import Home
from app.jobs.states import FINAL
from workers.processes import all_pids

T = TypeVar("T")
Json = dict[str, Any]

# Small, so that faults are noticed within seconds; the lease leaves room for a busy machine.
QUICK: Final[Mapping[str, str]] = {
    "TRAINSHED_HEARTBEAT_S": "0.5",
    "TRAINSHED_LEASE_S": "10",
    "TRAINSHED_LEASE_MARGIN_S": "2",
    "TRAINSHED_CLAIM_S": "5",
    "TRAINSHED_STOP_GRACE_S": "5",
    "TRAINSHED_CONTROL_IDLE_S": "0.2",
    "TRAINSHED_RECONCILE_S": "0.5",
    "TRAINSHED_REPORT_INTERVAL_S": "0.1",
    "TRAINSHED_DEVICES": "cpu",
    "TRAINSHED_SQLITE_SYNCHRONOUS": "normal",
}
# Not TRAINSHED_*: an unknown variable of ours ends a process of ours.
MARK: Final = "STACK_MARK"
LIMIT_S: Final = 90.0
_LOOK_S: Final = 0.05


@dataclass
class Stack:
    """A running service; `client` is authorised as admin."""

    home: Home
    url: str
    key: str
    database_url: str
    mark: str
    up: Child
    client: httpx.Client = field(repr=False)

    def pids(self) -> dict[str, int]:
        """The children that run now, by name."""
        instance = self.home.read_instance()
        return {} if instance is None else {name: process.pid for name, process in instance.children.items()}

    def pid(self, name: str) -> int:
        return self.pids()[name]

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Signal a child; returns the pid that it had."""
        pid = self.pid(name)
        os.kill(pid, number)
        return pid

    def restart(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Kill a child and wait until its successor works; returns the new pid."""
        self.await_successor(name, self.kill(name, number))
        return self.pid(name)

    def await_successor(self, name: str, old: int) -> None:
        self.until(lambda: self.pids().get(name, old) != old or None, f"another {name}")
        self.until(self.is_ready, "the service is ready again")

    @contextlib.contextmanager
    def down(self, name: str) -> Iterator[None]:
        """The child does not exist while the block runs; afterwards it is back."""
        self.up_signal(signal.SIGSTOP)
        try:
            old = self.kill(name)
            self.until(lambda: is_gone(old) or None, f"the end of {name}")
            yield
        finally:
            self.up_signal(signal.SIGCONT)
        self.await_successor(name, old)

    @contextlib.contextmanager
    def frozen(self, name: str) -> Iterator[int]:
        """The child stands still while the block runs; yields its pid."""
        pid = self.kill(name, signal.SIGSTOP)
        try:
            yield pid
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def up_signal(self, number: signal.Signals) -> None:
        os.kill(self.up.pid, number)

    def is_ready(self) -> bool | None:
        """Whether jobs can run: all checks are content and a worker is online; None, not False, as `until` wants it.

        Redis is left out: nothing waits for it, and after a loss the API learns only by the next ring that it is back.
        """
        with contextlib.suppress(httpx.TransportError, KeyError, ValueError):
            checks = self.client.get("/readyz", params={"verbose": "1"}).json()["checks"]
            healthy = all(check["status"] == "ok" for name, check in checks.items() if name != "broker")
            online = any(worker["online"] for worker in self.client.get("/v1/workers").json()["data"])
            return (healthy and online) or None
        return None

    def submit(self, spec: Mapping[str, Any], **headers: str) -> str:
        """Submit a job that must be accepted; its id."""
        answer = self.client.post("/v1/jobs", json=spec, headers=headers)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def job(self, job_id: str) -> Json:
        answer = self.client.get(f"/v1/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        content: Json = answer.json()
        return content

    def wait(self, job_id: str, *states: str, limit_s: float = LIMIT_S) -> Json:
        """The job once it is in one of `states` (else: once it has ended). The API may be away meanwhile."""
        wanted = states or tuple(FINAL)
        last: Json = {}

        def there() -> Json | None:
            nonlocal last
            with contextlib.suppress(httpx.TransportError):
                last = self.job(job_id)
            # An end that nobody waits for will not become anything else.
            assert states == () or last.get("state") not in FINAL or last["state"] in wanted, last
            return last if last.get("state") in wanted else None

        return self.until(there, f"{job_id} is {' or '.join(wanted)}", limit_s, lambda: json.dumps(last)[:2000])

    def events(self, job_id: str) -> list[Json]:
        """The whole journal of a job."""
        found: list[Json] = []
        after = None
        while True:
            params = {"limit": "200", **({} if after is None else {"after": str(after)})}
            page = self.client.get(f"/v1/jobs/{job_id}/events", params=params).json()
            found += page["data"]
            after = page["next_after"]
            if not page["has_more"]:
                return found

    def log(self, name: str) -> str:
        return (self.home.logs / f"{name}.log").read_text(errors="replace")

    def until(
        self, fact: Callable[[], T | None], what: str, limit_s: float = LIMIT_S, detail: Callable[[], str] = str
    ) -> T:
        """Look until `fact` answers something; a miss is explained with the logs' ends."""
        deadline = time.monotonic() + limit_s
        while (found := fact()) is None:
            if time.monotonic() > deadline:
                ends = "\n".join(f"--- {name}\n{self.log(name)[-1500:]}" for name in self.pids())
                raise AssertionError(f"not in {limit_s:g} s: {what}. {detail()}\n{ends}")
            time.sleep(_LOOK_S)
        return found

    def processes(self) -> list[str]:
        """Every living process of this stack: by the mark in its environment, or its home in that or its command."""
        return sorted(f"{pid}: {text}" for pid, text in marked_processes(self.mark, self.home.root).items())


def is_gone(pid: int) -> bool:
    """Whether it has ended; a zombie has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def marked_processes(mark: str, home: Path) -> dict[int, str]:
    """Trainers have no mark, since their environment is made anew; but their work directory is in it."""
    found = {}
    for pid in all_pids():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        ours = mark.encode() in environment or str(home).encode() in environment + command
        if ours and pid != os.getpid() and not is_gone(pid):
            found[pid] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def start_up(home: Path, settings: Mapping[str, str], mark: str, *arguments: str) -> Child:
    """`trainshed up --json` as a child that dies with the test run."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TRAINSHED_")}
    environ = {**ours, **QUICK, **settings, "TRAINSHED_HOME": str(home), MARK: mark}
    command = (sys.executable, "-P", "-m", "app.cli.up", "--json", *arguments)
    return Child(Program("up", command, environ, home.parent / f"{home.name}-up.log"), keep_output=True)


@contextlib.contextmanager
def running_stack(home: Path, settings: Mapping[str, str] | None = None, *, content: bool = True) -> Iterator[Stack]:
    """A service that is ready; stopped at the end, and its processes with it.

    `settings` are further TRAINSHED_* variables. The fixture `stack` is one for the whole run; a test that changes
    settings or ends the service takes its own. `content=False` does not wait until every check of `/readyz` is content,
    for a service that never will be.
    """
    mark = uuid.uuid4().hex
    up = start_up(home, settings or {}, mark)
    try:
        line = up.first_line()
        assert line, f"trainshed up did not start: {up.last_lines()}"
        ready = json.loads(line)
        url = (settings or {}).get("TRAINSHED_DATABASE_URL", f"sqlite:///{home / 'trainshed.db'}")
        headers = {"Authorization": f"Bearer {ready['key']}"}
        with httpx.Client(base_url=ready["url"], headers=headers, timeout=20.0, trust_env=False) as client:
            stack = Stack(Home(home, home / "run"), ready["url"], ready["key"], url, mark, up, client)
            if content:
                stack.until(stack.is_ready, "the service is ready")
            yield stack
    finally:
        end(up)


def end(up: Child) -> None:
    """Stop it in order, and for certain; a frozen one is thawed first."""
    with contextlib.suppress(ProcessLookupError):
        if not up.ended():
            os.kill(up.pid, signal.SIGCONT)
    up.terminate()
    up.wait(LIMIT_S)
    up.kill()
    up.output()
