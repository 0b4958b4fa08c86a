"""The table of holds: devices that a person has for a while."""

from datetime import datetime
from typing import Any

from sqlalchemy import Float, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.accounts.models import Project
from app.db import Base, JsonText, UtcDateTime
from app.fleet.models import Worker


class Hold(Base):
    """Devices of one host, leased to a person until `until` or until they are given back.

    Its leases carry the hold's id where a job's carry the job's, with attempt 0. `devices` stays after the end.
    `stop_when_idle_s`: end it when its devices have done nothing for so long; None: do not. `ended_why`: released,
    expired, idle, or device_gone.
    """

    __tablename__ = "holds"
    __table_args__ = (
        Index("ix_holds_project_id_id", "project_id", "id"),
        Index("ix_holds_ended_at_until", "ended_at", "until"),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    project_id: Mapped[str] = mapped_column(String(32), ForeignKey(Project.id))
    owner: Mapped[str] = mapped_column(String(120))
    key_id: Mapped[str] = mapped_column(String(32))
    note: Mapped[str] = mapped_column(Text, default="")
    worker_id: Mapped[str] = mapped_column(String(32), ForeignKey(Worker.id))
    devices: Mapped[list[dict[str, Any]]] = mapped_column(JsonText)
    stop_when_idle_s: Mapped[float | None] = mapped_column(Float)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    until: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ended_why: Mapped[str | None] = mapped_column(String(16))
    energy_j: Mapped[float | None] = mapped_column(Float)
