"""The Docker engine: the one that answers, else one of our own in a folder of its own, else the reason why not."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.compose_test.commands import CommandFailed, Shell

_START_S: Final = 60.0
_STOP_S: Final = 60.0
LOOK_S: Final = 0.5
_TAIL_LINES: Final = 3
# What base images, both stages of both images and the next version take: 15 GB were seen with CPU wheels.
SPACE_BYTES: Final = 25_000_000_000


class Skipped(Exception):
    """The test cannot run on this machine; the text is the reason."""


@dataclass(frozen=True)
class Engine:
    """An engine that answers; `compose` is how Compose is called for it, `ours` that it was started here."""

    shell: Shell
    compose: tuple[str, ...]
    version: str
    ours: bool

    @property
    def compose_version(self) -> str:
        """Its name and version in one line; the older program tells more than one."""
        first = self.shell.run(*self.compose, "version").strip().splitlines()[0]
        return first.removesuffix(", build unknown")


@contextlib.contextmanager
def engine(shell: Shell, root: Path, *, uid: int | None = None) -> Iterator[Engine]:
    """An engine for the time of the block; one that was started for it is stopped afterwards.

    `root` holds the images and volumes of an engine of our own.

    Raises:
        Skipped: there is none, and none can be started.
    """
    path = shell.environ.get("PATH", "")
    if shutil.which("docker", path=path) is None:
        raise Skipped("the program docker is not installed")
    with contextlib.ExitStack() as stack:
        version = server_version(shell)
        if version is None:
            environ = stack.enter_context(_own(shell, root, os.getuid() if uid is None else uid))
            shell = Shell(environ, shell.log, shell.folder)
            ours, version = True, server_version(shell)
        else:
            ours = False
        shell = Shell(_builder(shell), shell.log, shell.folder)
        yield Engine(shell, compose_command(shell), version or "?", ours)


def server_version(shell: Shell) -> str | None:
    """What answers at DOCKER_HOST or at Docker's own place; None: nothing does."""
    try:
        return shell.run("docker", "version", "--format", "{{.Server.Version}}", limit_s=20.0).strip()
    except CommandFailed:
        return None


def compose_command(shell: Shell) -> tuple[str, ...]:
    for command in (("docker", "compose"), ("docker-compose",)):
        if shell.succeeds(*command, "version"):
            return command
    raise Skipped("Compose is not installed, neither as `docker compose` nor as `docker-compose`")


def _builder(shell: Shell) -> Mapping[str, str]:
    """Without buildx the command line refuses to build, unless it is told to use the engine's older builder."""
    if shell.succeeds("docker", "buildx", "version"):
        return shell.environ
    return {**shell.environ, "DOCKER_BUILDKIT": "0", "COMPOSE_DOCKER_CLI_BUILD": "0"}


@contextlib.contextmanager
def _own(shell: Shell, root: Path, uid: int) -> Iterator[Mapping[str, str]]:
    daemon = shutil.which("dockerd", path=shell.environ.get("PATH", ""))
    if daemon is None:
        raise Skipped("no Docker engine answers, and dockerd is not installed, so none can be started")
    if uid != 0:
        raise Skipped("no Docker engine answers, and starting one takes root")
    root.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(root).free
    if free < SPACE_BYTES:
        raise Skipped(f"no Docker engine answers, and for one of our own {root} has {free / 1e9:.0f} GB instead of 25")
    socket, said = root / "docker.sock", root / "dockerd.log"
    command = [
        daemon,
        *("--host", f"unix://{socket}", "--pidfile", str(root / "dockerd.pid")),
        *("--data-root", str(root / "data"), "--exec-root", str(root / "exec")),
        # Compose makes its own networks, so nobody's docker0 is touched.
        *("--bridge", "none"),
    ]
    environ = {**shell.environ, "DOCKER_HOST": f"unix://{socket}"}
    with said.open("ab") as log:
        # A session of its own: Ctrl-C must reach us first, so that it still can take the stack down.
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        _await(process, Shell(environ, shell.log, shell.folder), said)
        yield environ
    finally:
        _stop(process)
        for point in mounts_below(root, Path("/proc/self/mountinfo").read_text(encoding="utf-8")):
            shell.succeeds("umount", "--lazy", point)


def _await(process: "subprocess.Popen[bytes]", shell: Shell, said: Path) -> None:
    deadline = time.monotonic() + _START_S
    while server_version(shell) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            tail = " / ".join(said.read_text(errors="replace").strip().splitlines()[-_TAIL_LINES:])
            raise Skipped(f"no Docker engine answers, and one of our own did not start: {tail}")
        time.sleep(LOOK_S)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def mounts_below(root: Path, mountinfo: str) -> list[str]:
    """Mount points that an engine left in its folder, as its network namespace; the innermost first.

    `mountinfo` is in the format of proc(5).
    """
    points = [line.split()[4].encode().decode("unicode_escape") for line in mountinfo.splitlines()]
    return sorted((point for point in points if Path(point).is_relative_to(root)), reverse=True)
