"""One attempt from claim to free: prepare, launch, watch, prove the end, store the files, write the end.

Each attempt has a thread. What it does in the database while the trainer runs is done by its recorder's thread.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from app.errors import Cause, TrainshedError
from app.jobs.attempts import ProcessFacts
from app.jobs.claims import Claim, ClaimedDevice
from app.jobs.endings import Ending
from app.jobs.resumption import Resumption
from app.spec import AnyEffective, EffectiveScriptSpec, code_of
from workers.assignments import make_work_dir, work_folder
from workers.beginning import remove_left_overs, resumption_of
from workers.checkpoint_store import CheckpointStore, Shelf
from workers.closing import Closing, More
from workers.code_preparation import Asking
from workers.environments.errors import EnvironmentCancelled
from workers.equipment import Equipment
from workers.exporting import make_exports
from workers.inventory.telemetry import Sample, shown
from workers.launch import lock_names, trainer_environment
from workers.launch_plan import LaunchPlan, plan_launch, why_not_launched
from workers.launch_port import Busy, Ended, LauncherGone, LaunchFailed, LaunchRequest, StartedEvent
from workers.orders import Orders
from workers.outcome import Proof, Watched, ending_of, failed
from workers.ownership import remove_tree
from workers.proof import free_locks
from workers.protocol import Artifact, Started
from workers.recorder import Recorder, StartedFacts
from workers.spool import Spool
from workers.stopping import SECOND_NS, StopReason
from workers.user_models import exporter_for
from workers.watch import Watch
from workers.work_meter import WorkMeter

log = structlog.get_logger("worker")

_LAUNCHES: Final = 3
"""How often a launch is tried when a lock is held: what held it is killed in between."""
UNKILLABLE: Final = "A trainer's process could not be killed and still holds the device; the host needs a look."
"""Without the job's name: it is why the device is kept out of use, and people of all projects read that."""


