"""The worker of one host: registers it, beats, claims what is placed on it, and passes orders to its attempts.

The heartbeat is a thread of its own. It needs neither Celery nor Redis: a message only makes it beat at once, so a
lost message or a dead broker costs one interval.
"""

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import structlog
from sqlalchemy.orm import Session

from app.broker import CHANNEL_JOURNAL, CHANNEL_WANTED
from app.db import DatabaseDown
from app.errors import TrainshedError
from app.fleet import registry
from app.fleet.registry import DeviceFacts, WorkerFacts
from app.jobs import attempts, claims
from app.jobs.states import StopRequest
from workers.equipment import Equipment
from workers.inventory.telemetry import sample
from workers.settle import Settler
from workers.stopping import SECOND_NS, StopReason
from workers.supervisor import Supervisor
from workers.telemetry import Telemetry

log = structlog.get_logger("worker")

QUARANTINED: Final = "quarantined"
LAST_WORDS_S: Final = 5.0
"""Beyond the grace of a stop: how long the attempts may take to write their ends before the worker leaves them."""

Key = tuple[str, int]


@dataclass(frozen=True)
class Rhythm:
    """Times of the heartbeat, in seconds; a lease less its margin is how long a run survives without the database."""

    heartbeat_s: float
    lease_s: float
    margin_s: float

    def until(self, asked_boot_ns: int) -> int:
        """The deadline that a renewal gives, counted from before it was asked for, so that it errs early."""
        return asked_boot_ns + round((self.lease_s - self.margin_s) * SECOND_NS)


