"""The child that makes an environment: becomes a trainer's user, lays the empty environment, and runs pip in it.

Run by the base interpreter as `python -P -m workers.environments.step`, with one JSON object on standard input:

    {"uid", "parent", "folder", "scratch", "most_bytes", "reserve_bytes", "files", "make", "command"}

`make` is null, or `{"paths", "scripts", "aliases"}` for a new environment. `files`: names and texts for the scratch
folder, where the command then runs. Exit codes: the command's own, `TOO_LARGE`, or `DISK_FULL`.
Standard library only: a framework's environment need not have more.
"""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from workers.environments.sizes import disk_bytes
from workers.privileges import become

TOO_LARGE: Final = 90
DISK_FULL: Final = 91
BASE_LINK: Final = "trainshed-base.pth"
_LOOK_S: Final = 0.5
_SPARE: Final = 10
"""Between two looks at least so many times as long as a look takes: an environment may have 100 000 files."""
_PR_SET_PDEATHSIG: Final = 1
_SCRIPT: Final = """\
#!{python}
import sys
from {module} import {name}
if __name__ == "__main__":
    sys.exit({function}())
"""
_METADATA: Final = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def make(folder: Path, paths: Sequence[str], scripts: Mapping[str, Sequence[str]], aliases: Mapping[str, str]) -> None:
    """An environment of this interpreter that sees the packages in `paths` behind its own, and has their programs."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    # addsitedir and not the paths themselves: the base may have .pth files of its own, as ours does.
    lines = [f"import site; site.addsitedir({path!r})\n" for path in paths]
    (site / BASE_LINK).write_text("".join(lines), encoding="utf-8")
    for name, alias in aliases.items():
        info = site / f"{name.replace('-', '_')}-{alias}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(_METADATA.format(name=name, version=alias), encoding="utf-8")
        (info / "INSTALLER").write_text("trainshed\n", encoding="utf-8")
        (info / "RECORD").write_text("", encoding="utf-8")
    for name, (module, function) in scripts.items():
        program = folder / "bin" / name
        if "/" in name or program.exists():
            continue
        text = _SCRIPT.format(
            python=folder / "bin" / "python", module=module, name=function.split(".")[0], function=function
        )
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)


def watch(child: "subprocess.Popen[bytes]", folders: Sequence[str], most_bytes: int, reserve_bytes: int) -> int:
    """Wait for the command, and look at the disk meanwhile; its exit code, or why it must not go on."""
    pause = _LOOK_S
    while True:
        try:
            code = child.wait(pause)
        except subprocess.TimeoutExpired:
            code = None
        began = time.monotonic()
        if sum(map(disk_bytes, folders)) > most_bytes:
            return TOO_LARGE
        if _free(folders[0]) < reserve_bytes:
            return DISK_FULL
        if code is not None:
            return code if code >= 0 else 128 - code
        pause = max(_LOOK_S, _SPARE * (time.monotonic() - began))


def _free(folder: str) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def _limit(most_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = most_bytes if hard == resource.RLIM_INFINITY else min(most_bytes, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def _end_with(parent: int) -> None:
    """Be killed when the worker's thread that waits for this ends; who became another user must say so again."""
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != parent:
        raise SystemExit("The worker has gone.")


def main(question: Mapping[str, Any]) -> int:
    scratch, folder = Path(question["scratch"]), Path(question["folder"])
    os.chdir(scratch)
    if question["uid"] is not None:
        become(question["uid"])
    _limit(question["most_bytes"])
    _end_with(question["parent"])
    for name, text in question["files"].items():
        (scratch / name).write_text(text, encoding="utf-8")
    if question["make"] is not None:
        make(folder, **question["make"])
    child = subprocess.Popen(question["command"], stdin=subprocess.DEVNULL)
    return watch(child, [str(folder), str(scratch)], question["most_bytes"], question["reserve_bytes"])


if __name__ == "__main__":
    sys.exit(main(json.load(sys.stdin)))
