"""Processes that run the code of python models, really started; what they serve is made by hand."""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.clock import SystemClock
from app.spec import Code, Environment
from tests.workers.user_code.models import BUNDLE, Saved, write_python_model
from workers.code_terms import CodeTerms
from workers.launch import ColdLauncher
from workers.user_launch import UserCode, UserLaunch
from workers.user_predictor_handle import UserPredictors

MIB = 1024 * 1024


def code_of(framework: str = "torch", **environment: Any) -> UserCode:
    """The code of a job whose environment is this."""
    return UserCode(framework, Code(BUNDLE, Environment(**environment), network=False, place="model"))


def launch_in(folder: Path) -> UserLaunch:
    """As a worker starts them; a file of such a process may have 64 MiB."""
    own = Path(sys.executable)
    terms = CodeTerms(max_file_bytes=64 * MIB, max_processes=256)
    interpreters = {"torch": own, "tensorflow": own}
    return UserLaunch(ColdLauncher(), interpreters, folder / "run", SystemClock(), dict(os.environ), terms)


@dataclass
class Asker:
    """Asks models that were just written, in processes that end with the test."""

    folder: Path
    launch: UserLaunch
    pool: UserPredictors

    def write(self, source: str | None = None, *, name: str = "model", **options: Any) -> Saved:
        files = None if source is None else {"net.py": source}
        return write_python_model(self.folder / name, files, **options)

    def ask(self, saved: Saved, rows: Any, timeout_s: float = 120.0, **code: Any) -> dict[str, Any]:
        request = {"csv": rows} if isinstance(rows, str) else {"rows": rows}
        return self.pool.predict(code_of(**code), saved.folder, request, timeout_s)

    def left(self) -> list[str]:
        """What lies in the work folder."""
        work = self.launch.run_dir / "work"
        return sorted(path.name for path in work.iterdir()) if work.exists() else []


@pytest.fixture
def make_asker(tmp_path: Path) -> Iterator[Callable[..., Asker]]:
    """With the options of the pool."""
    made: list[Asker] = []

    def make(**options: Any) -> Asker:
        launch = launch_in(tmp_path)
        made.append(Asker(tmp_path, launch, UserPredictors(launch, **options)))
        return made[-1]

    yield make
    for asker in made:
        asker.pool.stop()


@pytest.fixture
def asker(make_asker: Callable[..., Asker]) -> Asker:
    return make_asker()
