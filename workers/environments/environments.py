"""The environments of a host: found, installed, kept while somebody uses them, and collected."""

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from app.clock import Clock, SystemClock, to_rfc3339
from app.errors import Cause
from app.settings import Settings
from app.spec.requirements import InvalidRequirements, Requirements, parse_requirements
from workers.environments.base import Bases
from workers.environments.errors import EnvironmentCancelled, EnvironmentFailed
from workers.environments.installing import Installation, Limits, Listener
from workers.environments.plan import Plan, Sources
from workers.environments.shelf import FOLDER, Record, Shelf, Stored
from workers.ownership import remove_tree
from workers.stopping import SECOND_NS
from workers.trainer_user import TrainerUsers

log = structlog.get_logger("worker")

_LOOK_S: Final = 0.1
_DAY_S: Final = 86_400.0
_MB: Final = 1024 * 1024

Say = Callable[[str, str], None]
"""Takes the code and the sentence of a notice to the user."""


@dataclass(frozen=True)
class Keeping:
    """How much of the disk all environments may take, and after how many seconds an unused one goes."""

    most_bytes: int
    longest_s: float


@dataclass
class _Making:
    """One that is being made, for those who wait for it; `error` is why it failed, if it did."""

    done: threading.Event = field(default_factory=threading.Event)
    error: EnvironmentFailed | None = None


