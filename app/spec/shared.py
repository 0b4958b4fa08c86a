"""What every kind of job has in its spec: a name, tags, devices, further attempts, limits of time and its place."""

import re
import unicodedata
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, Strict
from pydantic_core import PydanticCustomError

from app.spec.base import PlainText, ShortText, SpecModel

DeviceType: TypeAlias = Literal["cuda", "cpu"]

_RFC_3339 = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})")
_RESERVED_NAMES = frozenset({".", ".."})
_INVISIBLE = frozenset({"Cf", "Zs", "Zl", "Zp"})  # blanks, and marks without a width


def _timestamp(value: object) -> object:
    if isinstance(value, datetime) or (isinstance(value, str) and _RFC_3339.fullmatch(value)):
        return value
    raise PydanticCustomError("timestamp", "must be a time with its zone, for example 2030-01-31T08:00:00Z")


def _in_the_calendar(time: datetime) -> datetime:
    """Refuse a time that has no date in UTC: the last hours of the year 9999 west of Greenwich, for example."""
    try:
        time.astimezone(UTC)
    except OverflowError:
        raise PydanticCustomError(
            "timestamp", "must be a time between the years 1 and 9999 in UTC, for example 2030-01-31T08:00:00Z"
        ) from None
    return time


def _job_name(name: str) -> str:
    if name in _RESERVED_NAMES or all(unicodedata.category(letter) in _INVISIBLE for letter in name):
        raise PydanticCustomError("job_name", "must have at least one visible character, and not be a dot or two")
    return name


def _few(tags: dict[str, str]) -> dict[str, str]:
    limit = 16
    if len(tags) > limit:
        raise PydanticCustomError(
            "tags", "must have at most {limit} pairs, but has {count}", {"limit": limit, "count": len(tags)}
        )
    return tags


Timestamp = Annotated[
    Annotated[AwareDatetime, Strict(strict=False)],
    BeforeValidator(_timestamp, json_schema_input_type=AwareDatetime),
    AfterValidator(_in_the_calendar),
]
TagKey = Annotated[PlainText, Field(min_length=1, max_length=64)]
TagValue = Annotated[PlainText, Field(max_length=512)]


class Retry(SpecModel):
    """How many further attempts a job gets when one ends without success."""

    failures: int = Field(
        default=0, ge=0, le=100, description="After failures of the job itself (code, data, memory).", examples=[0]
    )
    losses: int = Field(
        default=3, ge=0, le=100, description="After losses that are not the job's fault (worker, device).", examples=[3]
    )


class Labelled(SpecModel):
    """What a spec begins with: how people find the job."""

    name: Annotated[ShortText, AfterValidator(_job_name)] | None = Field(
        default=None, description="A name for people; at most 120 characters.", examples=["penguins"]
    )
    tags: Annotated[dict[TagKey, TagValue], AfterValidator(_few)] = Field(
        default={}, description="At most 16 pairs of text, to find jobs by.", examples=[{"team": "birds"}]
    )


class Placed(Labelled):
    """Which devices a job gets."""

    device_count: int = Field(
        default=1, ge=1, le=4096, description="How many devices of one host the job gets.", examples=[1]
    )
    device_type: Literal["auto", "cuda", "cpu"] = Field(
        default="auto",
        description="`auto` = cuda when any host has, or ever had, a CUDA device, else cpu; decided at submit.",
        examples=["cpu"],
    )
    min_device_memory_bytes: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = Field(
        default=None, description="Only devices with at least this much memory.", examples=[16_000_000_000]
    )
    device_name: ShortText | None = Field(
        default=None, description="Only devices with this name.", examples=["NVIDIA H200"]
    )


class Bounded(Labelled):
    """How often and how long a job is tried, and when."""

    retry: Retry = Field(
        default=Retry(),
        description="Further attempts after one that ends without success.",
        examples=[{"failures": 0, "losses": 3}],
    )
    timeout_s: int = Field(
        default=86_400, ge=1, le=31_536_000, description="The longest running time over all attempts.", examples=[3600]
    )
    stop_when_idle_s: Annotated[float, Field(ge=60, le=31_536_000)] | None = Field(
        default=None,
        description="Stop the job (cause `idle`) when none of its cards has worked for so many seconds; null = never. "
        "CPU devices cannot tell, so there it has no effect.",
        examples=[1800],
    )
    priority: int = Field(default=0, ge=-10, le=10, description="Higher goes first.", examples=[0])
    not_before: Timestamp | None = Field(
        default=None, description="Do not start before this time (RFC 3339).", examples=["2030-01-31T08:00:00Z"]
    )


class CommonSpec(Bounded, Placed):
    """What every kind of job has, whatever it runs; the base of each kind's spec, which adds its `framework`.

    It is in parts so that each kind can have its own keys between them: the order of the keys in an effective spec is
    that of the specification, and Pydantic takes it from the order of the bases, the last one first.
    """
