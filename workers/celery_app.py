"""Wires the worker of a host: settings, devices, the heartbeat, and Celery as the doorbell.

Celery carries one task, a hand-over of milliseconds. What runs belongs to a bootstep, so that a shutdown drains
attempts instead of waiting for tasks as long as jobs.
"""

import logging
import os
import secrets
import shutil
import signal
import socket
import warnings
from collections.abc import Callable
from typing import Any, Final

import structlog
from celery import Celery, bootsteps, signals
from celery.exceptions import SecurityWarning, WorkerShutdown
from celery.worker import state as celery_state

from app import __version__
from app.broker import CHANNEL_TASKS, WAKE_TASK, Bell, Listener, celery_app, queue_of
from app.clock import SystemClock
from app.datasets.roots import DataRoots
from app.db import Database
from app.fleet.registry import WorkerFacts
from app.metering import ANY, WORKER, exposed
from app.settings import InvalidSettings, Settings
from workers import startup
from workers.code_terms import CodeTerms
from workers.environments.environments import Environments
from workers.equipment import Equipment
from workers.export_tasks import Exports
from workers.exports import run as run_export
from workers.host import Host, Limits, Rhythm
from workers.host_lock import HostLock
from workers.identity import boot_id, host_id
from workers.interpreters import HOST_FRAMEWORK, Interpreter, find_interpreters, own_interpreter
from workers.launch import ColdLauncher
from workers.model_store import ModelStore
from workers.predictions import ModelTasks
from workers.predictor_handle import Predictor
from workers.survey import survey
from workers.task_taker import Tools
from workers.user_models import user_launch

log = structlog.get_logger("worker")

POOL_THREADS: Final = 2
_LOOK_S: Final = 0.2
_NO_QUEUE: Final = "worker.unregistered"


def main(settings: Settings) -> None:
    """Run the worker of this host until SIGTERM or Ctrl-C, then drain it. Blocks; to be called from the main thread.

    Raises:
        WorkerRunning: another worker of this host is alive.
        InvalidSettings: there is no broker's address, or an interpreter cannot be used.
        InvalidInventory: the file of simulated devices cannot be used.
        SystemExit: with Celery's exit code, when it is not 0.
    """
    if not settings.broker_url:
        raise InvalidSettings("TRAINSHED_BROKER_URL is missing; for example redis://redis:6379/0.")
    _quieten_celery()
    lock = HostLock(settings.effective_run_dir.absolute())
    lock.acquire()
    bell = Bell(settings.broker_url)
    database = Database(settings.effective_database_url, synchronous=settings.sqlite_synchronous)
    leaving = Leaving()
    try:
        bell.start()
        host, tasks = build_worker(settings, database, bell, leaving)
        listener = Listener(settings.broker_url, [CHANNEL_TASKS], lambda _channel, kind: tasks.wake(kind), tasks.wake)
        listener.start()
        try:
            with exposed(settings.metrics_address, settings.metrics_port, ANY, WORKER):
                code = run(celery_app(settings.broker_url), host, tasks, settings.log_level)
        finally:
            listener.stop()
    finally:
        bell.stop()
        database.dispose()
        lock.release()
    if code or leaving.code:
        raise SystemExit(code or leaving.code)


class Leaving:
    """How a worker ends by itself: as if it had been told to, but with an exit code of its own."""

    def __init__(self) -> None:
        self.code = 0

    def __call__(self, code: int) -> None:
        self.code = code
        os.kill(os.getpid(), signal.SIGTERM)


def build_worker(
    settings: Settings, database: Database, bell: Bell, leave: Callable[[int], None]
) -> tuple[Host, ModelTasks]:
    """Find out what this host is and has, and put its worker together; nothing is started."""
    identity, clock = host_id(settings.host_id), SystemClock()
    interpreters, own = find_interpreters(settings.interpreters), {HOST_FRAMEWORK: own_interpreter()}
    users = startup.trainer_users(settings)
    found = survey(settings, identity, interpreters, clock, users)
    facts = WorkerFacts(
        host_id=identity,
        host_name=socket.gethostname(),
        instance=secrets.token_hex(12),
        boot_id=boot_id(),
        version=__version__,
        frameworks={name: _offered(interpreter) for name, interpreter in {**found.offered, **own}.items()},
    )
    paths = {name: interpreter.path for name, interpreter in {**interpreters, **own}.items()}
    environments = Environments.of(settings, paths, users, clock, os.environ)
    environments.clean_up()
    equipment = Equipment(
        database=database,
        bell=bell,
        storage=startup.storage_of(settings),
        launcher=ColdLauncher(users=users),
        clock=clock,
        interpreters=paths,
        run_dir=settings.effective_run_dir.absolute(),
        stop_grace_s=settings.stop_grace_s,
        report_interval_s=settings.report_interval_s,
        max_log_bytes=settings.max_log_bytes,
        environment=dict(os.environ),
        telemetry_s=settings.telemetry_s,
        idle_after_s=settings.idle_after_s,
        simulated_inventory=settings.simulated_inventory,
        roots=DataRoots(settings.data_roots),
        code=CodeTerms.of(settings),
        environments=environments,
    )
    rhythm = Rhythm(settings.heartbeat_s, settings.lease_s, settings.lease_margin_s)
    limits = Limits(schema_wait_s=settings.schema_wait_s, blind_exit_s=settings.blind_exit_s)
    host = Host(facts, found.surroundings, equipment, rhythm, leave, limits)
    return host, build_tasks(equipment, facts.instance, settings.predict_slots)


