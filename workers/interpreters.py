"""Which Python trains with which framework: one environment per framework, and none of them is imported here."""

import importlib.util
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from app.settings import InvalidSettings

# What must be importable for a framework, and under which names its version is recorded.
PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {"torch": ("torch",), "tensorflow": ("tensorflow", "keras")}
DISTRIBUTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "torch": ("torch",),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-cpu-aws", "tf-nightly"),
}

HOST_FRAMEWORK: Final = "python"
"""What a script names that needs no framework of ours: it gets the worker's own Python, so every worker has it."""


@dataclass(frozen=True)
class Interpreter:
    """The Python of one framework; `version` is None when it is another environment's, which is not asked."""

    path: Path
    version: str | None


def find_interpreters(configured: Mapping[str, Path]) -> dict[str, Interpreter]:
    """The configured interpreters, or, when there are none, this one for each framework that it could import.

    Looking for a package does not import it: the worker stays free of frameworks.

    Raises:
        InvalidSettings: a name is no framework, or a path is no program.
    """
    if configured:
        return {name: _checked(name, path) for name, path in sorted(configured.items())}
    own = Path(sys.executable)  # not resolved: through the link of a virtual environment is how it knows its packages
    return {
        name: Interpreter(own, _version(name)) for name, packages in PACKAGES.items() if all(map(_importable, packages))
    }


def own_interpreter() -> Interpreter:
    """This worker's Python, for scripts that need no framework of ours."""
    return Interpreter(Path(sys.executable), platform.python_version())


def _checked(name: str, path: Path) -> Interpreter:
    example = 'for example TRAINSHED_INTERPRETERS={"torch": "/opt/torch/bin/python"}'
    if name not in PACKAGES:
        known = ", ".join(PACKAGES)
        raise InvalidSettings(f"TRAINSHED_INTERPRETERS names the framework '{name}'; known are {known}, {example}.")
    if not path.is_file() or not os.access(path, os.X_OK):
        raise InvalidSettings(f"TRAINSHED_INTERPRETERS: '{path}' for {name} is not a program, {example}.")
    return Interpreter(path, _version(name) if path == Path(sys.executable) else None)


def _importable(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _version(name: str) -> str | None:
    for distribution in DISTRIBUTIONS[name]:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None
