"""One stack of the shipped compose files under a project name of its own, and what the engine knows of it."""

import contextlib
import json
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from scripts.compose_test.commands import CommandFailed, Shell
from scripts.compose_test.engine import Engine

T = TypeVar("T")
Json = dict[str, Any]

# What runs for good; `secrets` and `migrate` do their work once.
LASTING: Final = ("api", "control", "worker", "postgres", "redis")
BUILT: Final = ("secrets", "migrate", "api", "control", "worker")
_BUILD_S: Final = 3600.0
_UP_S: Final = 300.0
LOOK_S: Final = 0.5


class NotInTime(Exception):
    """Something that was waited for did not come."""


@dataclass(frozen=True)
class Stack:
    """The stack `project`; `variables` are what the compose files read, `override` what this test adds to them."""

    engine: Engine
    root: Path
    project: str
    variables: Mapping[str, str]
    override: Path

    @property
    def shell(self) -> Shell:
        shell = self.engine.shell
        return Shell({**shell.environ, **self.variables}, shell.log, self.root)

    def compose(
        self, *arguments: str, stdin: Path | None = None, into: Path | None = None, limit_s: float = _UP_S
    ) -> str:
        given: dict[str, Path | None] = {"stdin": stdin, "into": into}
        files = ("-f", str(self.root / "docker-compose.yml"), "-f", str(self.override))
        # An empty .env file: what a person wrote for their own stack is none of ours.
        empty = self.override.with_name("empty.env")
        empty.touch()
        places = ("--project-name", self.project, "--project-directory", str(self.root), "--env-file", str(empty))
        return self.shell.run(*self.engine.compose, *places, *files, *arguments, **given, limit_s=limit_s)

    def build(self, *services: str) -> None:
        """Build images; the file of the long talk beside the log grows while it goes on."""
        self.compose("build", *services, into=self.shell.log.with_suffix(".build.log"), limit_s=_BUILD_S)

    def up(self) -> None:
        self.compose("up", "--detach", "--no-build")

    def down(self) -> None:
        """Containers, volumes and networks; harmless when there are none."""
        profiles = ("--profile", "edge", "--profile", "monitoring")
        self.compose(*profiles, "down", "--volumes", "--remove-orphans", "--timeout", "30")

    def container(self, service: str) -> str:
        """Its id, whether it runs or not."""
        labels = (f"com.docker.compose.project={self.project}", f"com.docker.compose.service={service}")
        filters = [part for label in labels for part in ("--filter", f"label={label}")]
        found = self.shell.run("docker", "ps", "--all", "--quiet", "--no-trunc", *filters).split()
        if not found:
            raise LookupError(f"{service} has no container")
        return found[0]

    def state(self, service: str) -> Json:
        """`State` as `docker inspect` tells it."""
        found: Json = self.inspect(service)["State"]
        return found

    def inspect(self, service: str) -> Json:
        (found,) = json.loads(self.shell.run("docker", "inspect", self.container(service)))
        content: Json = found
        return content

    def health(self, service: str) -> str:
        """What its check says (healthy, unhealthy, starting); without a check: running, exited and the like."""
        state = self.state(service)
        return str(state.get("Health", {}).get("Status", state["Status"]))

    def inside(
        self,
        service: str,
        *command: str,
        stdin: Path | bytes | None = None,
        into: Path | None = None,
        options: Sequence[str] = (),
    ) -> str:
        """Run a command in a running container; `options` are those of `docker exec`."""
        given = ("--interactive",) if stdin is not None else ()
        whole = ("docker", "exec", *given, *options, self.container(service), *command)
        return self.shell.run(*whole, stdin=stdin, into=into, limit_s=_UP_S)

    def leftovers(self) -> list[str]:
        """Containers, volumes and networks of this project that are still there."""
        label = ("--filter", f"label=com.docker.compose.project={self.project}", "--quiet")
        kinds = (("container", "ls", "--all"), ("volume", "ls"), ("network", "ls"))
        return [f"{kind[0]} {name}" for kind in kinds for name in self.shell.run("docker", *kind, *label).split()]

    def logs(self, service: str, lines: int = 15) -> str:
        with contextlib.suppress(CommandFailed):
            return self.compose("logs", "--no-color", "--tail", str(lines), service)
        return ""


def until(fact: Callable[[], T | None], what: str, limit_s: float) -> T:
    """Look until `fact` answers something.

    Raises:
        NotInTime: it did not within `limit_s`.
    """
    deadline = time.monotonic() + limit_s
    while (found := fact()) is None:
        if time.monotonic() > deadline:
            raise NotInTime(f"not in {limit_s:g} s: {what}")
        time.sleep(LOOK_S)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def taken_down(stack: Stack) -> Iterator[Stack]:
    """The stack is gone after the block, however that ends; a second Ctrl-C does not keep it."""
    try:
        yield stack
    finally:
        with undisturbed():
            stack.down()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C does nothing meanwhile, neither here nor to the programs that are run."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
