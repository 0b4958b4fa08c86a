"""The control loop: schedule when rung or each second, reconcile every few seconds, tell workers there is something.

It needs the database, not Redis. Several copies may run: passes take turns by a lock in the database.
"""

import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from typing import Final

import structlog

from app import metering
from app.beacon import AT, CONTROL_BEACON, write_beacon
from app.broker import CHANNEL_JOURNAL, CHANNEL_WANTED, WAKE_TASK, Bell, Listener, Publisher, celery_app, queue_of
from app.clock import Clock, SystemClock
from app.db import Database
from app.errors import TrainshedError, Unavailable
from app.holds.upkeep import expire
from app.migrations_runner import wait_for_schema
from app.predictions import upkeep
from app.retention.housekeeping import Housekeeping, chores
from app.retention.upkeep import Kept, Retention
from app.scheduling.reconcile import due_hints, reconcile
from app.scheduling.run import Placed, Times, schedule
from app.scheduling.steadiness import Steadiness
from app.settings import Settings
from app.storage import configured_storage

log = structlog.get_logger("control")

_REPEAT_HINT_S: Final = 3.0
_AFTER_FAULT_S: Final = 1.0

Steps = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Pace:
    """Seconds between looks when nobody rings, between reconciliations, and to wait for the schema at the start."""

    idle_s: float
    reconcile_s: float
    schema_wait_s: float = 300.0


class Control:
    """The loop, with everything it touches handed in. `tell` must not block; `ring` announces journal entries.

    `clock` is this machine's; only its boot clock is asked, to notice that the database's clock was set. `beat` is
    called after each round, also after one that failed: it says that the loop goes round, not that all is well.
    """

    def __init__(
        self,
        database: Database,
        times: Times,
        pace: Pace,
        tell: Callable[[Placed], None],
        ring: Callable[[str], None],
        clock: Clock | None = None,
        beat: Callable[[], object] = lambda: None,
    ) -> None:
        self._database = database
        self._times = times
        self._pace = pace
        self._tell = tell
        self._ring = ring
        self._clock = clock or SystemClock()
        self._beat = beat
        self._steadiness = Steadiness(times.lease_s)
        self._bell = threading.Event()
        self._stop = threading.Event()

    def wake(self) -> None:
        """Ask for a pass now; may be called from any thread or a signal handler."""
        self._bell.set()

    def stop(self) -> None:
        self._stop.set()
        self._bell.set()

    def wait_for_schema(self) -> bool:
        """Whether the database has this code's schema; False when it is time to stop.

        Raises:
            SchemaNotUsable: it is newer than this code, or was not there in time.
        """
        if self._stop.is_set():
            return False
        return wait_for_schema(self._database, self._clock, self._pace.schema_wait_s, self._stop.wait)

    def run(self) -> None:
        """Work until `stop`; a fault is logged, at most once per second and step, and never ends the loop."""
        next_reconcile = 0.0
        while not self._stop.is_set():
            # Cleared before the work, so that a ring during it is not lost.
            rung = self._bell.is_set()
            self._bell.clear()
            due = time.monotonic() >= next_reconcile
            steps: dict[str, Callable[[], object]] = {"schedule": self.pass_once}
            if rung or due:
                steps["tell"] = self.tell_again
            if due:
                steps |= {"reconcile": self.reconcile_once, "holds": self.end_holds}
                next_reconcile = time.monotonic() + self._pace.reconcile_s
            went_well = self._all_went_well(steps)
            self._beat()
            if not went_well:
                self._stop.wait(_AFTER_FAULT_S)
            self._bell.wait(self._pace.idle_s)

    def _all_went_well(self, steps: Steps) -> bool:
        """Take each step, also after one that failed: a queue that cannot be planned must not keep leases from ending.

        Only when the database does not answer is the rest put off.
        """
        failed = False
        for name, step in steps.items():
            try:
                step()
            except TrainshedError as error:
                failed = True
                metering.step_failures.labels(name).inc()
                log.warning("pass_failed", step=name, code=error.code, error=str(error))
                if isinstance(error, Unavailable):
                    break
            except Exception:
                failed = True
                metering.step_failures.labels(name).inc()
                log.exception("pass_failed", step=name)
        return not failed

    def pass_once(self) -> list[Placed]:
        with metering.pass_duration.time():
            placed = schedule(self._database, self._times)
        metering.scheduler_last_success.set_to_current_time()
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
        if self._steadiness.is_steady(boot_ns):
            self._settle()
        # Also while it waits for a clock: what is watched is that it looks.
        metering.reconciler_last_success.set_to_current_time()

    def _settle(self) -> None:
        ended = upkeep.settle(self._database, self._times.offline_after_s)
        if ended:
            log.info("model_tasks_settled", count=ended)
        settled = reconcile(self._database, self._times)
        for item in settled:
            log.warning("attempt_settled", job_id=item.job_id, attempt=item.attempt, cause=item.cause.value)
            self._ring(item.job_id)
        if settled:
            self.wake()

    def end_holds(self) -> None:
        """Take back devices whose hold is over, by a clock that can say so; somebody may wait for them."""
        if self._steadiness.is_steady(self._clock.boot_ns()) and expire(self._database):
            self.wake()


