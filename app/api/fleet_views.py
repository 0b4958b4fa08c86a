"""The shapes of hosts and devices, as they are answered, and what an admin may ask of a device."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.api.views import View
from app.spec.base import PlainText

DeviceState = Literal["free", "busy", "held", "in_use_elsewhere", "quarantined", "unusable", "offline"]
Health = Literal["ok", "unhealthy", "gone", "in_use_elsewhere", "quarantined"]


class QuarantineRequest(BaseModel):
    """Why a device is to be kept out of use."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: Annotated[
        PlainText,
        Field(min_length=1, max_length=500, description="For people; shown with the device.", examples=["fan is loud"]),
    ]


class ProcessView(View):
    pid: int = Field(description="As the driver numbers it: of the host, also when the worker is in a container.")
    user: str | None
    name: str | None
    memory_bytes: int | None
    kind: Literal["compute", "graphics"]


class HolderView(View):
    hold_id: str | None = Field(description="If it is a hold of your project; an admin sees all.")
    owner: str | None = Field(description="As above.")
    until: datetime


class ReadingsView(View):
    utilization: float | None = Field(default=None, description="0 to 1.")
    memory_used_bytes: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None


class DeviceInfo(View):
    id: str
    object: Literal["device"]
    worker_id: str
    host_name: str
    kind: str
    name: str
    position: int
    memory_bytes: int | None
    pci_bus_id: str | None
    simulated: bool
    health: Health
    reason: str | None = Field(description="Why it is not well, or why its host takes nothing new.")
    health_at: datetime | None = Field(description="Since when its health is what it is; null: since it is known.")
    state: DeviceState
    threads: int
    job_id: str | None = Field(description="Who has it, if that is a job of your project.")
    attempt: int | None
    held_by: HolderView | None = Field(description="The person who holds it, if one does.")
    processes: list[ProcessView] = Field(description="Processes on it that are none of this service's.")
    readings: ReadingsView | None = Field(description="What it last said of itself.")
    readings_at: datetime | None
    idle_since: datetime | None = Field(description="Since when somebody has it and does not use it.")


class RemarkView(View):
    code: str
    message: str


class RootView(View):
    ok: bool
    problem: str | None


class DriverView(View):
    version: str
    cuda: str | None


class ConditionView(View):
    disk_free_bytes: int | None
    disk_total_bytes: int | None
    shm_bytes: int | None
    environments: int | None = Field(description="Environments of packages that are kept there; null: not told.")
    environments_bytes: int | None = Field(description="What these take of the disk.")
    roots: dict[str, RootView]
    problems: list[RemarkView] = Field(description="Things to see to.")
    blockers: list[RemarkView] = Field(description="While there is one, nothing new starts on this host.")
    driver: DriverView | None
    metrics_port: int | None


class WorkerView(View):
    id: str
    object: Literal["worker"]
    host_id: str
    host_name: str
    online: bool
    cordoned: bool
    draining: bool = Field(description="Asked to stop what runs there; `devices_in_use` says how much is left.")
    drain_requested_at: datetime | None
    blocked: str | None = Field(description="Why the host takes nothing new although its worker is online.")
    reason: str | None
    condition: ConditionView
    frameworks: list[str]
    version: str
    started_at: datetime | None
    heartbeat_at: datetime | None
    devices: list[str]
    devices_in_use: int = Field(description="By jobs; what people hold is not counted.")
