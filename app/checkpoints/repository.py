"""The stored checkpoints of jobs: which there are, which one counts, and which are not needed any more.

A row is written after its files and removed before them, so a row means that all of its files are there. The newest is
the one with the highest step of the latest attempt that stored any: a later attempt went on from an earlier step, and
what lies beyond that is another run's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Self

from sqlalchemy import Select, delete, select
from sqlalchemy.orm import Session

from app.checkpoints.models import Checkpoint
from app.errors import NotFound

Choice = Literal["best", "last"] | int
"""Which checkpoint of a job: by its merit, by its age, or by its step."""

KEPT_NEWEST: Final = 2
"""How many of the newest stay, whatever they are: when the newest cannot be read, the one before it is the way back."""
FALL_BACKS: Final = 5
"""How many checkpoints an attempt tries before it starts from the beginning."""
_LARGEST_STEP: Final = 2**63 - 1


@dataclass(frozen=True)
class StoredFile:
    """One file of a checkpoint; `digest` is the SHA-256 of its bytes, in hex."""

    name: str
    size_bytes: int
    digest: str


@dataclass(frozen=True)
class CheckpointFacts:
    """A checkpoint whose files are in the storage under `storage_prefix`.

    `reason`: `periodic`, `best`, `stop` or `final`. `metrics` must already hold strings for non-finite numbers.
    """

    job_id: str
    step: int
    attempt: int
    epoch: int
    reason: str
    best: bool
    metrics: Mapping[str, Any]
    files: tuple[StoredFile, ...]
    storage_prefix: str

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def keys(self) -> list[str]:
        """The storage keys of its files."""
        return [f"{self.storage_prefix}/{file.name}" for file in self.files]

    @classmethod
    def of(cls, row: Checkpoint) -> Self:
        return cls(
            job_id=row.job_id,
            step=row.step,
            attempt=row.attempt,
            epoch=row.epoch,
            reason=row.reason,
            best=row.best,
            metrics=row.metrics,
            files=tuple(StoredFile(**file) for file in row.files),
            storage_prefix=row.storage_prefix,
        )


@dataclass(frozen=True)
class Added:
    """What storing a checkpoint changed; `unnamed` are keys of files that no row names any more."""

    unnamed: list[str] = field(default_factory=list)


def add(session: Session, facts: CheckpointFacts, now: datetime, *, keep_periodic: bool) -> Added | None:
    """Write the row of a stored checkpoint and drop those that are not needed any more; None: it is there already.

    To be called under the lock of the job's row, after the fence was checked. `keep_periodic`: the job asked for a
    checkpoint every so many epochs, and all of those stay. None is what the repeat of a transaction gets whose answer
    was lost.
    """
    row = session.get(Checkpoint, (facts.job_id, facts.step), populate_existing=True)
    replaced: list[str] = []
    if row is not None:
        if row.storage_prefix == facts.storage_prefix:
            return None
        replaced = CheckpointFacts.of(row).keys
        session.delete(row)
        session.flush()
    session.add(
        Checkpoint(
            job_id=facts.job_id,
            step=facts.step,
            attempt=facts.attempt,
            epoch=facts.epoch,
            reason=facts.reason,
            best=facts.best,
            metrics=dict(facts.metrics),
            files=[vars(file) for file in facts.files],
            size_bytes=facts.size_bytes,
            storage_prefix=facts.storage_prefix,
            created_at=now,
        )
    )
    session.flush()
    return Added(replaced + _drop_unneeded(session, facts.job_id, keep_periodic=keep_periodic))


def newest(
    session: Session, job_id: str, *, up_to: int | None = None, limit: int = FALL_BACKS
) -> list[CheckpointFacts]:
    """The job's newest checkpoints, the newest first; with `up_to` only those of at most this step."""
    query = _newest_first(job_id)
    if up_to is not None:
        query = query.where(Checkpoint.step <= up_to)
    return [CheckpointFacts.of(row) for row in session.scalars(query.limit(limit))]


