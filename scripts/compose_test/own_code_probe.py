"""Runs as a user's script job, with the standard library alone; tells in its output folder what it could and could not.

arguments: the framework's module (or "-"), the addresses to try (host:port), and after "--" the paths to try to read
"""

import importlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LIMIT_S = 3.0
# Settings of the service that have, or lead to, what is secret.
_SECRET = ("_URL", "_URL_FILE", "_KEY", "_KEY_FILE", "_ID_FILE")


def reaches(address: str) -> str | None:
    """None: a connection was made; else why not."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), LIMIT_S).close()
    except OSError as error:
        return str(error)
    return None


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


def takes_a_file() -> bool:
    """The folder for temporary files is there, is this job's own, and can be written."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x")
        return Path(file.name).is_relative_to(os.environ["HOME"]) and os.fstat(file.fileno()).st_uid == os.getuid()


def person() -> dict[str, Any]:
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return {
        "uid": os.getuid(),
        "groups": os.getgroups(),
        "capabilities": int(status["CapEff"], 16) | int(status["CapPrm"], 16),
        "no_new_privileges": status["NoNewPrivs"] == "1",
    }


def strangers() -> list[int]:
    """Processes of other users."""
    pids = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if _owner(pid) not in (None, os.getuid())]


def _owner(pid: int) -> int | None:
    try:
        return Path("/proc", str(pid)).stat().st_uid
    except OSError:
        return None


def heeds(pid: int) -> bool:
    """A signal would arrive; 0 is none, and only asks."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def look(framework: str, addresses: Sequence[str], paths: Sequence[str]) -> dict[str, Any]:
    refused = {address: reaches(address) for address in addresses}
    others = strangers()
    memories = [f"/proc/{pid}/{name}" for pid in others for name in ("environ", "mem", "maps", "fd", "root")]
    return {
        **person(),
        "strangers": len(others),
        "signalled": [pid for pid in others if heeds(pid)],
        "reached": [address for address, why in refused.items() if why is None],
        "refused": sorted({why for why in refused.values() if why is not None}),
        "read": [path for path in (*paths, *memories) if opens(path)],
        "temporary": takes_a_file(),
        "secrets": sorted(name for name in os.environ if name.startswith("TRAINSHED_") and name.endswith(_SECRET)),
        "framework": None if framework == "-" else importlib.import_module(framework).__version__,
        "required": importlib.import_module("trainshed_probe_package").ANSWER,
    }


def main(arguments: Sequence[str]) -> None:
    framework, *rest = arguments
    middle = rest.index("--")
    found = look(framework, rest[:middle], rest[middle + 1 :])
    Path(os.environ["TRAINSHED_OUTPUT_DIR"], "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
