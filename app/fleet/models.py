"""Tables of the fleet: one worker per host, its devices, and the leases that say who holds them."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.db import Base, JsonText, UtcDateTime


class Worker(Base):
    """The worker of one host. `instance` changes with every start, so a restarted worker knows what is not its own.

    `condition` is what the worker last said of its host (free disk, shared memory, data roots, what keeps it from
    taking jobs); its keys are in `app.fleet.condition`.
    """

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    host_id: Mapped[str] = mapped_column(String(120), unique=True)
    host_name: Mapped[str] = mapped_column(String(255))
    instance: Mapped[str] = mapped_column(String(32))
    boot_id: Mapped[str] = mapped_column(String(64))
    version: Mapped[str] = mapped_column(String(32))
    frameworks: Mapped[dict[str, Any]] = mapped_column(JsonText)
    state: Mapped[str] = mapped_column(String(16), default="online")
    cordoned: Mapped[bool] = mapped_column(default=False)
    reason: Mapped[str | None] = mapped_column(Text)
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    heartbeat_at: Mapped[datetime] = mapped_column(UtcDateTime)
    drain_requested_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    condition: Mapped[dict[str, Any] | None] = mapped_column(JsonText)


class Device(Base):
    """A device that a host has or once had; rows stay, so `auto` knows that a CUDA device was ever there.

    `health` is what was seen last: ok, unhealthy, gone or in_use_elsewhere. A quarantine (`quarantined_at`) is decided,
    outlives restarts and ends only by a release; `app.fleet.repository` puts both together. `processes` are those of
    others on the device, `readings` its last telemetry.
    """

    __tablename__ = "devices"

    id: Mapped[str] = mapped_column(String(120), primary_key=True)
    worker_id: Mapped[str] = mapped_column(String(32), ForeignKey("workers.id"), index=True)
    position: Mapped[int] = mapped_column(Integer)
    kind: Mapped[str] = mapped_column(String(16))
    name: Mapped[str] = mapped_column(String(255))
    pci_bus_id: Mapped[str | None] = mapped_column(String(32))
    memory_bytes: Mapped[int | None] = mapped_column(BigInteger)
    threads: Mapped[int] = mapped_column(Integer, default=1)
    simulated: Mapped[bool] = mapped_column(default=False)
    health: Mapped[str] = mapped_column(String(32), default="ok")
    reason: Mapped[str | None] = mapped_column(Text)
    epoch: Mapped[int] = mapped_column(BigInteger, default=0)
    seen_at: Mapped[datetime] = mapped_column(UtcDateTime)
    health_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    quarantined_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    quarantine_reason: Mapped[str | None] = mapped_column(Text)
    processes: Mapped[list[dict[str, Any]] | None] = mapped_column(JsonText)
    readings: Mapped[dict[str, Any] | None] = mapped_column(JsonText)
    readings_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    idle_since: Mapped[datetime | None] = mapped_column(UtcDateTime)


class Lease(Base):
    """Who holds a device. The primary key is the device: the database itself refuses a second holder."""

    __tablename__ = "leases"

    device_id: Mapped[str] = mapped_column(String(120), ForeignKey("devices.id"), primary_key=True)
    worker_id: Mapped[str] = mapped_column(String(32), index=True)
    job_id: Mapped[str] = mapped_column(String(32), index=True)
    attempt: Mapped[int] = mapped_column(Integer)
    epoch: Mapped[int] = mapped_column(BigInteger)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
