"""Runs inside the worker's container, from standard input, with the standard library alone.

people PID     as root: who the trainer is, who the worker is, and what there would be to read
reach PEOPLE   as the trainer's user: which of that opens
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROC = Path("/proc")


def person(pid: int) -> dict[str, Any]:
    lines = (PROC / str(pid) / "status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return {
        "pid": pid,
        "uid": int(status["Uid"].split()[0]),
        "gid": int(status["Gid"].split()[0]),
        "groups": [int(group) for group in status["Groups"].split()],
        "capabilities": int(status["CapEff"], 16),
        "no_new_privileges": status["NoNewPrivs"] == "1",
        "parent": int(status["PPid"]),
    }


def files(folder: Path, limit: int = 200) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file()][:limit] if folder.is_dir() else []


def people(pid: int, given: Mapping[str, str]) -> dict[str, Any]:
    """The worker is the process that init started; secrets are whatever its settings, `given`, take from files."""
    trainer = person(pid)
    worker = next(p for p in (person(int(entry.name)) for entry in PROC.glob("[0-9]*")) if p["parent"] == 1)
    home = Path(given["TRAINSHED_HOME"])
    run = Path(given.get("TRAINSHED_RUN_DIR", home / "run"))
    secrets = {path for name, path in given.items() if name.startswith("TRAINSHED_") and name.endswith("_FILE")}
    secrets = {path for path in secrets if not path.endswith("interpreters.json")} | set(files(Path("/run/secrets")))
    work = list((run / "work").iterdir())
    own = [str(folder) for folder in work if folder.stat().st_uid == trainer["uid"]]
    others = [str(path) for path in (*work, run / "locks", run / "models") if str(path) not in own and path.exists()]
    return {
        "trainer": trainer,
        "worker": worker,
        "secrets": sorted(secrets),
        "storage": [str(home / "storage"), *files(home / "storage")],
        "others": others,
        "memories": [f"/proc/{worker['pid']}/{name}" for name in ("environ", "mem", "maps", "fd", "root")],
        "folders": [str(folder) for folder in (run, run / "work", home, home / "storage", "/run/secrets")],
        "own": own,
    }


def opens(path: str) -> bool:
    """A file opens, or a folder can be listed."""
    try:
        if Path(path).is_dir():
            list(Path(path).iterdir())
        else:
            with open(path, "rb"):  # noqa: PTH123 - the plainest call there is
                pass
    except OSError:
        return False
    return True


def takes(folder: str) -> bool:
    """A new file can be made there."""
    made = Path(folder, ".probe")
    try:
        made.touch(exist_ok=False)
        made.unlink()
    except OSError:
        return False
    return True


def heeds(pid: int) -> bool:
    """A signal would arrive; 0 is none, and only asks."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return False
    return True


def reach(known: Mapping[str, Any]) -> dict[str, Any]:
    groups = {name: known[name] for name in ("secrets", "storage", "others", "memories")}
    return {
        "read": [path for paths in groups.values() for path in paths if opens(path)],
        "refused": {name: len([path for path in paths if not opens(path)]) for name, paths in groups.items()},
        "written": [folder for folder in known["folders"] if takes(folder)],
        "signalled": heeds(known["worker"]["pid"]),
        "own": bool(known["own"]) and all(opens(folder) and takes(folder) for folder in known["own"]),
    }


def main(arguments: Sequence[str]) -> None:
    what, given = arguments
    found = people(int(given), os.environ) if what == "people" else reach(json.loads(given))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
