"""The host's end of the message socket: lines of JSON, as `workers.protocol` reads them, without needing it.

Sending blocks while the worker is slow, which is no deadlock: the worker always drains. When the worker is gone there
is nobody to run for, and the host leaves; its death ends the script.
"""

import json
import socket
from collections.abc import Iterable, Sequence
from typing import Any, Final

from app.errors import Cause
from app.series.nonfinite import to_json

LINE_LIMIT: Final = 1024 * 1024
"""The longest line in bytes that the worker takes, as in `workers.protocol`."""
POINTS_LIMIT: Final = 4_000
"""Points in one report."""
_POINTS_BYTES: Final = 512 * 1024
NOTICE_CHARACTERS: Final = 1_000
MESSAGE_CHARACTERS: Final = 4_000
WORKER_GONE: Final = 4
"""Exit status: the worker closed its end."""
_BLOCK: Final = 65_536

Point = tuple[str, int, int, float]
"""Name, step, epoch, value."""


class WorkerGone(SystemExit):
    """The worker closed its end. Not an error to be caught: the process leaves."""

    def __init__(self) -> None:
        super().__init__(WORKER_GONE)


class Channel:
    """Messages out, and the request to stop in."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._rest = b""

    def fileno(self) -> int:
        return self._end.fileno()

    def notice(self, code: str, message: str) -> None:
        self._send({"type": "notice", "code": code, "message": message[:NOTICE_CHARACTERS]})

    def started(self, facts: dict[str, Any]) -> None:
        self._send({"type": "started", **facts})

    def report(self, points: Sequence[Point], epoch: int, step: int, progress: dict[str, Any]) -> None:
        """Send points, in several messages when they are many or their names long."""
        for part in _parts(points):
            self._line(
                f'{{"type":"report","epoch":{epoch},"step":{step},"points":[{part}],"progress":{json.dumps(progress)}}}'
            )

    def artifact(self, name: str, path: str, media_type: str) -> None:
        self._send({"type": "artifact", "name": name, "path": path, "media_type": media_type, "kind": "output"})

    def checkpoint(
        self, path: str, step: int, epoch: int, metrics: dict[str, float], *, reason: str, best: bool
    ) -> None:
        facts = {"step": step, "epoch": epoch, "path": path, "reason": reason, "best": best}
        self._send({"type": "checkpoint", **facts, "metrics": _numbers(metrics)})

    def done(self, metrics: dict[str, float], facts: dict[str, Any]) -> None:
        """The last message of a run that ended well, or that was stopped."""
        self._send({"type": "done", "metrics": _numbers(metrics), **facts})

    def failed(self, cause: Cause, message: str) -> None:
        """The last message of a run that did not end well.

        Without a detail: the script's last output is in the log already, and belongs into the message.
        """
        self._send({"type": "failed", "cause": cause.value, "message": message[:MESSAGE_CHARACTERS]})

    def stop_reasons(self) -> list[str]:
        """The reasons of the stops that have come since the last call; does not block."""
        try:
            data = self._end.recv(_BLOCK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except ConnectionResetError:
            raise WorkerGone from None
        if not data:
            raise WorkerGone
        *lines, self._rest = (self._rest + data).split(b"\n")
        messages = [json.loads(line) for line in lines if line.strip()]
        return [message["reason"] for message in messages if message["type"] == "stop"]

    def _send(self, message: dict[str, Any]) -> None:
        self._line(json.dumps(message, ensure_ascii=False))

    def _line(self, text: str) -> None:
        # Halves of surrogate pairs, which a script can print and a file name can hold, are no UTF-8.
        try:
            self._end.sendall(text.encode("utf-8", "replace") + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            raise WorkerGone from None


def _numbers(values: dict[str, float]) -> dict[str, float | str]:
    return {name: to_json(value) for name, value in values.items()}


def _parts(points: Iterable[Point]) -> Iterable[str]:
    """The points as JSON, in parts that fit into one message each; one empty part for no points."""
    part: list[str] = []
    size = 0
    for name, step, epoch, value in points:
        point = {"name": name, "step": step, "epoch": epoch, "value": to_json(value)}
        text = json.dumps(point, ensure_ascii=False)
        bytes_of_it = len(text.encode("utf-8", "replace"))
        if part and (len(part) == POINTS_LIMIT or size + bytes_of_it > _POINTS_BYTES):
            yield ",".join(part)
            part, size = [], 0
        part.append(text)
        size += bytes_of_it
    yield ",".join(part)
