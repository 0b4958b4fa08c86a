"""Environments of packages that the test decides on: what is asked for is written down, nothing is installed."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from workers.environments.errors import EnvironmentCancelled


class FakePackages:
    """`answer` is the interpreter that everybody gets, or the error; `waits`: it takes until nobody wants it."""

    def __init__(self, answer: Path | Exception = Path("/environments/1/bin/python"), *, waits: bool = False) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str | Sequence[str], bool]] = []
        self.released: list[str] = []
        self.at_work = threading.Event()
        self._waits = waits

    def obtain(
        self,
        framework: str,
        requirements: str | Sequence[str],
        say: Callable[[str, str], None],
        cancelled: Callable[[], bool],
        *,
        holder: str,
        log: Callable[[str], None],
        runs_trainer: bool = False,
    ) -> Path:
        self.asked.append((framework, requirements, runs_trainer))
        say("environment_building", "Installing.")
        log(f"Collecting packages for {holder}")
        self.at_work.set()
        while self._waits:
            if cancelled():
                raise EnvironmentCancelled
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def release(self, holder: str) -> None:
        self.released.append(holder)