def choose(session: Session, job_id: str, choice: Choice) -> CheckpointFacts | None:
    """The checkpoint that is meant, if the job has it. A job that never measured which is best has no best one."""
    if isinstance(choice, int) and choice > _LARGEST_STEP:
        return None
    query = _newest_first(job_id)
    if choice == "best":
        query = query.where(Checkpoint.best)
    elif choice != "last":
        query = query.where(Checkpoint.step == choice)
    row = session.scalars(query.limit(1)).first()
    return None if row is None else CheckpointFacts.of(row)


def steps_of(session: Session, job_id: str, limit: int = FALL_BACKS) -> list[int]:
    """The steps of the newest checkpoints, to name what could be asked for."""
    query = select(Checkpoint.step).where(Checkpoint.job_id == job_id).order_by(Checkpoint.step.desc()).limit(limit)
    return list(session.scalars(query))


@dataclass(frozen=True)
class Marks:
    """Steps of the checkpoints of a job that are its best and its newest."""

    best: int | None
    last: int | None


def marks(session: Session, job_id: str) -> Marks:
    best, last = choose(session, job_id, "best"), choose(session, job_id, "last")
    return Marks(None if best is None else best.step, None if last is None else last.step)


def list_checkpoints(
    session: Session, job_id: str, *, after: int | None = None, limit: int = 50, descending: bool = True
) -> list[Checkpoint]:
    """A page of a job's checkpoints by step. Whether the caller may see the job was decided before."""
    query = select(Checkpoint).where(Checkpoint.job_id == job_id)
    if after is not None:
        query = query.where(Checkpoint.step < after if descending else Checkpoint.step > after)
    order = Checkpoint.step.desc() if descending else Checkpoint.step.asc()
    return list(session.scalars(query.order_by(order).limit(limit)))


def get_checkpoint(session: Session, job_id: str, step: int) -> Checkpoint:
    """One checkpoint of a job.

    Raises:
        NotFound: the job has none of that step (any more).
    """
    row = session.get(Checkpoint, (job_id, step))
    if row is None:
        raise NotFound("checkpoint of step", str(step))
    return row


def prefixes(session: Session, job_id: str) -> frozenset[str]:
    """Under which prefixes the job's rows say that files are; anything else below the job's folder is a left-over."""
    return frozenset(session.scalars(select(Checkpoint.storage_prefix).where(Checkpoint.job_id == job_id)))


def unneeded(rows: Sequence[CheckpointFacts], *, keep_periodic: bool) -> list[CheckpointFacts]:
    """Those of a job's checkpoints, the newest first, that nothing will ask for: not new, not best, not asked for."""
    best = next((row for row in rows if row.best), None)
    return [
        row
        for row in rows[KEPT_NEWEST:]
        if row is not best and row.reason != "final" and not (keep_periodic and row.reason == "periodic")
    ]


def _drop_unneeded(session: Session, job_id: str, *, keep_periodic: bool) -> list[str]:
    rows = [CheckpointFacts.of(row) for row in session.scalars(_newest_first(job_id))]
    dropped = unneeded(rows, keep_periodic=keep_periodic)
    if dropped:
        session.execute(
            delete(Checkpoint)
            .where(Checkpoint.job_id == job_id, Checkpoint.step.in_([row.step for row in dropped]))
            .execution_options(synchronize_session=False)
        )
    return list(_keys(dropped))


def _keys(rows: Iterable[CheckpointFacts]) -> Iterable[str]:
    for row in rows:
        yield from row.keys


def _newest_first(job_id: str) -> Select[Checkpoint]:
    return (
        select(Checkpoint)
        .where(Checkpoint.job_id == job_id)
        .order_by(Checkpoint.attempt.desc(), Checkpoint.step.desc())
        .execution_options(populate_existing=True)
    )
