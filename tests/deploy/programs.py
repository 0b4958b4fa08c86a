"""Stand-ins for what the compose test talks to: Docker's programs, and the API of a running stack.

The programs are small scripts on a PATH of their own; each writes its arguments into `calls`, one call a line.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from scripts.compose_test.service import Service

# What the scripts themselves call; everything else of the machine is out of reach.
_TOOLS: Final = ("sh", "cat", "sleep", "tar", "env", "mkdir", "touch", "grep")


class Programs:
    """A folder of programs: what a machine has installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        folder.mkdir()
        for tool in _TOOLS:
            found = next(Path(place) / tool for place in ("/bin", "/usr/bin") if (Path(place) / tool).exists())
            (folder / tool).symlink_to(found)

    def add(self, name: str, script: str = "") -> None:
        """Install `name`; the script sees its arguments as $*."""
        file = self.folder / name
        file.write_text(f'#!/bin/sh\necho "{name} $*" >> "{self.calls}"\n{script}\n')
        file.chmod(0o755)

    def environ(self, **more: str) -> dict[str, str]:
        return {"PATH": os.fspath(self.folder), **more}

    def called(self, prefix: str = "") -> list[str]:
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [line for line in lines if line.startswith(prefix)]


def service_that_answers(answers: Mapping[str, Any]) -> Service:
    """A service whose API knows these paths (`"GET /v1/x"`); a list is answered in turn, its last for ever."""
    left = {key: list(value) if isinstance(value, list) else [value] for key, value in answers.items()}

    def handle(request: httpx.Request) -> httpx.Response:
        queue = left.get(f"{request.method} {request.url.path}")
        if queue is None:
            return httpx.Response(404, text="not here")
        content = queue.pop(0) if len(queue) > 1 else queue[0]
        if isinstance(content, httpx.Response):
            return content
        if isinstance(content, Exception):
            raise content
        return httpx.Response(200, content=json.dumps(content).encode())

    return Service("http://stack.test", "ts_key", httpx.MockTransport(handle))
