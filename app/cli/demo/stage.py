"""A whole service for as long as a block lasts: `trainshed up` as a child, in a home of its own."""

import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from app.cli.connection import Connection
from app.cli.errors import NOT_SUCCEEDED, CliError
from app.cli.up.child import Child, Program

# What would lead the demo to somebody's real service or data.
_NOT_OURS: Final = (
    "DATABASE_URL",
    "BROKER_URL",
    "STORAGE_URL",
    "RUN_DIR",
    "HOST",
    "PORT",
    "ALLOWED_HOSTS",
    "URL",
    "KEY",
)
_PREFIX: Final = "TRAINSHED_"
_STOP_S: Final = 60.0


class ServiceFailed(CliError):
    """The service did not start; its own words follow."""

    code = "cannot_start"
    exit_code = NOT_SUCCEEDED

    def __init__(self, said: str) -> None:
        self.said = said
        super().__init__("The demo's service did not start.")

    @property
    def lines(self) -> list[str]:
        return self.said.splitlines()


def environment(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """The caller's environment without what belongs to a service of the caller.

    Two CPU devices, unless the caller says otherwise: a machine with few cores would have one.
    """
    strange = {f"{_PREFIX}{name}{end}" for name in _NOT_OURS for end in ("", "_FILE")}
    kept = {name: value for name, value in environ.items() if name not in strange}
    return {f"{_PREFIX}CPU_SLOTS": "2", **kept, "TRAINSHED_HOME": str(home)}


@contextlib.contextmanager
def service(environ: Mapping[str, str], *, keep: bool) -> Iterator[tuple[Connection, Path]]:
    """Address, key and home of a running service; everything ends with the block, the files too unless `keep`.

    Raises:
        ServiceFailed: it did not start.
    """
    home = Path(tempfile.mkdtemp(prefix="trainshed-demo-"))
    command = (sys.executable, "-P", "-m", "app.cli.up", "--json")
    try:
        child = Child(Program("up", command, environment(environ, home), home / "up.log"), keep_output=True)
        try:
            line = child.first_line()
            if not line:
                raise ServiceFailed(child.last_lines())
            ready = json.loads(line)
            yield Connection(ready["url"], ready["key"]), home
        finally:
            child.terminate()
            child.wait(_STOP_S)
            child.kill()
            child.output()
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)
