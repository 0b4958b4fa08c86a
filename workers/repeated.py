"""Calls something again and again from a thread of its own, and knows when a call does not come back."""

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

import structlog

from app.clock import Clock
from workers.stopping import SECOND_NS

log = structlog.get_logger("worker")

T = TypeVar("T")


class Repeated:
    """`work` is called every `interval_s` seconds, first after one interval; a fault of it is logged, and ends nothing.

    A driver or a file system may block for good. Then the thread is lost, and only that: nobody waits for it.
    """

    def __init__(self, name: str, interval_s: float, work: Callable[[], object], clock: Clock) -> None:
        self._name = name
        self._interval_s = interval_s
        self._work = work
        self._clock = clock
        self._since_ns: int | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Call no more; does not wait for a call that is under way. Harmless twice, and before a start."""
        self._stop.set()

    def call(self) -> None:
        """One call now, in the caller's thread."""
        self._since_ns = self._clock.boot_ns()
        try:
            self._work()
        except Exception:
            log.exception("repeated_work_failed", work=self._name)
        finally:
            self._since_ns = None

    @property
    def under_way_s(self) -> float:
        """For how long the present call has been going on; 0 between calls."""
        since_ns = self._since_ns
        return 0.0 if since_ns is None else (self._clock.boot_ns() - since_ns) / SECOND_NS

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.call()


def within(limit_s: float, work: Callable[[], T], otherwise: T) -> T:
    """The result of `work`, or `otherwise` when it takes longer; its thread is then left to itself.

    Raises:
        Exception: whatever `work` raised in time.
    """
    results: queue.SimpleQueue[T | Exception] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put(work())
        except Exception as error:  # noqa: BLE001 - raised again in the thread that waits
            results.put(error)

    threading.Thread(target=run, name="within", daemon=True).start()
    try:
        result = results.get(timeout=limit_s)
    except queue.Empty:
        return otherwise
    if isinstance(result, Exception):
        raise result
    return result