class Environments:
    """Safe to use from several threads, by one process at a time (the worker, which has the host's lock)."""

    def __init__(
        self,
        folder: Path,
        interpreters: Mapping[str, Path],
        sources: Sources,
        limits: Limits,
        keeping: Keeping,
        *,
        users: TrainerUsers | None = None,
        clock: Clock | None = None,
        environ: Mapping[str, str] | None = None,
        wall: Callable[[], float] = time.time,
        installer: Path = Path(sys.executable),
    ) -> None:
        self._shelf = Shelf(folder)
        self._bases = Bases(interpreters)
        self._sources = sources
        self._limits = limits
        self._keeping = keeping
        self._users = users
        self._clock = clock or SystemClock()
        self._environ = dict(os.environ if environ is None else environ)
        self._wall = wall
        self._installer = str(installer)
        self._turn = threading.Lock()
        self._making: dict[str, _Making] = {}
        self._used: dict[str, set[str]] = {}

    @classmethod
    def of(
        cls,
        settings: Settings,
        interpreters: Mapping[str, Path],
        users: TrainerUsers | None = None,
        clock: Clock | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> "Environments":
        """Those below the run folder.

        `interpreters`: the base of each framework, "python" among them; `environ`: the worker's own environment.
        """
        return cls(
            settings.effective_run_dir.absolute() / FOLDER,
            interpreters,
            Sources(
                index=settings.pip_index_url,
                extra_indexes=settings.pip_extra_index_urls,
                find_links=settings.pip_find_links,
                source_builds=settings.pip_source_builds == "on",
            ),
            Limits(settings.environment_timeout_s, settings.max_environment_bytes, settings.disk_reserve_bytes),
            Keeping(settings.environments_bytes, settings.keep_environments_days * _DAY_S),
            users=users,
            clock=clock,
            environ=environ,
        )

    def obtain(
        self,
        framework: str,
        requirements: str | Sequence[str],
        say: Say,
        cancelled: Callable[[], bool],
        *,
        holder: str,
        log: Callable[[str], None],
        runs_trainer: bool = False,
    ) -> Path:
        """The interpreter that has these packages over those of the framework's base; installs them if need be.

        Blocks, for minutes perhaps. The environment stays until `release(holder)`, however often it was obtained;
        `holder` names who uses it, for example an attempt. `say` gets notices, `log` pip's lines; both are called from
        this thread. `cancelled` is asked a few times in a second. `runs_trainer`: our own trainer is to run in it (a
        python model), so what it needs may not be replaced by what does not fit it.

        The interpreter must only ever be started as a user without the worker's rights, since its packages may run
        code at its start. So a trainer is launched by the base interpreter, and calls
        `workers.environments.activation.activate(interpreter)` once it has given up its rights.

        Without requirements the answer is the base interpreter itself.

        Raises:
            EnvironmentFailed: why there is none, with pip's last lines and the cause for the attempt's end.
            EnvironmentCancelled: `cancelled` said so.
        """
        wanted = _parsed(requirements)
        base = self._bases.of(framework)
        if not wanted.lines:
            return base.python
        plan = Plan(base, wanted, self._sources, runs_trainer=runs_trainer)
        plan.check()
        listener = Listener(say, log, cancelled)
        waited = False
        while True:
            making, mine = self._take(plan.key, holder)
            if making is None:
                if not waited:
                    say("environment_reused", "The packages that the job requires are installed here already.")
                return self._shelf.interpreter_of(plan.key)
            if mine:
                self._make(plan, listener, making)
                return self._take_made(plan.key, holder)
            waited = True
            say("environment_waiting", "Another job is installing the same packages; this one waits for it.")
            _await(making, cancelled)

    def release(self, holder: str) -> None:
        """What this holder obtained may be removed; harmless when it has nothing."""
        with self._turn:
            keys = self._used.pop(holder, set())
            for key in keys:
                self._shelf.touch(key, self._wall())
        if keys:
            self.collect()

    def clean_up(self) -> None:
        """Remove what an earlier worker left unfinished, and end its installations. Before the first `obtain`."""
        killed = self._shelf.clean_up()
        if killed:
            log.warning("installations_killed", pids=killed)
        self.collect()

    def collect(self) -> None:
        """Remove environments that nobody uses: those of too long ago, then the longest unused until all fit."""
        with self._turn:
            aside = [self._shelf.take_out(key) for key in self._superfluous()]
        for path in aside:
            log.info("environment_removed", path=str(path))
            remove_tree(path)

    def _superfluous(self) -> list[str]:
        stored = self._shelf.all()
        used = set().union(*self._used.values())
        unused = [one for one in stored if one.key not in used]
        old = [one for one in unused if self._wall() - one.used_at > self._keeping.longest_s]
        over = sum(one.record.bytes for one in stored) - sum(one.record.bytes for one in old) - self._keeping.most_bytes
        for one in unused[len(old) :]:
            if over <= 0:
                break
            old.append(one)
            over -= one.record.bytes
        return [one.key for one in old]

    def _take(self, key: str, holder: str) -> tuple[_Making | None, bool]:
        """None: it is there, and this holder's too now. Else what makes it, and whether the caller has to."""
        with self._turn:
            if key in self._making:
                return self._making[key], False
            if self._shelf.find(key) is not None:
                self._shelf.touch(key, self._wall())
                self._used.setdefault(holder, set()).add(key)
                return None, False
            self._making[key] = _Making()
            return self._making[key], True

    def _take_made(self, key: str, holder: str) -> Path:
        with self._turn:
            self._used.setdefault(holder, set()).add(key)
            making = self._making.pop(key)
        making.done.set()
        self.collect()
        return self._shelf.interpreter_of(key)

    def _make(self, plan: Plan, listener: Listener, making: _Making) -> None:
        try:
            self._install(plan, listener)
        except BaseException as error:
            self._shelf.give_up(plan.key)
            making.error = error if isinstance(error, EnvironmentFailed) else None
            with self._turn:
                self._making.pop(plan.key)
            making.done.set()
            raise

    def _install(self, plan: Plan, listener: Listener) -> Stored:
        number, framework = len(plan.requirements.lines), plan.base.framework
        requirements = "one requirement" if number == 1 else f"{number} requirements"
        listener.say("environment_building", f"Installing {requirements} into a new environment for {framework}.")
        began = self._clock.boot_ns()
        installation = Installation(
            plan, self._shelf, self._limits, listener, self._users, self._clock, self._environ, self._installer
        )
        try:
            installed = installation.run()
            seconds = (self._clock.boot_ns() - began) / SECOND_NS
            record = Record(
                framework=framework,
                python=plan.base.version,
                requirements=plan.requirements.lines,
                packages=installed.packages,
                bytes=installed.bytes,
                seconds=round(seconds, 3),
                created_at=to_rfc3339(self._clock.now()),
            )
            stored = self._shelf.finish(plan.key, record)
        except (OSError, RecursionError) as error:
            log.exception("environment_not_made", key=plan.key)
            told = f"The worker could not make the environment: {getattr(error, 'strerror', None) or error}."
            raise EnvironmentFailed(told, cause=Cause.WORKER_LOST) from error
        count = len(installed.packages)
        packages = "one package" if count == 1 else f"{count} packages"
        size = f"{installed.bytes / _MB:.1f} MB"
        listener.say("environment_ready", f"The environment is ready after {seconds:.1f} s: {packages}, {size}.")
        return stored


def _parsed(requirements: str | Sequence[str]) -> Requirements:
    try:
        return parse_requirements(requirements)
    except InvalidRequirements as error:  # it was read at submission: another version may have taken it
        raise EnvironmentFailed(str(error)) from error


def _await(making: _Making, cancelled: Callable[[], bool]) -> None:
    """Wait until it is made or failed; who waited for one that failed fails with it."""
    while not making.done.wait(_LOOK_S):
        if cancelled():
            raise EnvironmentCancelled
    if making.error is not None:
        raise EnvironmentFailed(str(making.error), making.error.detail, making.error.cause)