def times_of(settings: Settings) -> Times:
    return Times(claim_s=settings.claim_s, lease_s=settings.lease_s, offline_after_s=max(3 * settings.heartbeat_s, 3.0))


def main(settings: Settings) -> None:
    """Run the loop until SIGTERM or SIGINT."""
    with ExitStack() as closing:
        database = Database(settings.effective_database_url, synchronous=settings.sqlite_synchronous, pool_size=5)
        closing.callback(database.dispose)
        bell = Bell(settings.broker_url or None)
        control = Control(
            database,
            times_of(settings),
            Pace(settings.control_idle_s, settings.reconcile_s, settings.schema_wait_s),
            tell=_teller(settings.broker_url, closing),
            ring=lambda job_id: bell.ring(CHANNEL_JOURNAL, job_id),
            beat=_beacon(settings),
        )
        _stop_on_signals(control)
        closing.enter_context(
            metering.exposed(settings.metrics_address, settings.metrics_port, metering.ANY, metering.CONTROL)
        )
        closing.callback(bell.stop)
        bell.start()
        if settings.broker_url:
            listener = Listener(
                settings.broker_url, [CHANNEL_WANTED], lambda _channel, _text: control.wake(), control.wake
            )
            closing.callback(listener.stop)
            listener.start()
        if control.wait_for_schema():
            closing.callback(_start_housekeeping(settings, database).stop)
            log.info("control_ready")
            control.run()


def _teller(broker_url: str, closing: ExitStack) -> Callable[[Placed], None]:
    """What tells a worker by the broker, without waiting for it; nobody is told where there is none."""
    if not broker_url:
        return lambda _placement: None
    app = celery_app(broker_url)

    def send(placement: Placed) -> None:
        arguments = [placement.job_id, placement.attempt]
        with metering.dispatch_failures.count_exceptions():
            app.send_task(WAKE_TASK, args=arguments, queue=queue_of(placement.worker_id), retry=False)
        metering.dispatch_published.inc()

    hints = Publisher("hints", send)
    closing.callback(hints.stop)
    hints.start()
    return hints.hand_in


def _beacon(settings: Settings) -> Callable[[], object]:
    path, clock = settings.effective_run_dir / CONTROL_BEACON, SystemClock()
    return lambda: write_beacon(path, {AT: clock.boot_ns()})


def _stop_on_signals(control: Control) -> None:
    def on_signal(_number: int, _frame: FrameType | None) -> None:
        control.stop()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)


def _start_housekeeping(settings: Settings, database: Database) -> Housekeeping:
    kept = Kept(settings.keep_jobs_days, settings.keep_checkpoints_days)
    keeper = Housekeeping(chores(database, Retention(database, configured_storage(settings), kept)))
    keeper.start()
    return keeper
