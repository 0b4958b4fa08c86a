"""The trainer's end of the message socket, and the context that training code gets: what it says goes to the worker.

Sending blocks while the worker is slow, which is no deadlock: the worker always drains, it never waits for the
trainer. When the worker is gone there is nobody to train for, and the trainer leaves.
"""

import socket
import types
from pathlib import Path
from typing import Final

from workers.protocol import (
    Artifact,
    ArtifactKind,
    Checkpoint,
    Decoder,
    Done,
    Failed,
    Message,
    Notice,
    ProtocolError,
    Report,
    Started,
    Stop,
    encode,
)

POINTS_LIMIT: Final = 4_000
"""Points in one report: far below the limit of a line, and a long report is cut into several."""

WORKER_GONE: Final = 4

TERMINATED: Final = "terminated"
"""The reason to stop that SIGTERM stands for when no message came before it."""


class WorkerGone(SystemExit):
    """The worker closed its end. Not an error to be caught: the process leaves, with status 4."""

    def __init__(self) -> None:
        super().__init__(WORKER_GONE)


class Channel:
    """Messages out, and the request to stop in: by a message, or by SIGTERM."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._decoder = Decoder()
        self._stop: str | None = None

    def on_signal(self, _signum: int, _frame: types.FrameType | None) -> None:
        """A handler for SIGTERM: leave at the next safe point; how long that may take is the worker's affair."""
        self._stop = self._stop or TERMINATED

    def send(self, message: Started | Report | Notice | Artifact | Checkpoint | Done | Failed) -> None:
        try:
            self._end.sendall(encode(message))
        except (BrokenPipeError, ConnectionResetError):
            raise WorkerGone from None

    def stop_reason(self) -> str | None:
        """Why to leave, or None; reads what has come, at the cost of one system call. The first message stays."""
        if self._stop is None or self._stop == TERMINATED:
            reasons = (message.reason for message in self._received() if isinstance(message, Stop))
            self._stop = next(reasons, self._stop)
        return self._stop

    def _received(self) -> list[Message]:
        try:
            data = self._end.recv(65536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except ConnectionResetError:
            raise WorkerGone from None
        if not data:
            raise WorkerGone
        try:
            return self._decoder.feed(data)
        except ProtocolError as error:
            return error.messages


class ChannelContext:
    """`workers.context.Context` over a channel."""

    def __init__(self, channel: Channel, work_dir: Path) -> None:
        self._channel = channel
        self._work_dir = work_dir

    def report(self, report: Report) -> None:
        for start in range(0, max(len(report.points), 1), POINTS_LIMIT):
            points = report.points[start : start + POINTS_LIMIT]
            self._channel.send(report.model_copy(update={"points": points}))

    def notice(self, code: str, message: str) -> None:
        self._channel.send(Notice(code=code, message=message))

    def artifact(self, name: str, path: Path, media_type: str, kind: ArtifactKind) -> None:
        """Announce a file; `path` is relative to the work directory or inside it, else ValueError."""
        inside = (self._work_dir / path).relative_to(self._work_dir)
        self._channel.send(Artifact(name=name, path=str(inside), media_type=media_type, kind=kind))

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        self._channel.send(checkpoint)

    def stop_reason(self) -> str | None:
        return self._channel.stop_reason()
