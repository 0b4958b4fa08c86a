"""The table of predictions and later exports."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.accounts.models import Project
from app.db import Base, JsonText, UtcDateTime


class ModelTask(Base):
    """One request about a trained model, with a deadline; any worker may take it, or one with its `framework`.

    `kind`: `predict` or `export`. `state`: `queued`, `running`, `succeeded`, `failed` or `expired`. `request` and
    `result` are JSON text, spliced into answers as they stand. `claim` is the fence: it grows with every taking, and a
    result that names another number is stale.
    """

    __tablename__ = "model_tasks"
    __table_args__ = (
        Index("ix_model_tasks_state_id", "state", "id"),
        Index("ix_model_tasks_project_id_id", "project_id", "id"),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    project_id: Mapped[str] = mapped_column(String(32), ForeignKey(Project.id))
    job_id: Mapped[str] = mapped_column(String(32), ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    owner: Mapped[str] = mapped_column(String(120))
    kind: Mapped[str] = mapped_column(String(16))
    state: Mapped[str] = mapped_column(String(16), default="queued")
    request: Mapped[str] = mapped_column(Text)
    result: Mapped[str | None] = mapped_column(Text)
    error: Mapped[dict[str, Any] | None] = mapped_column(JsonText)
    framework: Mapped[str | None] = mapped_column(String(16))
    claim: Mapped[int] = mapped_column(Integer, default=0)
    worker_id: Mapped[str | None] = mapped_column(String(32))
    instance: Mapped[str | None] = mapped_column(String(32))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    deadline: Mapped[datetime] = mapped_column(UtcDateTime)
    claimed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
