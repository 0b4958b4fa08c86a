"""What a base interpreter has, asked of itself: nothing of it is imported here, and no framework is imported there."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from app.errors import Cause
from workers.environments.errors import EnvironmentFailed

LIMIT_S: Final = 60.0
OURS: Final = "trainshed"
# The last line of its output is the answer. A requirement under an extra is not what our trainer needs.
_QUESTION: Final = """
import json, platform, re, site
from importlib import metadata
packages, scripts = {}, {}
for found in metadata.distributions():
    name = re.sub(r"[-_.]+", "-", found.metadata["Name"] or "").lower()
    if name in packages:
        continue
    packages[name] = found.version
    for point in found.entry_points:
        if point.group == "console_scripts":
            scripts.setdefault(point.name, [point.module, point.attr])
try:
    needs = [line for line in metadata.requires("trainshed") or [] if "extra ==" not in line]
except metadata.PackageNotFoundError:
    needs = []
paths = site.getsitepackages()
print(json.dumps([platform.python_version(), packages, scripts, paths, needs]))
"""


@dataclass(frozen=True)
class Base:
    """`packages`: version by normalised name; `scripts`: module and function by program; `needs`: of our trainer."""

    framework: str
    python: Path
    version: str
    packages: Mapping[str, str]
    scripts: Mapping[str, tuple[str, str]]
    paths: tuple[str, ...]
    needs: tuple[str, ...]

    @property
    def short_version(self) -> str:
        """`3.12` of `3.12.4`."""
        return ".".join(self.version.split(".")[:2])


class Bases:
    """The bases of a host, by framework. Asking takes a tenth of a second, so an answer is kept while nothing changes.

    Two threads may ask at once; both get the same answer.
    """

    def __init__(self, interpreters: Mapping[str, Path]) -> None:
        self._interpreters = interpreters
        self._known: dict[str, tuple[object, Base]] = {}

    def of(self, framework: str) -> Base:
        """What the framework's interpreter has.

        Raises:
            EnvironmentFailed: there is no interpreter for it here, or it does not answer; the host is at fault.
        """
        python = self._interpreters.get(framework)
        if python is None:
            raise _at_fault(f"This worker has no interpreter for {framework}.")
        known = self._known.get(framework)
        if known is None or known[0] != _state_of(known[1]):
            base = ask(framework, python)
            known = (_state_of(base), base)
            self._known[framework] = known
        return known[1]


def ask(framework: str, python: Path, limit_s: float = LIMIT_S) -> Base:
    """Ask an interpreter for what it has.

    Raises:
        EnvironmentFailed: it does not answer; the host is at fault.
    """
    command = [str(python), "-I", "-c", _QUESTION]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=True)
        answer: list[Any] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise _at_fault(f"The interpreter for {framework} of this worker does not answer; its log says why.") from error
    version, packages, scripts, paths, needs = answer
    programs = {name: (module, function) for name, (module, function) in scripts.items() if function}
    present = tuple(path for path in paths if Path(path).is_dir())
    return Base(framework, python, version, packages, programs, present, tuple(needs))


def _state_of(base: Base) -> object:
    """Changes when a package is installed there, or removed."""
    places = [base.python, *map(Path, base.paths)]
    return [(str(place), place.stat().st_mtime_ns if place.exists() else None) for place in places]


def _at_fault(message: str) -> EnvironmentFailed:
    return EnvironmentFailed(message, cause=Cause.WORKER_LOST)
