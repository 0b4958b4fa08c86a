"""Makes one environment: the step's process from start to end, as a trainer's user where there are users."""

import contextlib
import json
import os
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.clock import Clock
from app.errors import Cause
from app.logs import without_secrets
from workers.environments.child import WAIT_MS, run_step
from workers.environments.errors import EnvironmentCancelled, EnvironmentFailed
from workers.environments.pip_output import notice_of, reason_of, shown
from workers.environments.plan import Plan
from workers.environments.publishing import publish
from workers.environments.shelf import Shelf
from workers.environments.sizes import disk_bytes
from workers.environments.step import DISK_FULL, TOO_LARGE
from workers.processes import LAUNCH_TAG, kill_launch, kill_user
from workers.stopping import SECOND_NS
from workers.trainer_user import NoUserFree, TrainerUsers

_KEPT_LINES: Final = 60
_SHOWN_LINES: Final = 20
_MB: Final = 1024 * 1024
_WANTED: Final = "requirements.txt"
_BOUNDS: Final = "constraints.txt"
_PASSED_ON: Final = ("LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "TZ")
# How to reach an index, and to trust it; nothing else of the worker's environment.
_REACHING: Final = (
    "ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "all_proxy", "https_proxy", "http_proxy", "no_proxy",
    "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE",
    "PIP_CERT", "PIP_CLIENT_CERT", "PIP_DEFAULT_TIMEOUT", "PIP_PROXY", "PIP_RETRIES", "PIP_TRUSTED_HOST",
)  # fmt: skip
# Where packages come from, as long as no setting of ours says so.
_INDEX: Final = ("PIP_CONFIG_FILE", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_NO_INDEX")
_OPTIONS: Final = (
    "--no-input", "--no-color", "--no-cache-dir", "--disable-pip-version-check", "--progress-bar", "off",
    "--no-warn-script-location", "--root-user-action", "ignore",
)  # fmt: skip
# Run by the new interpreter: what it has of its own, and which versions it sees of what must be the base's.
_ANSWER: Final = "trainshed: "
_QUESTION: Final = """
import json, re, sys
from importlib import metadata
own = {}
for found in metadata.distributions(path=[p for p in sys.path if p.startswith(sys.prefix)]):
    if (found.read_text("INSTALLER") or "").strip() != "trainshed":
        own[re.sub(r"[-_.]+", "-", found.metadata["Name"] or "").lower()] = found.version
print("MARK" + json.dumps([own, {name: metadata.version(name) for name in sys.argv[1:]}]))
""".replace("MARK", _ANSWER)


@dataclass(frozen=True)
class Limits:
    """Of one installation: seconds, bytes on the disk, and bytes that must stay free there."""

    timeout_s: float
    most_bytes: int
    reserve_bytes: int


@dataclass(frozen=True)
class Listener:
    """Who is told: notices by code and sentence, pip's lines; and who may call it off."""

    say: Callable[[str, str], None]
    log: Callable[[str], None]
    cancelled: Callable[[], bool]


@dataclass(frozen=True)
class Installed:
    """What the new environment has of its own, and what it takes."""

    packages: Mapping[str, str]
    bytes: int


@dataclass
class Installation:
    """One environment that is being made; `installer` is the Python that has pip. `run` may be called once."""

    plan: Plan
    shelf: Shelf
    limits: Limits
    listener: Listener
    users: TrainerUsers | None
    clock: Clock
    environ: Mapping[str, str]
    installer: str
    launch: str = field(default_factory=lambda: secrets.token_hex(16))
    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))
    _started_ns: int = 0

    def run(self) -> Installed:
        """Make it, and see that it works; the folder is then this process' own, without a mark yet.

        Raises:
            EnvironmentFailed: why there is none.
            EnvironmentCancelled: somebody wanted it no more.
        """
        self._started_ns = self.clock.boot_ns()
        key = self.plan.key
        self.shelf.begin(key, self.launch)
        with self._user() as uid:
            self._install(uid)
            packages = self._prove(uid)
        publish(self.shelf.folder_of(key), uid)
        return Installed(packages, disk_bytes(str(self.shelf.folder_of(key))))

    @contextlib.contextmanager
    def _user(self) -> Iterator[int | None]:
        """A trainer's user that owns the folders; none of its processes is left afterwards."""
        if self.users is None:
            try:
                yield None
            finally:
                kill_launch(self.launch, wait_ms=WAIT_MS)
            return
        try:
            uid = self.users.take()
        except NoUserFree as error:
            told = "No user was free on this host to install packages as: TRAINSHED_TRAINER_UIDS is too small."
            raise EnvironmentFailed(told, cause=Cause.WORKER_LOST) from error
        scratch = self.shelf.scratch_of(self.plan.key)
        try:
            self.users.hand_over(scratch, uid)
            self.users.hand_over(self.shelf.folder_of(self.plan.key), uid)
            yield uid
        finally:
            kill_user(uid, wait_ms=WAIT_MS)
            self.users.take_back(scratch, uid, kill=True)

    def _install(self, uid: int | None) -> None:
        plan, folder = self.plan, self.shelf.folder_of(self.plan.key)
        files = {
            _WANTED: "".join(f"{line}\n" for line in plan.requirements.lines),
            _BOUNDS: "".join(f"{line}\n" for line in plan.constraints),
        }
        pip = [self.installer, "-I", "-m", "pip", "--python", str(folder / "bin" / "python"), "install", *_OPTIONS]
        command = [*pip, "--requirement", _WANTED, "--constraint", _BOUNDS]
        making = {"paths": plan.base.paths, "scripts": plan.base.scripts, "aliases": plan.aliases}
        code = self._step(uid, files=files, make=making, command=command, heard=self._hear)
        if code:
            raise self._failure(code, "The requirements could not be installed. ")

    def _prove(self, uid: int | None) -> dict[str, str]:
        """Start the new interpreter once, as the user that its packages may act as."""
        answers: list[str] = []
        frozen = self.plan.frozen
        python = str(self.shelf.interpreter_of(self.plan.key))
        code = self._step(uid, command=[python, "-P", "-c", _QUESTION, *frozen], heard=answers.append)
        said = [line.removeprefix(_ANSWER) for line in answers if line.startswith(_ANSWER)]
        if code in (TOO_LARGE, DISK_FULL):
            raise self._failure(code, "")
        if not said:
            told = "The packages were installed, and then Python did not start with them."
            raise EnvironmentFailed(told, answers[-_SHOWN_LINES:])
        packages, versions = json.loads(said[-1])
        changed = [name for name, version in frozen.items() if versions[name] != version]
        if changed:
            told = f"The requirements replace {', '.join(changed)} of this host, which must stay as it is."
            raise EnvironmentFailed(told, list(self._lines)[-_SHOWN_LINES:])
        found: dict[str, str] = packages
        return found

    def _step(
        self,
        uid: int | None,
        *,
        command: Sequence[str],
        heard: Callable[[str], None],
        files: Mapping[str, str] | None = None,
        make: Mapping[str, object] | None = None,
    ) -> int:
        """Run the step's process to its end; its exit code."""
        key = self.plan.key
        question = {
            "uid": uid,
            "parent": os.getpid(),
            "folder": str(self.shelf.folder_of(key)),
            "scratch": str(self.shelf.scratch_of(key)),
            "most_bytes": self.limits.most_bytes,
            "reserve_bytes": self.limits.reserve_bytes,
            "files": files or {},
            "make": make,
            "command": list(command),
        }
        environment = self._environment(with_index=make is not None)
        return run_step(self.plan.base.python, question, environment, heard, self._check)

    def _environment(self, *, with_index: bool) -> dict[str, str]:
        """`with_index`: for pip. An address may hold a password, which is nothing for what was installed."""
        given = self.plan.environment()
        names = (*_PASSED_ON, *(_REACHING if with_index else ()))
        if with_index and "PIP_CONFIG_FILE" not in given:
            names = (*names, *_INDEX)
        scratch = str(self.shelf.scratch_of(self.plan.key))
        return {
            **{name: self.environ[name] for name in names if name in self.environ},
            **(given if with_index else {}),
            "HOME": scratch,
            "TMPDIR": scratch,
            "PYTHONNOUSERSITE": "1",
            "PYTHONUNBUFFERED": "1",
            "PYTHONUTF8": "1",
            LAUNCH_TAG: self.launch,
        }

    def _check(self) -> None:
        if self.listener.cancelled():
            raise EnvironmentCancelled
        if self.clock.boot_ns() - self._started_ns > self.limits.timeout_s * SECOND_NS:
            told = f"Installing the requirements took longer than {self.limits.timeout_s:g} s, the limit on this host."
            raise EnvironmentFailed(told, list(self._lines)[-_SHOWN_LINES:])

    def _hear(self, line: str) -> None:
        line = shown(without_secrets(line))
        self._lines.append(line)
        self.listener.log(line)
        notice = notice_of(line)
        if notice is not None:
            self.listener.say("environment_progress", notice)

    def _failure(self, code: int, told: str) -> EnvironmentFailed:
        lines = list(self._lines)
        if code == TOO_LARGE:
            return EnvironmentFailed(
                f"The environment takes more than {self.limits.most_bytes / _MB:.0f} MB, the limit on this host.", lines
            )
        if code == DISK_FULL:
            return EnvironmentFailed(
                f"The disk for environments has less than {self.limits.reserve_bytes / _MB:.0f} MB free, which must "
                "stay free for other jobs.",
                lines[-_SHOWN_LINES:],
            )
        reason = reason_of(lines, self.plan.base.short_version, source_builds=self.plan.sources.source_builds)
        return EnvironmentFailed(told + reason, lines[-_SHOWN_LINES:])
