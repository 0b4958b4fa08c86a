"""The control loop: schedule when rung or each second, reconcile every few seconds, tell workers there is something.

It needs the database, not Redis. Several copies may run: passes take turns by a lock in the database.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Final

import structlog

from app.broker import CHANNEL_JOURNAL, CHANNEL_WANTED, WAKE_TASK, Bell, Listener, Publisher, celery_app, queue_of
from app.clock import Clock, SystemClock
from app.db import Database
from app.errors import TrainshedError, Unavailable
from app.jobs.retention import forget_keys
from app.migrations_runner import is_current
from app.predictions import upkeep
from app.scheduling.reconcile import due_hints, reconcile
from app.scheduling.run import Placed, Times, schedule
from app.scheduling.steadiness import Steadiness
from app.settings import Settings

log = structlog.get_logger("control")

_REPEAT_HINT_S: Final = 3.0
_AFTER_FAULT_S: Final = 1.0
_CLEANING_S: Final = 3600.0


@dataclass(frozen=True)
class Pace:
    """Seconds between looks when nobody rings, and between reconciliations."""

    idle_s: float
    reconcile_s: float


class Control:
    """The loop, with everything it touches handed in. `tell` must not block; `ring` announces journal entries.

    `clock` is this machine's; only its boot clock is asked, to notice that the database's clock was set.
    """

    def __init__(
        self,
        database: Database,
        times: Times,
        pace: Pace,
        tell: Callable[[Placed], None],
        ring: Callable[[str], None],
        clock: Clock | None = None,
    ) -> None:
        self._database = database
        self._times = times
        self._pace = pace
        self._tell = tell
        self._ring = ring
        self._clock = clock or SystemClock()
        self._steadiness = Steadiness(times.lease_s)
        self._next_cleaning = 0.0
        self._bell = threading.Event()
        self._stop = threading.Event()

    def wake(self) -> None:
        """Ask for a pass now; may be called from any thread or a signal handler."""
        self._bell.set()

    def stop(self) -> None:
        self._stop.set()
        self._bell.set()

    def wait_for_schema(self) -> None:
        """Return once the database has this code's schema, or when it is time to stop; said once, not each second."""
        said = False
        while not self._stop.is_set():
            with contextlib.suppress(TrainshedError), self._database.read() as session:
                if is_current(session):
                    return
            if not said:
                log.warning("schema_not_ready", hint="The database lacks this version's schema; run: trainshed migrate")
                said = True
            self._stop.wait(_AFTER_FAULT_S)

    def run(self) -> None:
        """Work until `stop`; a fault is logged, at most once per second and step, and never ends the loop."""
        next_reconcile = 0.0
        while not self._stop.is_set():
            # Cleared before the work, so that a ring during it is not lost.
            rung = self._bell.is_set()
            self._bell.clear()
            due = time.monotonic() >= next_reconcile
            steps: list[Callable[[], object]] = [self.pass_once]
            if rung or due:
                steps.append(self.tell_again)
            if due:
                steps += [self.reconcile_once, self.clean_up]
                next_reconcile = time.monotonic() + self._pace.reconcile_s
            if not self._all_went_well(steps):
                self._stop.wait(_AFTER_FAULT_S)
            self._bell.wait(self._pace.idle_s)

    def _all_went_well(self, steps: Sequence[Callable[[], object]]) -> bool:
        """Take each step, also after one that failed: a queue that cannot be planned must not keep leases from ending.

        Only when the database does not answer is the rest put off.
        """
        failed = False
        for step in steps:
            try:
                step()
            except TrainshedError as error:
                failed = True
                log.warning("pass_failed", code=error.code, error=str(error))
                if isinstance(error, Unavailable):
                    break
            except Exception:
                failed = True
                log.exception("pass_failed")
        return not failed

    def pass_once(self) -> list[Placed]:
        placed = schedule(self._database, self._times)
        for placement in placed:
            log.info("placed", job_id=placement.job_id, attempt=placement.attempt, worker_id=placement.worker_id)
            self._tell(placement)
            self._ring(placement.job_id)
        return placed

    def tell_again(self) -> None:
        for hint in due_hints(self._database, _REPEAT_HINT_S):
            self._tell(hint)

    def reconcile_once(self) -> None:
        """Settle what is overdue; not while the database's clock cannot say what is."""
        with self._database.read() as session:
            wall = self._database.now(session)
        boot_ns = self._clock.boot_ns()
        jump_s = self._steadiness.look(wall, boot_ns)
        if jump_s:
            log.warning("clock_jumped", seconds=round(jump_s, 1), reconciles_again_after_s=self._times.lease_s)
        if not self._steadiness.is_steady(boot_ns):
            return
        ended = upkeep.settle(self._database, self._times.offline_after_s)
        if ended:
            log.info("model_tasks_settled", count=ended)
        settled = reconcile(self._database, self._times)
        for item in settled:
            log.warning("attempt_settled", job_id=item.job_id, attempt=item.attempt, cause=item.cause.value)
            self._ring(item.job_id)
        if settled:
            self.wake()

    def clean_up(self) -> None:
        """Forget, each hour, what nobody can ask for any more."""
        if time.monotonic() < self._next_cleaning:
            return
        with self._database.read() as session:
            now = self._database.now(session)
        forgotten = {
            "idempotency_keys": forget_keys(self._database, now),
            "model_tasks": upkeep.forget(self._database, now),
        }
        self._next_cleaning = time.monotonic() + _CLEANING_S
        if any(forgotten.values()):
            log.info("forgotten", **forgotten)


def times_of(settings: Settings) -> Times:
    return Times(claim_s=settings.claim_s, lease_s=settings.lease_s, offline_after_s=max(3 * settings.heartbeat_s, 3.0))


def main(settings: Settings) -> None:
    """Run the loop until SIGTERM or SIGINT."""
    database = Database(settings.effective_database_url, synchronous=settings.sqlite_synchronous, pool_size=5)
    url = settings.broker_url or None
    bell = Bell(url)
    hints: Publisher | None = None
    if url is not None:
        app = celery_app(url)

        def send(placement: Placed) -> None:
            arguments = [placement.job_id, placement.attempt]
            app.send_task(WAKE_TASK, args=arguments, queue=queue_of(placement.worker_id), retry=False)

        hints = Publisher("hints", send)
        hints.start()

    def tell(placement: Placed) -> None:
        if hints is not None:
            hints.hand_in(placement)

    control = Control(
        database,
        times_of(settings),
        Pace(idle_s=settings.control_idle_s, reconcile_s=settings.reconcile_s),
        tell=tell,
        ring=lambda job_id: bell.ring(CHANNEL_JOURNAL, job_id),
    )

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        control.stop()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    listener = Listener(url, [CHANNEL_WANTED], lambda _channel, _text: control.wake(), control.wake) if url else None
    bell.start()
    if listener is not None:
        listener.start()
    try:
        control.wait_for_schema()
        log.info("control_ready")
        control.run()
    finally:
        if listener is not None:
            listener.stop()
        if hints is not None:
            hints.stop()
        bell.stop()
        database.dispose()
