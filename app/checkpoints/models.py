"""The table of stored checkpoints."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from app.db import Base, JsonText, UtcDateTime


class Checkpoint(Base):
    """One complete checkpoint: the row is written after its files, so a row means that all of them are there.

    `files`: name, size in bytes and SHA-256 of each file under `storage_prefix`. A later attempt that reaches the same
    step again replaces the row. `best`: the best of its job when it was stored; the newest such row counts. `reason`:
    `periodic`, `best`, `stop` or `final`.
    """

    __tablename__ = "checkpoints"
    __table_args__ = (Index("ix_checkpoints_job_id_created_at", "job_id", "created_at"),)

    job_id: Mapped[str] = mapped_column(String(32), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    step: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer)
    epoch: Mapped[int] = mapped_column(Integer)
    reason: Mapped[str] = mapped_column(String(16))
    best: Mapped[bool] = mapped_column(default=False)
    metrics: Mapped[dict[str, Any]] = mapped_column(JsonText, default=dict)
    files: Mapped[list[dict[str, Any]]] = mapped_column(JsonText)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    storage_prefix: Mapped[str] = mapped_column(String(255))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
