"""Installations by a worker with few capabilities, as users of trainers; see tests.workers.users.confined."""

import json
import os
import stat
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.workers.environments.journal import Journal, environments
from tests.workers.environments.silent_index import silent_index
from tests.workers.environments.wheels import wheel
from workers.environments.errors import EnvironmentCancelled, EnvironmentFailed
from workers.processes import processes_of
from workers.trainer_user import TrainerUsers

# Ends an interpreter that root starts: what packages bring must never run as the worker.
NOT_AS_ROOT = {"guard.pth": "import os; os.geteuid() or os._exit(9)\n"}


class Place:
    """A worker's folders, with a base that every user may run."""

    def __init__(self, folder: Path) -> None:
        self.run_dir = folder / "run"
        (self.run_dir / "work").mkdir(mode=0o711, parents=True)
        self.run_dir.chmod(0o711)
        first = 1_100_000 + os.getpid() * 8
        self.users = TrainerUsers(range(first, first + 2), self.run_dir / "locks", [])
        self.wheels = folder / "wheels"
        wheel(self.wheels, "tiny", files=NOT_AS_ROOT, scripts={"tiny": "tiny:main"})
        self.base = folder / "base"
        venv.EnvBuilder(with_pip=False, symlinks=True).create(self.base)
        (site,) = self.base.glob("lib/*/site-packages")
        (site / "shared.pth").write_text(os.environ["PYTHONPATH"].replace(":", "\n"), encoding="utf-8")
        self.folder = self.run_dir / "environments"

    def obtain(self, requirements: str, *, index: str = "none", journal: Journal | None = None) -> Path:
        python = self.base / "bin" / "python"
        there = environments(
            self.folder,
            self.wheels,
            index=index,
            interpreters={"python": python},
            users=self.users,
            installer=python,
        )
        return (journal or Journal()).obtain(there, requirements)

    def left(self) -> dict[str, Any]:
        return {
            "names": sorted(path.name for path in self.folder.iterdir()),
            "processes": [pid for uid in self.users.uids for pid in processes_of(uid)],
            "notes": sorted(path.name for path in (self.run_dir / "locks").glob("user-*")),
        }


def installed(folder: Path) -> object:
    place = Place(folder)
    root = place.obtain("tiny").parent.parent
    facts = [path.lstat() for path in [root, *root.rglob("*")]]
    return {
        "owners": sorted({(found.st_uid, found.st_gid) for found in facts}),
        "modes": sorted({stat.S_IMODE(found.st_mode) for found in facts if not stat.S_ISLNK(found.st_mode)}),
        "packages": json.loads((root / "environment.json").read_text(encoding="utf-8"))["packages"],
        "key": root.name,
        **place.left(),
    }


def failed(folder: Path) -> object:
    place = Place(folder)
    try:
        place.obtain("missing")
    except EnvironmentFailed as error:
        return {"told": str(error), **place.left()}
    return None


def called_off(folder: Path) -> object:
    place = Place(folder)
    with silent_index() as index:
        try:
            place.obtain("tiny-missing", index=index.url, journal=Journal(cancelled=index.asked.is_set))
        except EnvironmentCancelled:
            return place.left()
    return None


SCENARIOS: dict[str, Callable[[Path], object]] = {"installed": installed, "failed": failed, "called_off": called_off}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(SCENARIOS[sys.argv[1]](Path(sys.argv[2]))) + "\n")
    sys.stdout.flush()
