"""Tables of jobs, their attempts and their journal."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Float, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.accounts.models import Project
from app.datasets.models import Dataset
from app.db import Base, JsonText, UtcDateTime
from app.fleet.models import Worker


class Job(Base):
    """One accepted job. `attempt` only grows and is the fence: a write that names another number is stale."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index("ix_jobs_project_id_id", "project_id", "id"),
        Index("ix_jobs_project_id_state_id", "project_id", "state", "id"),
        Index("ix_jobs_state_id", "state", "id"),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    project_id: Mapped[str] = mapped_column(String(32), ForeignKey(Project.id))
    owner: Mapped[str] = mapped_column(String(120))
    key_id: Mapped[str] = mapped_column(String(32))
    name: Mapped[str] = mapped_column(String(120), default="")
    tags: Mapped[dict[str, str]] = mapped_column(JsonText, default=dict)
    kind: Mapped[str] = mapped_column(String(16), default="model")
    framework: Mapped[str] = mapped_column(String(16))
    dataset_id: Mapped[str | None] = mapped_column(String(32), ForeignKey(Dataset.id, ondelete="SET NULL"), index=True)
    # Not a foreign key: SQLite can add one only by rebuilding the table, which would take every job's history along.
    parent_job_id: Mapped[str | None] = mapped_column(String(32))
    parent_how: Mapped[str | None] = mapped_column(String(16))
    parent_step: Mapped[int | None] = mapped_column(BigInteger)

    state: Mapped[str] = mapped_column(String(16), default="queued")
    phase: Mapped[str | None] = mapped_column(String(16))
    stop_requested: Mapped[str | None] = mapped_column(String(16))
    cause: Mapped[str | None] = mapped_column(String(32))
    cause_detail: Mapped[str | None] = mapped_column(Text)
    attempt: Mapped[int] = mapped_column(Integer, default=0)
    failures: Mapped[int] = mapped_column(Integer, default=0)
    losses: Mapped[int] = mapped_column(Integer, default=0)

    spec: Mapped[str] = mapped_column(Text)
    effective_spec: Mapped[dict[str, Any]] = mapped_column(JsonText)
    warnings: Mapped[list[str]] = mapped_column(JsonText, default=list)
    device_count: Mapped[int] = mapped_column(Integer)
    device_type: Mapped[str] = mapped_column(String(16))
    min_device_memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    device_name: Mapped[str | None] = mapped_column(String(120))
    retry_failures: Mapped[int] = mapped_column(Integer, default=0)
    retry_losses: Mapped[int] = mapped_column(Integer, default=3)
    timeout_s: Mapped[float] = mapped_column(Float)
    priority: Mapped[int] = mapped_column(Integer, default=0)
    not_before: Mapped[datetime | None] = mapped_column(UtcDateTime)

    progress: Mapped[dict[str, Any] | None] = mapped_column(JsonText)
    last_metrics: Mapped[dict[str, Any] | None] = mapped_column(JsonText)
    best_metrics: Mapped[dict[str, Any] | None] = mapped_column(JsonText)
    run_s: Mapped[float] = mapped_column(Float, default=0.0)

    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    queued_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class JobTag(Base):
    """Tags once more as rows, since lists are filtered by them."""

    __tablename__ = "job_tags"
    __table_args__ = (Index("ix_job_tags_key_value_job_id", "key", "value", "job_id"),)

    job_id: Mapped[str] = mapped_column(String(32), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(String(512))


class JobInput(Base):
    """A bundle or data set that a job needs besides `jobs.dataset_id`; it stays as long as the job is not over."""

    __tablename__ = "job_inputs"

    job_id: Mapped[str] = mapped_column(String(32), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    resource_id: Mapped[str] = mapped_column(String(32), primary_key=True, index=True)


class JobHead(Base):
    """The narrow row under whose lock journal numbers are given out; it carries the fence and whether it is closed."""

    __tablename__ = "job_heads"

    job_id: Mapped[str] = mapped_column(String(32), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    last_seq: Mapped[int] = mapped_column(BigInteger, default=0)
    attempt: Mapped[int] = mapped_column(Integer, default=0)
    closed: Mapped[bool] = mapped_column(default=False)


class JournalRow(Base):
    """One report of a job: `seq` runs 1..n without gaps; `data` is JSON text, spliced into answers as it stands."""

    __tablename__ = "journal"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012 - SQLAlchemy's own contract

    job_id: Mapped[str] = mapped_column(String(32), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer)
    kind: Mapped[str] = mapped_column(String(16))
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    data: Mapped[str] = mapped_column(Text)


class Attempt(Base):
    """One try of a job, from its placement to the proof that its processes are gone.

    `device_s`: devices times seconds held; `energy_j`: joules that its cards took meanwhile; `utilization`: their mean,
    0 to 1; `verdict`: what bounded it (`app.usage`). None where nothing was measured.
    """

    __tablename__ = "attempts"
    __table_args__ = (Index("ix_attempts_open", "ended_at", "job_id"),)

    job_id: Mapped[str] = mapped_column(String(32), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    placed_at: Mapped[datetime] = mapped_column(UtcDateTime)
    claim_by: Mapped[datetime] = mapped_column(UtcDateTime)
    claimed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    hinted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    cause: Mapped[str | None] = mapped_column(String(32))
    detail: Mapped[str | None] = mapped_column(Text)
    exit_code: Mapped[int | None] = mapped_column(Integer)
    signal: Mapped[int | None] = mapped_column(Integer)
    max_rss_bytes: Mapped[int | None] = mapped_column(BigInteger)
    resumed_from_step: Mapped[int | None] = mapped_column(BigInteger)
    facts: Mapped[dict[str, Any] | None] = mapped_column(JsonText)
    device_s: Mapped[float | None] = mapped_column(Float)
    energy_j: Mapped[float | None] = mapped_column(Float)
    utilization: Mapped[float | None] = mapped_column(Float)
    verdict: Mapped[str | None] = mapped_column(String(16))


class AttemptNode(Base):
    """An attempt's share of one worker: its devices and the processes that used them.

    There is no index by worker on purpose. What a worker runs is found from the open attempts; SQLite, which keeps no
    statistics here, would read a worker's whole history instead at every heartbeat (measured: 73 ms after 100 000 jobs,
    under the write lock, against 2 ms).
    """

    __tablename__ = "attempt_nodes"
    job_id: Mapped[str] = mapped_column(String(32), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    worker_id: Mapped[str] = mapped_column(String(32), ForeignKey(Worker.id), primary_key=True)
    instance: Mapped[str | None] = mapped_column(String(32))
    devices: Mapped[list[dict[str, Any]]] = mapped_column(JsonText)
    pid: Mapped[int | None] = mapped_column(Integer)
    pgid: Mapped[int | None] = mapped_column(Integer)
    process_started: Mapped[str | None] = mapped_column(String(32))


class IdempotencyKey(Base):
    """What a creating request made, kept in the transaction that made it; the first answer is told again from that."""

    __tablename__ = "idempotency_keys"

    principal: Mapped[str] = mapped_column(String(32), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    digest: Mapped[str] = mapped_column(String(64))
    resource_id: Mapped[str] = mapped_column(String(32))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
