"""What somebody who asks for an environment hears, and where such environments come from in tests: no index at all."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.clock import Clock
from workers.environments.environments import Environments, Keeping
from workers.environments.installing import Limits
from workers.environments.plan import NO_INDEX, Sources

PYTHON = Path(sys.executable)
PLENTY = 1 << 40


def never() -> bool:
    return False


@dataclass
class Journal:
    """Takes notices and lines, and may call off what is under way."""

    cancelled: Callable[[], bool] = never
    notices: list[tuple[str, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def codes(self) -> list[str]:
        return [code for code, _ in self.notices]

    def obtain(
        self,
        environments: Environments,
        requirements: str | Sequence[str],
        *,
        framework: str = "python",
        holder: str = "job_1-1",
        runs_trainer: bool = False,
    ) -> Path:
        return environments.obtain(
            framework,
            requirements,
            lambda code, message: self.notices.append((code, message)),
            self.cancelled,
            holder=holder,
            log=self.lines.append,
            runs_trainer=runs_trainer,
        )


def environments(
    folder: Path,
    wheels: Path | None = None,
    *,
    index: str = NO_INDEX,
    limits: Limits | None = None,
    keeping: Keeping | None = None,
    interpreters: Mapping[str, Path] | None = None,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
    **others: Any,
) -> Environments:
    """Environments over this very Python, whatever framework it is asked for."""
    return Environments(
        folder,
        interpreters or {"python": PYTHON},
        Sources(index=index, find_links=str(wheels or "")),
        limits or Limits(timeout_s=300, most_bytes=PLENTY, reserve_bytes=0),
        keeping or Keeping(most_bytes=PLENTY, longest_s=1e9),
        clock=clock,
        environ=environ,
        **others,
    )
