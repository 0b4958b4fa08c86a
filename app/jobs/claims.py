"""How a worker takes a placement: once, by whoever is first, with all that it needs to run the attempt."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.bundles.models import Bundle
from app.checkpoints import repository as checkpoints
from app.checkpoints.repository import CheckpointFacts
from app.datasets.models import Dataset
from app.fleet import registry
from app.fleet.models import Device, Lease, Worker
from app.jobs.lifecycle import lock_job
from app.jobs.lineage import to_go_on_from
from app.jobs.models import Attempt, AttemptNode, Job
from app.jobs.states import JobState, StopRequest
from app.spec import AnyEffective, EffectiveScriptSpec, code_of, read_effective


@dataclass(frozen=True)
class ClaimedDevice:
    id: str
    kind: str
    name: str
    pci_bus_id: str | None
    memory_bytes: int | None
    threads: int
    simulated: bool


@dataclass(frozen=True)
class ClaimedBundle:
    """The user's code: a file in the storage, with the SHA-256 (hex) that it must have."""

    id: str
    storage_key: str
    format: str
    digest: str


@dataclass(frozen=True)
class ClaimedInput:
    """A data set of a script by the script's name for it: a file in the storage, or with a `uri` one to read in place.

    `digest`: the SHA-256 (hex) of the file.
    """

    name: str
    storage_key: str
    format: str
    uri: str | None
    digest: str


@dataclass(frozen=True)
class Claim:
    """What a worker needs to run one attempt; `remaining_s` is what is left of `timeout_s` over all attempts.

    The data are a file in the storage (`dataset_key`), or one to be read in place (`dataset_uri`, with the digest that
    it must still have), or built in. A script job has none of these, but `inputs`. `bundle`: the user's own code, of a
    script or of a model; None when there is none of it, or when it is in the worker's environment.

    `resume`: checkpoints to go on from, the best choice first; the next one is for when that cannot be read. They are
    the job's own, then those of the job that it is a retry of. `initialize`: the checkpoint that `initialize_from`
    means now; None when it names one that is gone, or none.
    """

    job_id: str
    attempt: int
    spec: AnyEffective
    dataset_key: str | None
    builtin: str | None
    devices: tuple[ClaimedDevice, ...]
    stop: StopRequest | None
    remaining_s: float
    dataset_format: str | None = None
    dataset_uri: str | None = None
    dataset_digest: str | None = None
    resume: tuple[CheckpointFacts, ...] = ()
    initialize: CheckpointFacts | None = None
    bundle: ClaimedBundle | None = None
    inputs: tuple[ClaimedInput, ...] = ()


def claim(
    session: Session, worker_id: str, instance: str, job_id: str, attempt: int, now: datetime, lease_s: float
) -> Claim | None:
    """Take a placement; None when it is not there any more, so that only one delivery of a message ever wins.

    Nor may an instance take it that another one has replaced meanwhile: that one has settled what was open already.
    """
    job = lock_job(session, job_id)
    if job is None or job.attempt != attempt or job.state != JobState.STARTING:
        return None
    if not _is_placed_on(session, worker_id, instance, job_id, attempt):
        return None
    won = session.execute(
        update(Attempt)
        .where(
            Attempt.job_id == job_id,
            Attempt.number == attempt,
            Attempt.claimed_at.is_(None),
            Attempt.ended_at.is_(None),
        )
        .values(claimed_at=now)
        .returning(Attempt.number)
        .execution_options(synchronize_session=False)
    ).scalar()
    if won is None:
        return None
    session.execute(
        update(AttemptNode)
        .where(AttemptNode.job_id == job_id, AttemptNode.attempt == attempt, AttemptNode.worker_id == worker_id)
        .values(instance=instance)
        .execution_options(synchronize_session=False)
    )
    registry.hold_leases(session, Lease.job_id == job_id, Lease.attempt == attempt)
    session.execute(
        update(Lease)
        .where(Lease.job_id == job_id, Lease.attempt == attempt)
        .values(expires_at=now + timedelta(seconds=lease_s))
        .execution_options(synchronize_session=False)
    )
    return _claim_of(session, job, attempt)


def _is_placed_on(session: Session, worker_id: str, instance: str, job_id: str, attempt: int) -> bool:
    found = session.execute(
        select(AttemptNode.worker_id)
        .join(Worker, Worker.id == AttemptNode.worker_id)
        .where(
            AttemptNode.job_id == job_id,
            AttemptNode.attempt == attempt,
            AttemptNode.worker_id == worker_id,
            Worker.instance == instance,
        )
    ).scalar()
    return found is not None


def _claim_of(session: Session, job: Job, attempt: int) -> Claim:
    spec = read_effective(job.effective_spec)
    is_script = isinstance(spec, EffectiveScriptSpec)
    dataset = session.get(Dataset, job.dataset_id) if job.dataset_id and not is_script else None
    devices = (
        session.execute(
            select(Device)
            .join(Lease, Lease.device_id == Device.id)
            .where(Lease.job_id == job.id, Lease.attempt == attempt)
            .order_by(Device.position, Device.id)
        )
        .scalars()
        .all()
    )
    return Claim(
        job_id=job.id,
        attempt=attempt,
        spec=spec,
        dataset_key=dataset.storage_key if dataset else None,
        dataset_format=dataset.format if dataset else None,
        dataset_uri=dataset.uri if dataset else None,
        dataset_digest=dataset.digest if dataset else None,
        builtin=None if dataset or isinstance(spec, EffectiveScriptSpec) else spec.data.source,
        devices=tuple(
            ClaimedDevice(d.id, d.kind, d.name, d.pci_bus_id, d.memory_bytes, d.threads, d.simulated) for d in devices
        ),
        stop=StopRequest(job.stop_requested) if job.stop_requested else None,
        remaining_s=max(0.0, job.timeout_s - job.run_s),
        resume=tuple(to_go_on_from(session, job.id)),
        initialize=initialized_from(session, job.project_id, spec),
        bundle=_bundle_of(session, spec),
        inputs=_inputs_of(session, spec),
    )


def _bundle_of(session: Session, spec: AnyEffective) -> ClaimedBundle | None:
    code = code_of(spec)
    found = None if code is None or code.bundle is None else session.get(Bundle, code.bundle)
    return None if found is None else ClaimedBundle(found.id, found.storage_key, found.format, found.digest)


def _inputs_of(session: Session, spec: AnyEffective) -> tuple[ClaimedInput, ...]:
    """A job that is not over keeps its data sets, so none is missing."""
    if not isinstance(spec, EffectiveScriptSpec):
        return ()
    found = [(name, session.get(Dataset, source)) for name, source in spec.script.data.items()]
    return tuple(
        ClaimedInput(name, dataset.storage_key, dataset.format, dataset.uri, dataset.digest)
        for name, dataset in found
        if dataset is not None
    )


def initialized_from(session: Session, project_id: str, spec: AnyEffective) -> CheckpointFacts | None:
    """The checkpoint that the spec's `initialize_from` means now, if the project's job has it; a script has none."""
    source = None if isinstance(spec, EffectiveScriptSpec) else spec.initialize_from
    if source is None:
        return None
    visible = session.execute(select(Job.id).where(Job.id == source.job, Job.project_id == project_id)).scalar()
    return None if visible is None else checkpoints.choose(session, source.job, source.checkpoint)
