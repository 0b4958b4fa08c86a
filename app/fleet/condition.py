"""What a worker says of its host besides its devices: disk, shared memory, data roots, and what is wrong there.

It is stored as JSON with the worker's row and read leniently: a worker of another version may say more, or less.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypedDict

SELF_TEST_FAILED: Final = "self_test_failed"
"""The code of a problem whose sentence begins with the framework that does not work on the host."""


class ConditionJson(TypedDict, total=False):
    """The stored shape; sizes in bytes. `problems` are things to see to, `blockers` keep the host from taking jobs."""

    disk_free_bytes: int | None
    disk_total_bytes: int | None
    shm_bytes: int | None
    environments: int | None
    environments_bytes: int | None
    roots: dict[str, dict[str, Any]]
    problems: list[dict[str, str]]
    blockers: list[dict[str, str]]
    driver: dict[str, str | None] | None
    metrics_port: int | None


@dataclass(frozen=True)
class Remark:
    """A fault of the host: a stable code, and a sentence that says what to do."""

    code: str
    message: str


@dataclass(frozen=True)
class RootState:
    """Whether a data root can be read here, and by trainers; if not, why."""

    ok: bool
    problem: str | None = None


@dataclass(frozen=True)
class Driver:
    """Version of the NVIDIA driver, and the newest CUDA that it can serve, for example 580.65 and 13.0."""

    version: str
    cuda: str | None = None


@dataclass(frozen=True)
class Condition:
    """The state of a host at one look; None is what could not be found out.

    `environments` is how many environments of packages are kept there, and `environments_bytes` what they take.
    """

    disk_free_bytes: int | None = None
    disk_total_bytes: int | None = None
    shm_bytes: int | None = None
    environments: int | None = None
    environments_bytes: int | None = None
    roots: Mapping[str, RootState] = field(default_factory=dict)
    problems: tuple[Remark, ...] = ()
    blockers: tuple[Remark, ...] = ()
    driver: Driver | None = None
    metrics_port: int | None = None

    @property
    def blocked(self) -> str | None:
        """Why the host takes no job now, if it takes none: the sentence of its first blocker."""
        return self.blockers[0].message if self.blockers else None

    def as_json(self) -> ConditionJson:
        return ConditionJson(
            disk_free_bytes=self.disk_free_bytes,
            disk_total_bytes=self.disk_total_bytes,
            shm_bytes=self.shm_bytes,
            environments=self.environments,
            environments_bytes=self.environments_bytes,
            roots={name: asdict(root) for name, root in self.roots.items()},
            problems=[asdict(remark) for remark in self.problems],
            blockers=[asdict(remark) for remark in self.blockers],
            driver=asdict(self.driver) if self.driver else None,
            metrics_port=self.metrics_port,
        )


def read_condition(stored: Mapping[str, Any] | None) -> Condition:
    """Read what `as_json` wrote. What is missing or of another shape is left at its default."""
    found = stored or {}
    driver = found.get("driver")
    return Condition(
        disk_free_bytes=_whole(found.get("disk_free_bytes")),
        disk_total_bytes=_whole(found.get("disk_total_bytes")),
        shm_bytes=_whole(found.get("shm_bytes")),
        environments=_whole(found.get("environments")),
        environments_bytes=_whole(found.get("environments_bytes")),
        roots=_roots(found.get("roots")),
        problems=_remarks(found.get("problems")),
        blockers=_remarks(found.get("blockers")),
        driver=Driver(str(driver.get("version")), driver.get("cuda")) if isinstance(driver, Mapping) else None,
        metrics_port=_whole(found.get("metrics_port")),
    )


def first_blocker(stored: Mapping[str, Any] | None) -> str | None:
    """The sentence of the first blocker of a stored condition, for those who ask for nothing else."""
    blockers = _remarks((stored or {}).get("blockers"))
    return blockers[0].message if blockers else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _roots(stored: object) -> dict[str, RootState]:
    if not isinstance(stored, Mapping):
        return {}
    return {
        str(name): RootState(bool(root.get("ok")), root.get("problem"))
        for name, root in stored.items()
        if isinstance(root, Mapping)
    }


def _remarks(stored: object) -> tuple[Remark, ...]:
    if not isinstance(stored, list):
        return ()
    return tuple(
        Remark(str(item.get("code", "other")), str(item.get("message", "")))
        for item in stored
        if isinstance(item, Mapping)
    )


def root_state(stored: Mapping[str, Any] | None, name: str) -> RootState:
    """Whether the host that stored this can read the data root of that name; one that it does not have, it cannot."""
    return _roots((stored or {}).get("roots")).get(name, RootState(ok=False, problem="It does not have it."))