class Host:
    """One start of a host's worker; `facts.instance` is unique to it.

    `on_deposed` is called, from the heartbeat's thread, when another instance has taken the host over.
    """

    def __init__(
        self,
        facts: WorkerFacts,
        devices: Sequence[DeviceFacts],
        equipment: Equipment,
        rhythm: Rhythm,
        on_deposed: Callable[[], None],
    ) -> None:
        self._facts = facts
        self._devices = list(devices)
        self._equipment = replace(equipment, quarantine=self._quarantine)
        self._rhythm = rhythm
        self._on_deposed = on_deposed
        self._settler = Settler(equipment.database, equipment.lock_dir, facts.instance)
        self._changed = threading.Condition()
        self._attempts: dict[Key, Supervisor] = {}
        self._telemetry = Telemetry(partial(sample, equipment.nvml), equipment.telemetry_s, self._supervisors)
        self._stopping = False
        self._leaving = threading.Event()
        self._wake = threading.Event()
        self._swept = False
        self._database_answers = True
        self.worker_id: str | None = None
        self.registered = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to beat; registering, too, is tried again until the database answers. Needs the host's lock."""
        self._thread.start()
        self._telemetry.start()

    def wake(self) -> None:
        """Beat now instead of at the next interval; returns at once."""
        self._wake.set()

    def stop_claiming(self) -> None:
        """Take nothing new from now on; may be called from a signal handler, so it takes no lock."""
        self._stopping = True

    def stop(self) -> None:
        """Leave in good order: claim nothing, go offline, drain every attempt, write their ends. Harmless twice.

        Offline comes first: a device that a drained attempt frees must not be given to a job that nobody here claims.
        """
        self.stop_claiming()
        self._telemetry.stop()
        if self.worker_id is not None:
            self._go_offline(self.worker_id)
        self._drain()
        self._leaving.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(LAST_WORDS_S)

    def attend(self) -> None:
        """One beat: register if need be, renew, then carry out what the database answered.

        Nothing is told to a launcher when the database does not answer: its deadline decides.
        """
        if self.worker_id is None:
            self.worker_id = self._register()
            self.registered.set()
        asked = self._equipment.clock.boot_ns()
        database = self._equipment.database
        with database.write() as session:
            now, lease_s = database.now(session), self._rhythm.lease_s
            # Whether a lease may go on is judged here, by the boot clock: see `_pass_on`.
            beat = registry.heartbeat(session, self.worker_id, self._facts.instance, now, lease_s, ended_too=True)
            attention = attempts.attention(session, self.worker_id)
        if not beat.current:
            self._deposed()
            return
        self._pass_on(beat.renewed, attention.stops, self._rhythm.until(asked))
        for job_id, attempt in attention.unclaimed:
            self._claim_alone(self.worker_id, job_id, attempt)
        if beat.renewed - self._keys() - set(attention.unclaimed):
            self._settle(self.worker_id)

    def _beat(self) -> None:
        while not self._leaving.is_set():
            self._wake.clear()
            try:
                self.attend()
            except DatabaseDown:
                self._say_database_is(answering=False)
            except TrainshedError as error:
                log.error("heartbeat_refused", code=error.code, error=str(error))  # noqa: TRY400 - says it all
            except Exception:
                # Whatever it was, the next beat may go well, and without a beat every run of this host would end.
                log.exception("heartbeat_failed")
            else:
                self._say_database_is(answering=True)
            self._wake.wait(self._rhythm.heartbeat_s)

    def _register(self) -> str:
        """Register this instance, then settle what earlier ones left open, so that it runs again at once."""
        if not self._swept:
            self._settler.sweep_all()
            shutil.rmtree(self._equipment.run_dir / "work", ignore_errors=True)
            self._swept = True
        database = self._equipment.database
        with database.write() as session:
            worker_id = registry.register(session, self._facts, self._devices, database.now(session))
        log.info("registered", host_id=self._facts.host_id, worker_id=worker_id, devices=len(self._devices))
        self._settle(worker_id)
        return worker_id

    def _settle(self, worker_id: str) -> None:
        for job_id in self._settler.settle(worker_id, self._keys()):
            self._equipment.bell.ring(CHANNEL_JOURNAL, job_id)
        self._equipment.bell.ring(CHANNEL_WANTED)

    def _pass_on(self, renewed: set[Key], stops: dict[Key, StopRequest], until: int) -> None:
        """Give each run its new deadline, unless its old one has passed: then it is dying, whatever the database says.

        A lease row that is still there is this host's, also when the database's clock was set forward past its end.
        """
        with self._changed:
            running = dict(self._attempts)
        now = self._equipment.clock.boot_ns()
        for key, supervisor in running.items():
            if key in renewed and now < supervisor.until_boot_ns:
                supervisor.extend(until)
            elif supervisor.holds_devices:
                supervisor.stop(StopReason.FENCED)
            if key in stops:
                supervisor.stop(StopReason(stops[key].value))

    def _claim_alone(self, worker_id: str, job_id: str, attempt: int) -> None:
        """Claim; what goes wrong with one placement must not keep those behind it waiting."""
        try:
            self._claim(worker_id, job_id, attempt)
        except DatabaseDown:
            raise
        except Exception:
            log.exception("claim_failed", job_id=job_id, attempt=attempt)

    def _claim(self, worker_id: str, job_id: str, attempt: int) -> None:
        if self._is_stopping():
            return
        asked = self._equipment.clock.boot_ns()
        database = self._equipment.database
        with database.write() as session:
            claim = claims.claim(
                session,
                worker_id,
                self._facts.instance,
                job_id,
                attempt,
                database.now(session),
                self._rhythm.lease_s,
            )
        if claim is None:
            return
        supervisor = Supervisor(claim, self._equipment, self._rhythm.until(asked), self._ended)
        with self._changed:
            self._attempts[supervisor.key] = supervisor
            if self._is_stopping():
                supervisor.stop(StopReason.DRAIN)
        log.info("claimed", job_id=job_id, attempt=attempt)
        supervisor.start()

    def _is_stopping(self) -> bool:
        return self._stopping

    def _ended(self, supervisor: Supervisor) -> None:
        log.info("attempt_over", job_id=supervisor.key[0], attempt=supervisor.key[1])
        with self._changed:
            self._attempts.pop(supervisor.key, None)
            self._changed.notify_all()

    def _keys(self) -> set[Key]:
        with self._changed:
            return set(self._attempts)

    def _supervisors(self) -> list[Supervisor]:
        with self._changed:
            return list(self._attempts.values())

    def _deposed(self) -> None:
        log.error("host_taken_over", host_id=self._facts.host_id)
        self._stopping = True
        with self._changed:
            for supervisor in self._attempts.values():
                supervisor.stop(StopReason.FENCED)
        self._leaving.set()
        self._on_deposed()

    def _drain(self) -> None:
        with self._changed:
            for supervisor in self._attempts.values():
                supervisor.stop(StopReason.DRAIN)
            until = time.monotonic() + self._equipment.stop_grace_s + LAST_WORDS_S
            while self._attempts and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            rest = list(self._attempts.values())
        for supervisor in rest:
            log.error("attempt_left_to_next_start", job_id=supervisor.key[0], attempt=supervisor.key[1])
            supervisor.abandon()
        for supervisor in rest:
            supervisor.join(LAST_WORDS_S)

    def _go_offline(self, worker_id: str) -> None:
        database = self._equipment.database
        try:
            with database.write() as session:
                registry.set_offline(session, worker_id, self._facts.instance, database.now(session))
        except DatabaseDown:
            log.warning("not_set_offline")

    def _quarantine(self, session: Session, device_ids: Sequence[str], reason: str) -> None:
        """Mark devices as unusable until this worker starts again."""
        with self._changed:
            self._devices = [
                replace(device, health=QUARANTINED, reason=reason) if device.id in device_ids else device
                for device in self._devices
            ]
        if self.worker_id is not None:
            now = self._equipment.database.now(session)
            registry.record_devices(session, self.worker_id, self._devices, now)

    def _say_database_is(self, *, answering: bool) -> None:
        """Once per change, not once per beat."""
        if answering != self._database_answers:
            self._database_answers = answering
            if answering:
                log.info("database_answers_again")
            else:
                log.warning("database_does_not_answer")
