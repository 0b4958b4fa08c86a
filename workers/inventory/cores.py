"""How many CPU cores this process may really use: the scheduler's affinity, and the quota of its control group."""

import os
from pathlib import Path
from typing import Final

_CGROUPS: Final = Path("/sys/fs/cgroup")
_SELF: Final = Path("/proc/self/cgroup")


def usable_cores(*, cgroups: Path = _CGROUPS, membership: Path = _SELF, affinity: int | None = None) -> int:
    """Whole cores, at least 1. A quota of one and a half cores counts as one: threads beyond it only wait."""
    present = len(os.sched_getaffinity(0)) if affinity is None else affinity
    quota = cpu_quota(cgroups, membership)
    return max(1, present if quota is None else min(present, int(quota)))


def cpu_quota(cgroups: Path, membership: Path) -> float | None:
    """The smallest quota, in cores, of the process's group and all groups above it; None when nothing limits it."""
    quotas = []
    for folder in _folders(cgroups, membership):
        quota = _version_2(folder) if (folder / "cpu.max").is_file() else _version_1(folder)
        if quota is not None:
            quotas.append(quota)
    return min(quotas, default=None)


def group_folders(cgroups: Path, membership: Path, controller: str) -> list[Path]:
    """The folder of the process's own group for one controller, and those above it, in both versions of cgroups.

    In a container the path that `/proc/self/cgroup` tells may not exist below the mount: then only the mount's root is
    left, which is the container's own group.
    """
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = cgroups / controllers if controllers else cgroups
        own = root / path.lstrip("/")
        folders += [folder for folder in (own, *own.parents) if folder == root or root in folder.parents]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _folders(cgroups: Path, membership: Path) -> list[Path]:
    return group_folders(cgroups, membership, "cpu")


def _version_2(folder: Path) -> float | None:
    quota, _, period = _read(folder / "cpu.max").partition(" ")
    return _ratio(quota, period)


def _version_1(folder: Path) -> float | None:
    return _ratio(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _ratio(quota: str, period: str) -> float | None:
    try:
        cores = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):  # "max", or there is no such file
        return None
    return cores if cores > 0 else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