def build_tasks(equipment: Equipment, instance: str, slots: int) -> ModelTasks:
    """What answers predictions and makes exports on this host; its files lie in the run folder."""
    models = ModelStore(equipment.storage, equipment.run_dir / "models")
    unfinished = equipment.run_dir / "exports"
    shutil.rmtree(unfinished, ignore_errors=True)  # of an earlier start
    exports = Exports(
        database=equipment.database,
        storage=equipment.storage,
        models=models,
        interpreters=equipment.interpreters,
        folder=unfinished,
        exporter=run_export,
    )
    tools = Tools(
        database=equipment.database,
        bell=equipment.bell,
        models=models,
        exports=exports,
        make_predictor=Predictor,
        instance=instance,
        user_launch=user_launch(equipment),
    )
    return ModelTasks(tools, slots)


def run(app: Celery, host: Host, tasks: ModelTasks, log_level: str) -> int:
    """Run Celery's worker around the host; the exit code. The host is drained in any case."""
    register_wake(app, host)
    app.steps["worker"].add(attempts_step(host, tasks))
    with_logging_left_alone = signals.setup_logging.connect(_keep_logging, weak=False)
    stop_claiming = signals.worker_shutting_down.connect(lambda **_: host.stop_claiming(), weak=False)
    try:
        worker = app.Worker(
            hostname=f"trainshed-{os.getpid()}@{socket.gethostname()}",
            pool_cls="threads",
            concurrency=POOL_THREADS,
            queues=[_NO_QUEUE],
            loglevel=log_level.upper(),
            quiet=True,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        worker.start()
        return int(worker.exitcode or 0)
    finally:
        signals.setup_logging.disconnect(with_logging_left_alone)
        signals.worker_shutting_down.disconnect(stop_claiming)
        tasks.stop()
        host.stop()


def register_wake(app: Celery, host: Host) -> None:
    """The one task. Its arguments are for tracing only: what there is to do stands in the database."""

    @app.task(name=WAKE_TASK)  # type: ignore[untyped-decorator] # Celery has no types
    def wake(*_: object, **__: object) -> None:
        host.wake()


def attempts_step(host: Host, tasks: ModelTasks) -> type[bootsteps.StartStopStep]:
    """A bootstep of Celery's worker that owns the host's attempts.

    It starts before Celery connects to the broker, so a host works without one; it learns its queue's name when the
    database has registered it. It stops after Celery has stopped to consume.
    """

    class Attempts(bootsteps.StartStopStep):  # type: ignore[misc] # Celery has no types
        requires = ("celery.worker.components:Pool",)

        def start(self, worker: Any) -> None:  # noqa: ANN401
            host.start()
            while not host.registered.wait(_LOOK_S):
                if celery_state.should_stop is not None or celery_state.should_terminate is not None:
                    raise WorkerShutdown(0)
            tasks.start(str(host.worker_id))
            worker.app.amqp.queues.select([queue_of(str(host.worker_id))])

        def stop(self, _worker: Any) -> None:  # noqa: ANN401
            # Before the host goes offline: what it gives back is then its own to give.
            tasks.stop()
            host.stop()

        def terminate(self, _worker: Any) -> None:  # noqa: ANN401
            tasks.stop()
            host.stop()

    return Attempts


def _quieten_celery() -> None:
    """That each wake-up came and went is no news, nor that a container runs as root."""
    warnings.filterwarnings("ignore", category=SecurityWarning)
    for name in ("celery.worker.strategy", "celery.app.trace"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _keep_logging(**_: Any) -> None:  # noqa: ANN401
    """Being connected is enough: Celery then leaves logging as the worker set it up."""


def _offered(interpreter: Interpreter) -> dict[str, str | None]:
    return {"version": interpreter.version, "interpreter": str(interpreter.path)}
