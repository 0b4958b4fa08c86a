"""The worker's handle on a predictor: a child process that keeps models in memory and answers rows.

Safe to use from several threads; requests are answered one at a time, in no fixed order. A child that died, or was
killed because a request took too long, is replaced at the next request.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from app.errors import TrainshedError
from workers.environment import trainer_environment

_BLOCK: Final = 1024 * 1024
_GONE_S: Final = 2.0
_NO_HOME: Final = Path("/nonexistent")  # it writes no files
_SHARE: Final = 16
"""A request may be this part of the child's memory: text, parsed numbers, encoded rows and layers need theirs, too."""


class PredictionRefused(TrainshedError):
    """The rows or the model cannot be used; asking again gives the same answer.

    `code` is one of `invalid_rows`, `artifact_unreadable`, `too_large`; `errors`: `{row, column, message}` each, at
    most 20, with None where it is not about one row or one column. Rows count from 1 in JSON, as in the file in CSV.
    """

    code: ClassVar[str] = "invalid_rows"

    def __init__(self, code: str, message: str, errors: list[dict[str, Any]]) -> None:
        super().__init__(message)
        self.code = code  # type: ignore[misc] # an error that came from another process keeps the code it had there
        self.errors = errors


class PredictorGone(TrainshedError):
    """The child ended or took too long; the request may be tried again, once."""

    code: ClassVar[str] = "unavailable"


@dataclass
class _Child:
    process: "subprocess.Popen[bytes]"
    connection: socket.socket

    def end(self) -> None:
        """End the process and give back what it had; it has nothing to finish."""
        self.connection.close()
        try:
            self.process.wait(_GONE_S if self.process.poll() is None else 0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kill(self) -> None:
        """End it in the middle of a request."""
        self.process.kill()
        self.end()


class Predictor:
    """One child. `start` may be left out: the first request starts it."""

    def __init__(
        self,
        *,
        interpreter: Path | None = None,
        memory_bytes: int = 2 * 1024**3,
        cache_bytes: int = 512 * 1024**2,
        threads: int = 1,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interpreter = interpreter or Path(sys.executable)
        self._memory_bytes = memory_bytes
        self._cache_bytes = cache_bytes
        self._threads = threads
        self._monotonic = monotonic
        self._turn = threading.Lock()
        self._child: _Child | None = None

    def start(self) -> None:
        """Start the child unless it runs; its imports take about a second, in which nobody has to wait for it."""
        with self._turn:
            self._running()

    def predict(self, model_dir: Path, request: Mapping[str, Any], timeout_s: float = 30.0) -> dict[str, Any]:
        """Answer `{"rows": [{column: value, …}, …]}` or `{"csv": "text of a CSV file"}`.

        Returns `{"task", "framework", "labels": […], "probabilities": [{label: p}, …], "warnings": […]}`, or for a
        regression `{"task", "framework", "values": […], "warnings": […]}`; as many answers as rows, in their order.
        Warnings are `{row, column, message}`. `timeout_s` counts from the call, waiting for other requests included.

        Raises:
            PredictionRefused: the rows or the model are at fault.
            PredictorGone: the process is.
        """
        deadline = self._monotonic() + timeout_s
        line = json.dumps({"model": str(model_dir.resolve()), "request": request}).encode() + b"\n"
        if len(line) > self._memory_bytes // _SHARE:
            limit = self._memory_bytes // _SHARE // 1024**2
            raise PredictionRefused("too_large", f"The rows take more than {limit} MB. Send fewer at a time.", [])
        if not self._turn.acquire(timeout=max(0.0, timeout_s)):
            raise PredictorGone(f"Other predictions took the whole time of {timeout_s:g} s.")
        try:
            answer = self._ask(line, deadline, timeout_s)
        finally:
            self._turn.release()
        if "error" in answer:
            error = answer["error"]
            raise PredictionRefused(error["code"], error["message"], error["errors"])
        found: dict[str, Any] = answer["answer"]
        return found

    def stop(self) -> None:
        """End the child; harmless twice. A request that is under way raises PredictorGone."""
        child = self._child
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                child.process.kill()
        with self._turn:
            if self._child is not None:
                self._child.end()
                self._child = None

    def _ask(self, line: bytes, deadline: float, timeout_s: float) -> dict[str, Any]:
        child = self._running()
        try:
            self._send(child.connection, line, deadline)
            answer: dict[str, Any] = json.loads(self._receive(child.connection, deadline))
        except TimeoutError as error:
            self._drop(child)
            raise PredictorGone(f"The prediction took longer than {timeout_s:g} s.") from error
        except (OSError, ValueError) as error:
            self._drop(child)
            raise PredictorGone("The process that predicts has ended; perhaps its memory was full.") from error
        except BaseException:
            self._drop(child)  # an answer that nobody took would be given to the next request
            raise
        return answer

    def _send(self, connection: socket.socket, line: bytes, deadline: float) -> None:
        connection.settimeout(self._left(deadline))
        connection.sendall(line)

    def _receive(self, connection: socket.socket, deadline: float) -> bytes:
        parts: list[bytes] = []
        while not parts or not parts[-1].endswith(b"\n"):
            connection.settimeout(self._left(deadline))
            part = connection.recv(_BLOCK)
            if not part:
                raise ConnectionError("the child has closed its end")
            parts.append(part)
        return b"".join(parts)

    def _left(self, deadline: float) -> float:
        left = deadline - self._monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _drop(self, child: _Child) -> None:
        child.kill()
        self._child = None

    def _running(self) -> _Child:
        if self._child is not None and self._child.process.poll() is not None:
            self._child.end()
            self._child = None
        if self._child is None:
            self._child = self._started()
        return self._child

    def _started(self) -> _Child:
        with contextlib.ExitStack() as undo:
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            limits = ["--memory", str(self._memory_bytes), "--cache", str(self._cache_bytes)]
            command = [str(self._interpreter), "-P", "-m", "workers.predictor", "--socket", str(theirs.fileno())]
            try:
                with theirs:
                    process = subprocess.Popen(
                        [*command, *limits],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        pass_fds=[theirs.fileno()],
                        cwd="/",
                        env=trainer_environment([], self._threads, _NO_HOME, os.environ),
                        start_new_session=True,
                    )
            except OSError as error:
                raise PredictorGone(f"The process that predicts does not start: {error.strerror}.") from error
            undo.pop_all()
            return _Child(process, ours)