class Supervisor:
    """Runs one attempt in a thread of its own.

    `extend`, `stop` and `abandon` may be called from any thread at any time, also after the end. `on_end` is called
    from the attempt's thread as the last thing it does.
    """

    def __init__(
        self, claim: Claim, equipment: Equipment, until_boot_ns: int, on_end: Callable[["Supervisor"], None]
    ) -> None:
        self.key = (claim.job_id, claim.attempt)
        self._claim = claim
        self._equipment = equipment
        self._on_end = on_end
        self._orders = Orders(until_boot_ns)
        self._deadline_ns = 0
        self._locks = lock_names(claim.job_id, [device.id for device in claim.devices])
        self._holds_devices = True
        self._cards = tuple(device.id for device in claim.devices if device.kind == "cuda")
        self._up = False
        self._pgid: int | None = None
        self._spool = Spool(max_log_bytes=equipment.max_log_bytes)
        self._meter = WorkMeter(
            self._cards,
            self._spool,
            idle_after_s=equipment.idle_after_s,
            stop_when_idle_s=claim.spec.stop_when_idle_s,
            on_idle=lambda: self._orders.ask_stop(StopReason.IDLE),
        )
        self._recorder = Recorder(
            equipment.database,
            equipment.bell,
            self._spool,
            self.key,
            interval_s=equipment.report_interval_s,
            on_fenced=lambda: self._orders.ask_stop(StopReason.FENCED),
            measured=self._meter.measured,
        )
        self._checkpoints = CheckpointStore(
            Shelf(
                equipment.database,
                equipment.bell,
                equipment.storage,
                self.key,
                work_folder(equipment.run_dir, *self.key),
                keep_periodic=_keeps_periodic(claim.spec),
            ),
            self._orders,
            say=self._spool.notice,
            on_fenced=lambda: self._orders.ask_stop(StopReason.FENCED),
            before=self._recorder.catch_up,
        )
        self._resumed: Resumption | None = None
        if claim.stop is not None:
            self._orders.ask_stop(StopReason(claim.stop.value))
        self._thread = threading.Thread(target=self._run, name=f"attempt-{claim.job_id}", daemon=True)

    @property
    def holds_devices(self) -> bool:
        """False from the moment on at which no process is left; a lease that is missing then means nothing."""
        return self._holds_devices

    @property
    def devices(self) -> Sequence[ClaimedDevice]:
        return self._claim.devices

    @property
    def pgid(self) -> int | None:
        """The trainer's process group, once it is up."""
        return self._pgid

    def notice(self, code: str, message: str) -> None:
        """Write a sentence into the job's journal."""
        self._spool.notice(code, message)

    def cards(self) -> Sequence[str]:
        return self._cards if self._up and self._holds_devices else ()

    def tell_cards(self, at_ns: int, values: Sample, idle_s: Mapping[str, float]) -> None:
        self._meter.add(at_ns, values, idle_s)
        if readings := shown(values):
            self._spool.telemetry({"devices": readings})

    @property
    def until_boot_ns(self) -> int:
        """The deadline of its run on the boot clock, as the last renewal gave it."""
        return self._orders.until_boot_ns

    def start(self) -> None:
        self._thread.start()

    def extend(self, until_boot_ns: int) -> None:
        self._orders.extend(until_boot_ns)

    def stop(self, reason: StopReason) -> None:
        self._orders.ask_stop(reason)

    def abandon(self) -> None:
        self._orders.abandon()

    def join(self, timeout_s: float | None = None) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        structlog.contextvars.bind_contextvars(job_id=self.key[0], attempt=self.key[1])
        self._recorder.start()
        work_dir: Path | None = None
        try:
            work_dir = make_work_dir(self._equipment.run_dir, *self.key)
            self._carry_out(work_dir)
        except Exception:
            log.exception("attempt_failed", job_id=self.key[0], attempt=self.key[1])
            self._free_locks()
            self._close(failed(Cause.WORKER_LOST, "The worker could not run the job; its own log says why."), None)
        finally:
            self._checkpoints.finish()
            if work_dir is not None:
                remove_tree(work_dir)
            if self._equipment.environments is not None:
                self._equipment.environments.release(self._holder)
            self._orders.close()
            self._on_end(self)

    def _carry_out(self, work_dir: Path) -> None:
        plan = self._prepare(work_dir)
        if isinstance(plan, Ending):
            self._close(plan, None)
            return
        watched = None if plan is None else self._launch(plan, work_dir)
        if isinstance(watched, Ending):
            self._close(watched, None)
        elif watched is not None:
            self._close_watched(watched, work_dir)
        else:
            self._recorder.stop()

    def _prepare(self, work_dir: Path) -> LaunchPlan | Ending | None:
        """Fetch what the attempt starts from: data, code, packages, a checkpoint. None: abandoned on the way."""
        claim, equipment = self._claim, self._equipment
        asking = Asking(self._spool.notice, lambda line: self._spool.log([line]), self._is_unwanted, self._holder)
        try:
            if claim.attempt > 1:
                remove_left_overs(claim, equipment.database, equipment.storage)
            plan = plan_launch(claim, work_dir, equipment, asking)
        except EnvironmentCancelled:
            return None if self._orders.stop is None else Ending(succeeded=False, cause=self._orders.stop.cause)
        except (OSError, TrainshedError) as error:
            log.exception("attempt_not_prepared", job_id=self.key[0])
            return why_not_launched(error)
        self._resumed = resumption_of(plan.beginning, equipment.database)
        return plan

    @property
    def _holder(self) -> str:
        return f"{self.key[0]}-{self.key[1]}"

    def _is_unwanted(self) -> bool:
        return self._orders.abandoned or self._orders.stop is not None

    def _launch(self, plan: LaunchPlan, work_dir: Path) -> Watched | Ending | None:
        """Run the trainer to its end; None when the attempt was abandoned on the way."""
        equipment, assignment = self._equipment, plan.assignment
        self._deadline_ns = equipment.clock.boot_ns() + round(self._claim.remaining_s * SECOND_NS)
        environment = trainer_environment(assignment.devices, assignment.threads, work_dir, equipment.environment)
        watched: Watched | Ending | None = None
        for _ in range(_LAUNCHES):
            if self._orders.stop is not None:
                return Ending(succeeded=False, cause=self._orders.stop.cause)
            request = LaunchRequest(
                plan.interpreter,
                environment,
                assignment,
                equipment.lock_dir,
                self._orders.until_boot_ns,
                plan.entry,
                plan.sandbox,
            )
            watched = self._run_once(request, plan.proof)
            if not (isinstance(watched, Watched) and isinstance(watched.end, Busy)) or not self._free_locks():
                break
        return watched

    def _run_once(self, request: LaunchRequest, proof: Proof) -> Watched | Ending | None:
        try:
            running = self._equipment.launcher.start(request)
        except LaunchFailed as error:
            log.exception("launch_failed", job_id=self.key[0])
            return failed(Cause.WORKER_LOST, error.told.format(framework=request.framework))
        try:
            return Watch(
                running,
                self._orders,
                self._spool,
                self._equipment.clock,
                grace_s=self._equipment.stop_grace_s,
                deadline_ns=self._deadline_ns,
                on_started=self._started,
                on_checkpoint=self._checkpoints.offer,
                proof=proof,
            ).run()
        finally:
            running.close()

    def _started(self, process: StartedEvent, started: Started) -> None:
        self._up = True
        self._pgid = process.pgid
        facts = started.model_dump(exclude={"type", "pid", "pgid"})
        known = ProcessFacts(process.pid, process.pgid, str(process.start_time))
        self._recorder.started(StartedFacts(known, facts, self._resumed))

    def _free_locks(self) -> bool:
        """Kill what is left on this attempt's job and devices, as long as the lease says that they are its own."""
        equipment, orders = self._equipment, self._orders

        def keep_on() -> bool:
            ours = equipment.clock.boot_ns() < orders.until_boot_ns
            return ours and not orders.abandoned and orders.stop is not StopReason.FENCED

        return free_locks(equipment.lock_dir, self._locks, keep_on=keep_on, proof_s=equipment.proof_s)

    def _close_watched(self, watched: Watched, work_dir: Path) -> None:
        """Prove that nothing is left, then write the end; devices that a process still holds are not given out."""
        end = watched.end
        doubtful = isinstance(end, LauncherGone) or (isinstance(end, Ended) and end.survivors)
        if doubtful and not self._free_locks():
            if self._orders.abandoned:
                self._recorder.stop()
                return
            if self._orders.stop is not StopReason.FENCED:
                self._closing().end_with_quarantine(failed(Cause.DEVICE_FAULT, UNKILLABLE))
                return
        own_code = code_of(self._claim.spec) is not None
        self._close(ending_of(replace(watched, own_code=own_code)), work_dir, watched)

    def _close(self, ending: Ending, work_dir: Path | None, watched: Watched | None = None) -> None:
        self._holds_devices = False
        self._meter.conclude()
        closing = self._closing()
        if ending.succeeded and work_dir is not None and watched is not None:
            closing.end_with_files(ending, watched.artifacts, work_dir, self._exports(watched.artifacts, work_dir))
        elif ending.cause is Cause.DEVICE_FAULT:
            closing.end_with_quarantine(ending)
        else:
            closing.end(ending)

    def _exports(self, artifacts: Sequence[Artifact], work_dir: Path) -> More | None:
        """What makes the files that the spec asks for; None when it asks for none."""
        spec = self._claim.spec
        if isinstance(spec, EffectiveScriptSpec) or not spec.exports:
            return None
        return partial(
            make_exports,
            exporter_for(self._equipment, spec),
            spec.exports,
            artifacts,
            work_dir,
            self._equipment.interpreters,
            self._wants_files,
        )

    def _wants_files(self) -> bool:
        return not self._orders.abandoned and self._orders.stop not in (StopReason.CANCEL, StopReason.FENCED)

    def _closing(self) -> Closing:
        equipment = self._equipment
        return Closing(
            database=equipment.database,
            bell=equipment.bell,
            storage=equipment.storage,
            recorder=self._recorder,
            checkpoints=self._checkpoints,
            orders=self._orders,
            key=self.key,
            device_ids=[device.id for device in self._claim.devices],
            quarantine=equipment.quarantine,
            max_artifact_bytes=None if code_of(self._claim.spec) is None else equipment.code.max_artifact_bytes,
        )


def _keeps_periodic(spec: AnyEffective) -> bool:
    """Whether checkpoints are kept that are neither the newest nor the best."""
    return not isinstance(spec, EffectiveScriptSpec) and spec.hyperparameters.checkpoint_every_epochs is not None
