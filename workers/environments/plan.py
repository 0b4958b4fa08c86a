"""What is to be installed over a base, whether it may be, and the name that it is kept under."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from app.spec.requirements import Requirements
from workers.environments.base import OURS, Base
from workers.environments.errors import EnvironmentFailed

FORMAT: Final = 1
"""Counts up when environments are made in another way, so that old ones are not taken for new ones."""
NO_INDEX: Final = "none"
TENSORFLOW: Final = ("tensorflow", "tensorflow-cpu")
"""Names of the same package: who asks for the one, and has the other, has it."""
_FRAMEWORKS: Final = ("torch", "keras", *TENSORFLOW)


@dataclass(frozen=True)
class Sources:
    """Where packages come from. `index`: its address, empty for what pip itself knows here, or `none`."""

    index: str = ""
    extra_indexes: tuple[str, ...] = ()
    find_links: str = ""
    source_builds: bool = False


@dataclass(frozen=True)
class Plan:
    """`runs_trainer`: our own trainer is to run in the environment, so what it needs must stay fit for it."""

    base: Base
    requirements: Requirements
    sources: Sources
    runs_trainer: bool = False

    @cached_property
    def key(self) -> str:
        """The same for all that would become the same environment, and safe as the name of a folder."""
        base = self.base
        parts = [
            FORMAT,
            base.framework,
            str(base.python),
            base.version,
            base.paths,
            sorted(base.packages.items()),
            self.requirements.lines,
            [self.sources.index, self.sources.extra_indexes, self.sources.find_links, self.sources.source_builds],
            self.runs_trainer,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    @property
    def frozen(self) -> dict[str, str]:
        """What stays as it is in the base, by version: Trainshed, and the framework unless the job asked for none."""
        names = (OURS,) if self.base.framework == "python" else (OURS, *_FRAMEWORKS)
        versions = {name: self.base.packages[name] for name in names if name in self.base.packages}
        return versions | self.aliases

    @property
    def aliases(self) -> dict[str, str]:
        """Other names of what the base has: pip would install TensorFlow beside tensorflow-cpu."""
        if self.base.framework == "python":
            return {}
        known = [self.base.packages[name] for name in TENSORFLOW if name in self.base.packages]
        return {name: known[0] for name in TENSORFLOW if known and name not in self.base.packages}

    @property
    def constraints(self) -> tuple[str, ...]:
        """Lines of a constraints file for pip."""
        needs = self.base.needs if self.runs_trainer else ()
        return (*(f"{name}=={version}" for name, version in sorted(self.frozen.items())), *_plain(needs))

    def check(self) -> None:
        """Refuse what would replace the framework, with a sentence better than pip's.

        Raises:
            EnvironmentFailed: names the line, what is there, and what to do.
        """
        for requirement in self.requirements.parsed:
            version = self.frozen.get(requirement.name)
            if version is None or not _applies(requirement, self.base):
                continue
            if not requirement.specifier.contains(version, prereleases=True):
                raise EnvironmentFailed(_refusal(requirement, version, self.base))

    def environment(self) -> dict[str, str]:
        """How pip is told where packages come from: by variables, which no other user sees.

        An address may hold a password. An index that was set replaces what pip's configuration on the host says.
        """
        sources = self.sources
        # pip splits at spaces, which a folder's name may have and an address may not.
        links = Path(sources.find_links).as_uri() if sources.find_links.startswith("/") else sources.find_links
        given = {"PIP_EXTRA_INDEX_URL": " ".join(sources.extra_indexes), "PIP_FIND_LINKS": links}
        if sources.index == NO_INDEX:
            given |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}
        elif sources.index:
            given |= {"PIP_INDEX_URL": sources.index, "PIP_CONFIG_FILE": "/dev/null"}
        if not sources.source_builds:
            given["PIP_ONLY_BINARY"] = ":all:"
        if self.requirements.hashes:
            given["PIP_REQUIRE_HASHES"] = "1"
        return {name: value for name, value in given.items() if value}


def _plain(lines: Sequence[str]) -> Iterator[str]:
    """Requirements as constraints, which may have no extras."""
    for requirement in map(Requirement, lines):
        requirement.extras = set()
        yield str(requirement)


def _applies(requirement: Requirement, base: Base) -> bool:
    place = {"python_version": base.short_version, "python_full_version": base.version}
    return requirement.marker is None or requirement.marker.evaluate(place)


def _refusal(requirement: Requirement, version: str, base: Base) -> str:
    asked = f"The requirements ask for '{requirement.name}{requirement.specifier}'"
    if requirement.name == OURS:
        return f"{asked}, and the worker runs {OURS} {version}. Leave it out: it is there."
    return (
        f"{asked}, and this host has {requirement.name} {version}, which its driver and devices were set up for. Leave "
        f'it out of the requirements, or give the job "framework": "python" instead of "{base.framework}" and '
        "require all that it needs."
    )
