"""The worker's handle on python models that answer rows: a process for each model, the last few kept.

Safe to use from several threads. A model answers one request at a time, others meanwhile. Its process is ended when
nobody has asked for a while, when others are asked for, and whenever it does not behave.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from workers import user_answer
from workers.predictor_handle import PredictionRefused, PredictorGone
from workers.user_launch import UserCode
from workers.user_process import NotStarted, UserCodeEnded, UserProcess

LOAD_S: Final = 180.0
"""For a framework, the user's code and the weights; not counted: the packages, which may be installed first."""
ANSWER_S: Final = 60.0
MOST_BYTES: Final = 40 * 1024 * 1024
"""Of an answer, as the process writes it: more than a client may get, see `workers.answers`."""
_KEPT: Final = 2
_IDLE_S: Final = 120.0
_SLACK_S: Final = 30.0


class Starts(Protocol):
    """`workers.user_launch.UserLaunch`, as it is used here."""

    def start(self, code: UserCode, model: Path, within_s: float, cancelled: Callable[[], bool]) -> UserProcess: ...

    def boot_ns_in(self, seconds: float) -> int: ...


@dataclass
class _Seat:
    """A model's place: its process, if it runs; `askers` ask or wait now, and since `used_at` nobody does."""

    turn: threading.Lock = field(default_factory=threading.Lock)
    process: UserProcess | None = None
    askers: int = 0
    used_at: float = 0.0

    def end(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.close()


@dataclass(frozen=True)
class Asked:
    """The models' pool as the predictor of one job; see `workers.answers.Predictor`."""

    pool: "UserPredictors"
    code: UserCode

    def predict(self, model_dir: Path, request: Mapping[str, Any], timeout_s: float = ANSWER_S) -> dict[str, Any]:
        return self.pool.predict(self.code, model_dir, request, timeout_s)

    def stop(self) -> None:
        """Nothing: the pool is everybody's."""


class UserPredictors:
    """`kept`: how many models stay in memory while nobody asks them, for `idle_s` at most."""

    def __init__(
        self,
        launch: Starts,
        *,
        kept: int = _KEPT,
        idle_s: float = _IDLE_S,
        load_s: float = LOAD_S,
        answer_s: float = ANSWER_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._launch = launch
        self._kept = kept
        self._idle_s = idle_s
        self._load_s = load_s
        self._answer_s = answer_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._seats: dict[str, _Seat] = {}

    def of(self, code: UserCode) -> Asked:
        """This pool for one job."""
        return Asked(self, code)

    def predict(self, code: UserCode, model: Path, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Answer as `workers.predictor_handle.Predictor.predict` does. `model` is named after what is in it.

        Raises:
            PredictionRefused: the rows, the model's files or the user's code are at fault.
            PredictorGone: this host is, or there was no time.
        """
        until = self._monotonic() + timeout_s
        seat = self._seat_of(model.name)
        try:
            if not seat.turn.acquire(timeout=max(0.0, timeout_s)):
                raise PredictorGone(f"Other predictions with this model took the whole time of {timeout_s:g} s.")
            try:
                return self._ask(seat, code, model, request, until)
            finally:
                seat.turn.release()
        finally:
            self._leave(seat)

    def idle(self) -> None:
        """End what nobody has asked for a while; to be called from time to time."""
        self._end_unused(self._monotonic() - self._idle_s)

    def stop(self) -> None:
        """End all; harmless twice. Requests that are under way raise PredictorGone."""
        self._stopped.set()
        with self._lock:
            seats = list(self._seats.values())
        for seat in seats:
            process = seat.process
            if process is not None:
                process.kill()
        for seat in seats:
            with seat.turn:  # whoever asked has been told by now
                seat.end()

    def _ask(
        self, seat: _Seat, code: UserCode, model: Path, request: Mapping[str, Any], until: float
    ) -> dict[str, Any]:
        try:
            process = self._running(seat, code, model, until)
            process.extend(self._launch.boot_ns_in(self._answer_s + self._idle_s + _SLACK_S))
            line = json.dumps({"request": request}).encode()
            answer = process.ask(line, min(until - self._monotonic(), self._answer_s), MOST_BYTES)
            return user_answer.read(answer, request)
        except PredictionRefused:
            raise  # an answer like any other: the process stays
        except (NotStarted, UserCodeEnded, user_answer.NoAnswer) as error:
            seat.end()
            if isinstance(error, NotStarted) or self._stopped.is_set():
                raise PredictorGone(str(error)) from error
            raise PredictionRefused("user_code", f"The model's own code failed. {error}", []) from error
        except BaseException:
            seat.end()
            raise

    def _running(self, seat: _Seat, code: UserCode, model: Path, until: float) -> UserProcess:
        """The model's process, which has loaded it.

        Raises:
            PredictionRefused: it cannot be loaded; the process has ended.
        """
        if seat.process is not None and not seat.process.is_over:
            return seat.process
        seat.end()
        seat.process = self._launch.start(code, model, self._load_s + _SLACK_S, lambda: self._given_up(until))
        if self._stopped.is_set():  # whoever stopped did not see the process
            raise NotStarted("The worker stops.")
        try:
            within_s = min(until - self._monotonic(), self._load_s)
            user_answer.read_ready(seat.process.ask(b"{}", within_s, MOST_BYTES))
        except PredictionRefused:
            seat.end()
            raise
        return seat.process

    def _given_up(self, until: float) -> bool:
        return self._stopped.is_set() or self._monotonic() > until

    def _seat_of(self, name: str) -> _Seat:
        with self._lock:
            seat = self._seats.setdefault(name, _Seat())
            seat.askers += 1
        self._end_unused(None)
        return seat

    def _leave(self, seat: _Seat) -> None:
        with self._lock:
            seat.askers -= 1
            seat.used_at = self._monotonic()
        self._end_unused(None)

    def _end_unused(self, before: float | None) -> None:
        """End what nobody asks: what is too many, the longest unused first, or all unused since `before`."""
        with self._lock:
            unused = sorted((seat.used_at, name) for name, seat in self._seats.items() if not seat.askers)
            too_many = len(self._seats) - self._kept
            gone = [
                self._seats.pop(name)
                for place, (used_at, name) in enumerate(unused)
                if place < too_many or (before is not None and used_at < before)
            ]
        for seat in gone:
            seat.end()
