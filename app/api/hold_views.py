"""The shapes of holds and of usage, as they are sent and answered."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.api.views import LeasedDevice, Moment, View
from app.spec.base import PlainText

EndedWhyName = Literal["released", "expired", "idle", "device_gone"]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
IdleSeconds = Annotated[float, Field(ge=60, le=31_536_000, allow_inf_nan=False)]


class HoldRequest(BaseModel):
    """Devices of one host for a person, for a while."""

    model_config = ConfigDict(extra="forbid", strict=True)

    device_count: Annotated[int, Field(ge=1, le=4096, description="How many, all of one host.", examples=[2])] = 1
    for_s: Annotated[Seconds, Field(description="For how many seconds from now.", examples=[14_400])]
    device_type: Annotated[
        Literal["auto", "cuda", "cpu"], Field(description="As in a job's spec.", examples=["cuda"])
    ] = "auto"
    device_name: (
        Annotated[
            PlainText,
            Field(min_length=1, max_length=120, description="Only devices with this in their name.", examples=["A100"]),
        ]
        | None
    ) = None
    min_device_memory_bytes: (
        Annotated[int, Field(ge=1, le=2**63 - 1, description="Of each device.", examples=[40_000_000_000])] | None
    ) = None
    host: (
        Annotated[
            PlainText,
            Field(min_length=1, max_length=255, description="The host's name, or its id.", examples=["box-1"]),
        ]
        | None
    ) = None
    note: Annotated[PlainText, Field(max_length=500, description="For people.", examples=["notebook"])] = ""
    stop_when_idle_s: (
        Annotated[
            IdleSeconds,
            Field(description="End it when none of its cards worked for so long; null: never.", examples=[1800]),
        ]
        | None
    ) = None


class HoldChange(BaseModel):
    """A new end: a time, or seconds from now; exactly one of the two."""

    model_config = ConfigDict(extra="forbid", strict=True)

    until: Annotated[Moment, Field(description="RFC 3339.", examples=["2030-01-31T18:00:00Z"])] | None = None
    for_s: Annotated[Seconds, Field(description="Seconds from now.", examples=[7200])] | None = None


class HeldDevice(LeasedDevice):
    threads: int


class HoldView(View):
    """Devices that a person has; over when `ended_at` is set."""

    id: str
    object: Literal["hold"]
    owner: str
    note: str
    worker_id: str
    host_name: str
    devices: list[HeldDevice]
    environment: dict[str, str] = Field(description="What a program on that host needs, before it starts.")
    created_at: datetime
    until: datetime
    ended_at: datetime | None
    ended_why: EndedWhyName | None
    stop_when_idle_s: float | None
    device_s: float = Field(description="Devices times seconds so far.")
    energy_j: float | None = Field(description="Joules that its cards took so far; null where none could be measured.")


class UsageView(View):
    """What one project, owner, job or day has used; a number of seconds is devices times seconds."""

    key: str = Field(description="The project's name, the owner, the job's or hold's id, or the day in UTC.")
    jobs: int
    holds: int
    cuda_device_s: float
    cpu_device_s: float
    energy_j: float | None = Field(description="Joules; null where nothing was measured.")


class UsageReport(View):
    object: Literal["usage"]
    by: Literal["project", "owner", "job", "day"]
    since: datetime
    until: datetime
    data: list[UsageView] = Field(description="The largest first; days in their order.")
    total: UsageView
