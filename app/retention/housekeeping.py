"""What is cleaned up now and then, beside the control loop: listing a storage may take minutes, and no job waits."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from app import metering
from app.db import Database
from app.jobs.retention import forget_keys
from app.predictions import upkeep
from app.retention.upkeep import Retention

log = structlog.get_logger("control")

HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S
_LOOK_S: Final = 60.0


@dataclass(frozen=True)
class Chore:
    """Something to do every so many seconds; it answers how much there was of it."""

    every_s: float
    do: Callable[[], int]


def chores(database: Database, retention: Retention) -> dict[str, Chore]:
    """What a deployment needs. Files that nobody names are looked for once a day: that lists the whole storage."""

    def forget(what: Callable[..., int]) -> int:
        with database.read() as session:
            now = database.now(session)
        return what(database, now)

    def sweep() -> int:
        swept = retention.sweep(orphans=False)
        return len(swept.jobs) + len(swept.checkpoints)

    return {
        "idempotency_keys": Chore(HOUR_S, lambda: forget(forget_keys)),
        "model_tasks": Chore(HOUR_S, lambda: forget(upkeep.forget)),
        "kept_long_enough": Chore(HOUR_S, sweep),
        "orphaned_files": Chore(DAY_S, lambda: len(retention.sweep().files)),
    }


class Housekeeping:
    """Does each chore at the start and then when it is due; one that fails is tried again at the next look."""

    def __init__(self, todo: Mapping[str, Chore], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._todo = dict(todo)
        self._clock_s = clock_s
        self._next = dict.fromkeys(self._todo, clock_s())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Do nothing more. What is being done is left to itself: every step of it may be cut off."""
        self._stop.set()

    def look(self) -> None:
        """Do what is due."""
        for name, chore in self._todo.items():
            if self._stop.is_set() or self._clock_s() < self._next[name]:
                continue
            try:
                found = chore.do()
            except Exception as error:
                metering.step_failures.labels("housekeeping").inc()
                log.warning("chore_failed", chore=name, error=str(error), exc_info=error)
                continue
            self._next[name] = self._clock_s() + chore.every_s
            metering.housekeeping_last_success.set_to_current_time()
            if found:
                log.info("cleaned_up", chore=name, count=found)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.look()
            self._stop.wait(_LOOK_S)
