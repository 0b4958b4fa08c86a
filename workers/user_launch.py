"""Starting a process that runs a finished python model's code once more: its packages, its folder, its launcher."""

import secrets
import shutil
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from sqlalchemy.orm import Session

from app.archives import NoSuchMember, NotAnArchive, UnsafeArchive
from app.clock import Clock
from app.errors import Cause
from app.jobs.models import Job
from app.predictions.files import CODE, MODEL_FILES, WEIGHTS
from app.spec import Code, code_of, read_effective
from workers.code_preparation import Asking, Packages, archive_limits, packages_of
from workers.code_terms import CodeTerms
from workers.environment import trainer_environment
from workers.environments.errors import EnvironmentCancelled, EnvironmentFailed
from workers.launch_port import Launcher, LaunchFailed, LaunchRequest
from workers.ownership import remove_tree
from workers.protocol import ModelErrand
from workers.sandbox import Sandbox
from workers.user_process import NotStarted, UserCodeEnded, UserProcess

Task = Literal["predict", "make", "check"]
"""Answer rows; make a file of the model; load that file again, without any code of the user's."""
ENTRIES: Final[Mapping[Task, str]] = {
    "predict": "workers.user_predictor:main",
    "make": "workers.user_export:main",
    "check": "workers.user_export_check:main",
}
_MODEL: Final = "model"
_SECOND_NS: Final = 1_000_000_000
_MEMORY_BYTES: Final = 4 * 1024**3
_MOST_AT_ONCE: Final = 128
_COPIES: Final = 4
"""Of the weights: as they are read, in the model, and what the framework makes of them on the way."""


@dataclass(frozen=True)
class UserCode:
    """What the database says of a job's own code. What lies beside its model was written by that code itself."""

    framework: str
    code: Code


def user_code(session: Session, job_id: str) -> UserCode | None:
    """The code of a job with a python model; None when the job is gone, or has none."""
    job = session.get(Job, job_id)
    code = None if job is None else code_of(read_effective(job.effective_spec))
    return None if job is None or code is None else UserCode(job.framework, code)


@dataclass
class _Numbers:
    """The names of locks are used again, since a file of a lock stays for good; the longest unused comes first.

    So a process that cannot be killed, and holds its lock, is in the way of one start among many.
    """

    free: deque[int] = field(default_factory=lambda: deque(range(_MOST_AT_ONCE)))

    def take(self) -> int:
        try:
            return self.free.popleft()
        except IndexError:
            raise NotStarted(f"{_MOST_AT_ONCE} processes for code of python models run here already.") from None

    def give_back(self, number: int) -> None:
        self.free.append(number)


_NUMBERS: Final = _Numbers()
"""Of this process: whoever else starts such processes here shares the folder of locks."""


@dataclass(frozen=True)
class UserLaunch:
    """What this host starts such processes with; safe to use from several threads.

    `base`: the worker's own environment. `packages` None: no requirements are installed here. `onnx`: the Python that
    has onnxruntime.
    """

    launcher: Launcher
    interpreters: Mapping[str, Path]
    run_dir: Path
    clock: Clock
    base: Mapping[str, str]
    terms: CodeTerms = field(default_factory=CodeTerms)
    packages: Packages | None = None
    onnx: Path = Path(sys.executable)

    def start(
        self,
        code: UserCode,
        model: Path,
        within_s: float,
        cancelled: Callable[[], bool],
        *,
        task: Task = "predict",
        file: Path | None = None,
    ) -> UserProcess:
        """Start a process with a copy of the model's files; it lives for `within_s` unless that is extended.

        Blocks for milliseconds, or for minutes if packages must be installed; `cancelled` then ends that. `file`: what
        is to be checked.

        Raises:
            UserCodeEnded: what the job asks for cannot be had.
            NotStarted: it cannot be started here and now.
        """
        number = _NUMBERS.take()
        name = f"errand-{number}"
        work_dir = self.run_dir / "work" / f"{name}-{secrets.token_hex(8)}"

        def give_back() -> None:
            if self.packages is not None:
                self.packages.release(name)
            _NUMBERS.give_back(number)

        try:
            python = self._own(code) if task == "check" else self._python_of(code, model, name, cancelled)
            errand = self._errand(name, code, python, _copied(model, work_dir, file))
            run = self.launcher.start(self._request(errand, work_dir, task, self.boot_ns_in(within_s)))
        except BaseException as error:
            remove_tree(work_dir)
            give_back()
            if isinstance(error, OSError | LaunchFailed):
                raise NotStarted(f"The process for the model's code could not be started: {error}") from error
            raise
        return UserProcess(run, work_dir, give_back)

    def boot_ns_in(self, seconds: float) -> int:
        """The boot clock's time then."""
        return self.clock.boot_ns() + int(seconds * _SECOND_NS)

    def _request(self, errand: ModelErrand, work_dir: Path, task: Task, until_boot_ns: int) -> LaunchRequest:
        loads_onnx = task == "check" and errand.framework == "torch"
        return LaunchRequest(
            interpreter=self.onnx if loads_onnx else self.interpreters[errand.framework],
            environment=trainer_environment([], errand.threads, work_dir, self.base),
            assignment=errand,
            lock_dir=self.run_dir / "locks",
            until_boot_ns=until_boot_ns,
            entry=ENTRIES[task],
            sandbox=Sandbox(
                network=False,  # whatever the job asked for: rows are answered by the model alone
                needs_loopback=False,
                max_file_bytes=self.terms.max_file_bytes,
                max_processes=self.terms.max_processes,
            ),
        )

    def _errand(self, name: str, code: UserCode, python: Path, model: Path) -> ModelErrand:
        return ModelErrand(
            job_id=name,
            framework=code.framework,
            work_dir=str(model.parent),
            model=str(model),
            archive=archive_limits(self.terms),
            memory_bytes=_MEMORY_BYTES + _COPIES * (model / WEIGHTS).stat().st_size,
            packages=None if python == self._own(code) else str(python),
            variables=dict(code.code.environment.variables),
        )

    def _own(self, code: UserCode) -> Path:
        own = self.interpreters.get(code.framework)
        if own is None:
            raise NotStarted(f"This worker has no interpreter for {code.framework}.")
        return own

    def _python_of(self, code: UserCode, model: Path, holder: str, cancelled: Callable[[], bool]) -> Path:
        asking = Asking(say=_unheard, log=_unheard, cancelled=cancelled, holder=holder)
        archive = model / CODE if (model / CODE).is_file() else None
        try:
            return packages_of(code.code, code.framework, self._own(code), archive, self.packages, asking)
        except (NoSuchMember, NotAnArchive, UnsafeArchive) as error:
            raise UserCodeEnded(str(error)) from error
        except EnvironmentCancelled as error:
            raise NotStarted(str(error)) from error
        except EnvironmentFailed as error:
            kind = UserCodeEnded if error.cause is Cause.ENVIRONMENT_FAILED else NotStarted
            raise kind(" ".join([str(error), *error.detail])) from error


def _copied(model: Path, work_dir: Path, file: Path | None) -> Path:
    """A copy of the model's files, and of one more: the folder is going to be another user's."""
    folder = work_dir / _MODEL
    work_dir.mkdir(mode=0o700, parents=True)
    folder.mkdir(mode=0o700)
    for name in MODEL_FILES:
        if (model / name).is_file():
            shutil.copyfile(model / name, folder / name)
    if file is not None:
        shutil.copyfile(file, folder / file.name)
    return folder


def _unheard(*_: str) -> None:
    """Nobody listens: a prediction has no journal."""
