"""The worker of one host: registers it, beats, claims what is placed on it, and passes orders to its attempts.

The heartbeat is a thread of its own. It needs neither Celery nor Redis: a message only makes it beat at once, so a
lost message or a dead broker costs one interval.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog
from sqlalchemy.orm import Session

from app.beacon import WORKER_BEACON, write_beacon
from app.broker import CHANNEL_JOURNAL, CHANNEL_WANTED
from app.db import DatabaseDown
from app.errors import TrainshedError
from app.fleet import registry
from app.fleet.devices import quarantine
from app.fleet.registry import HostReport, WorkerFacts
from app.jobs import attempts, claims
from app.jobs.states import StopRequest
from app.logs import bind_process
from app.metering import lease_renewal_failures, running_attempts
from app.migrations_runner import SchemaNotUsable, wait_for_schema
from workers.device_board import DeviceBoard
from workers.equipment import Equipment
from workers.inventory.telemetry import sampler_of
from workers.ownership import remove_tree
from workers.settle import Settler
from workers.stopping import SECOND_NS, StopReason
from workers.supervisor import Supervisor
from workers.surroundings import Surroundings
from workers.telemetry import Telemetry

log = structlog.get_logger("worker")

LAST_WORDS_S: Final = 5.0
"""Beyond the grace of a stop: how long the attempts may take to write their ends before the worker leaves them."""

REPLACED: Final = 0
CANNOT_START: Final = 2
BLIND: Final = 3
"""Exit codes of a worker that leaves by itself: another start has this host now; the schema is not usable; the driver
has not answered for too long, and a restart of the container may bring it back."""

Key = tuple[str, int]


@dataclass(frozen=True)
class Limits:
    """Seconds: how long to wait for the schema at the start, and without a driver while nothing runs; 0 is for ever."""

    schema_wait_s: float = 300.0
    blind_exit_s: float = 0.0


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

    `leave` is called, from the heartbeat's thread, with the exit code, when the worker must end by itself.
    """

    def __init__(
        self,
        facts: WorkerFacts,
        surroundings: Surroundings,
        equipment: Equipment,
        rhythm: Rhythm,
        leave: Callable[[int], None],
        limits: Limits | None = None,
    ) -> None:
        self._facts = facts
        self._surroundings = surroundings
        surroundings.tell(self._supervisors)
        self._reported: HostReport | None = None
        self._equipment = replace(equipment, quarantine=self._quarantine)
        self._rhythm = rhythm
        self._leave = leave
        self._limits = limits or Limits()
        self._settler = Settler(equipment.database, equipment.lock_dir, facts.instance)
        self._changed = threading.Condition()
        self._attempts: dict[Key, Supervisor] = {}
        board = DeviceBoard(equipment.database, lambda: self.worker_id, self._cards, equipment.idle_after_s)
        sampler = sampler_of(equipment.nvml, equipment.simulated_inventory)
        self._telemetry = Telemetry(sampler, equipment.telemetry_s, self._supervisors, board, equipment.clock)
        self._stopping = False
        self._draining = False
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
        self._surroundings.start()

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
        self._surroundings.stop()
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
        self._heed_drain(asked=beat.draining)
        for job_id, attempt in attention.unclaimed:
            self._claim_alone(self.worker_id, job_id, attempt)
        if beat.renewed - self._keys() - set(attention.unclaimed):
            self._settle(self.worker_id)
        self._report(self.worker_id)

    def _beat(self) -> None:
        if not self._has_schema():
            return
        while not self._leaving.is_set():
            self._wake.clear()
            try:
                self.attend()
            except DatabaseDown:
                lease_renewal_failures.inc()
                self._say_database_is(answering=False)
            except TrainshedError as error:
                lease_renewal_failures.inc()
                log.error("heartbeat_refused", code=error.code, error=str(error))  # noqa: TRY400 - says it all
            except Exception:
                # Whatever it was, the next beat may go well, and without a beat every run of this host would end.
                lease_renewal_failures.inc()
                log.exception("heartbeat_failed")
            else:
                self._say_database_is(answering=True)
            self._give_sign_of_life()
            self._leave_if_blind()
            self._wake.wait(self._rhythm.heartbeat_s)

    def _has_schema(self) -> bool:
        """Wait for the migration of a deployment that is just starting; False when it is time to leave."""
        database, clock = self._equipment.database, self._equipment.clock
        try:
            return wait_for_schema(database, clock, self._limits.schema_wait_s, self._pause)
        except SchemaNotUsable as error:
            log.error("schema_not_usable", code=error.code, error=str(error))  # noqa: TRY400 - says it all
            self._leave(CANNOT_START)
            return False

    def _pause(self, seconds: float) -> bool:
        self._give_sign_of_life()
        return self._leaving.wait(seconds)

    def _give_sign_of_life(self) -> None:
        facts = {
            "at_boot_ns": self._equipment.clock.boot_ns(),
            "instance": self._facts.instance,
            "registered": self.registered.is_set(),
            **self._surroundings.beacon(),
        }
        write_beacon(self._equipment.run_dir / WORKER_BEACON, facts)

    def _leave_if_blind(self) -> None:
        """A container can lose its cards for good while it runs; what runs keeps them, so nothing may run."""
        limit_s = self._limits.blind_exit_s
        if limit_s and not self._stopping and not self._keys() and self._surroundings.blind_s >= limit_s:
            log.error("driver_lost", silent_s=round(self._surroundings.blind_s), exit_code=BLIND)
            self.stop_claiming()
            self._leave(BLIND)

    def _register(self) -> str:
        """Register this instance, then settle what earlier ones left open, so that it runs again at once."""
        if not self._swept:
            self._settler.sweep_all()
            self._clear_work()
            self._swept = True
        database, seen = self._equipment.database, self._surroundings.report()
        facts = replace(self._facts, reason=seen.reason, condition=seen.condition)
        with database.write() as session:
            worker_id = registry.register(session, facts, seen.devices, database.now(session))
        self._remember(seen)
        bind_process(worker_id=worker_id)
        log.info("registered", host_id=facts.host_id, worker_id=worker_id, devices=len(seen.devices or ()))
        self._settle(worker_id)
        return worker_id

    def _clear_work(self) -> None:
        """Remove what earlier starts left in the work folder, not the folder: its mode may let trainers pass.

        What begins with a dot is this start's own: a probe may be under way.
        """
        work = self._equipment.run_dir / "work"
        for path in work.glob("[!.]*"):
            remove_tree(path)

    def _report(self, worker_id: str) -> None:
        """Write what was seen of the host since the last report, if that is anything new."""
        seen = self._surroundings.report()
        if seen == self._reported:
            return
        database = self._equipment.database
        with database.write() as session:
            registry.report(session, worker_id, self._facts.instance, seen, database.now(session))
        self._remember(seen)
        self._equipment.bell.ring(CHANNEL_WANTED)  # a device may have become free

    def _remember(self, seen: HostReport) -> None:
        self._reported = seen
        self._surroundings.reported(seen)

    def _heed_drain(self, *, asked: bool) -> None:
        """Stop what runs at its next safe point, for as long as somebody wants the host empty."""
        if asked != self._draining:
            log.info("draining" if asked else "not_draining_any_more")
            self._draining = asked
        if asked:
            for supervisor in self._supervisors():
                supervisor.stop(StopReason.DRAIN)

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
            running_attempts.set(len(self._attempts))
            if self._is_stopping() or self._draining:
                supervisor.stop(StopReason.DRAIN)
        log.info("claimed", job_id=job_id, attempt=attempt)
        supervisor.start()

    def _is_stopping(self) -> bool:
        return self._stopping

    def _ended(self, supervisor: Supervisor) -> None:
        log.info("attempt_over", job_id=supervisor.key[0], attempt=supervisor.key[1])
        with self._changed:
            self._attempts.pop(supervisor.key, None)
            running_attempts.set(len(self._attempts))
            self._changed.notify_all()

    def _keys(self) -> set[Key]:
        with self._changed:
            return set(self._attempts)

    def _cards(self) -> list[str]:
        return [device.id for device in self._surroundings.devices() if device.kind == "cuda"]

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
        self._leave(REPLACED)

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
        """Keep devices out of use until somebody releases them."""
        quarantine(session, device_ids, reason, self._equipment.database.now(session))

    def _say_database_is(self, *, answering: bool) -> None:
        """Once per change, not once per beat."""
        if answering != self._database_answers:
            self._database_answers = answering
            if answering:
                log.info("database_answers_again")
            else:
                log.warning("database_does_not_answer")
