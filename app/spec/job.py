"""The job spec as a client writes it, and the effective spec in which nothing is left open."""

import re
import unicodedata
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Discriminator, Field, Strict, Tag
from pydantic_core import PydanticCustomError

from app.spec.base import PlainText, ShortText, SpecModel
from app.spec.data import DataInput, EffectiveData
from app.spec.model import ModelSpec
from app.spec.training import Hyperparameters

Framework: TypeAlias = Literal["torch", "tensorflow"]
Task: TypeAlias = Literal["classification", "regression"]
LossName: TypeAlias = Literal["cross_entropy", "mse", "mae", "huber"]
MetricName: TypeAlias = Literal["accuracy", "top_3", "top_5", "f1", "auc", "mae", "rmse", "r2"]
ExportFormat: TypeAlias = Literal["report", "tensorboard", "onnx", "keras"]
DeviceType: TypeAlias = Literal["cuda", "cpu"]

_RFC_3339 = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})")
_RESERVED_NAMES = frozenset({".", ".."})
_INVISIBLE = frozenset({"Cf", "Zs", "Zl", "Zp"})  # blanks, and marks without a width


def _list_or_word(value: object) -> str:
    return "list" if isinstance(value, list) else "word"


def _without_repeats(names: list[MetricName]) -> list[MetricName]:
    if len(set(names)) < len(names):
        raise PydanticCustomError("repeated", "must name each metric only once")
    return names


def _each_format_once(names: list[ExportFormat]) -> list[ExportFormat]:
    if len(set(names)) < len(names):
        raise PydanticCustomError("repeated", "must name each format only once")
    return names


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


MetricList = Annotated[list[MetricName], AfterValidator(_without_repeats)]
Timestamp = Annotated[
    Annotated[AwareDatetime, Strict(strict=False)],
    BeforeValidator(_timestamp, json_schema_input_type=AwareDatetime),
    AfterValidator(_in_the_calendar),
]
ExportList = Annotated[list[ExportFormat], AfterValidator(_each_format_once)]
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


def _step_or_word(value: object) -> str:
    return "word" if isinstance(value, str) else "step"


class InitializeFrom(SpecModel):
    """Start from the weights of another job's checkpoint instead of drawn ones; nothing else of it is taken over."""

    job: Annotated[PlainText, Field(min_length=1, max_length=64, pattern=r"^job_[0-9a-z]+$")] = Field(
        description="The id of a job of the same project.", examples=["job_01k0000000000000000000000a"]
    )
    checkpoint: Annotated[
        Annotated[Literal["best", "last"], Tag("word")] | Annotated[int, Field(ge=0, le=2**63 - 1), Tag("step")],
        Discriminator(_step_or_word),
    ] = Field(default="best", description="Which of its checkpoints: best, last, or a step.", examples=["best", 1200])


class JobSpec(SpecModel):
    """A training job: what to train, on which data, how, and on which devices.

    The shortest is `{"framework": "torch", "model": "mlp", "data": "digits", "device_count": 1}`.
    """

    name: Annotated[ShortText, AfterValidator(_job_name)] | None = Field(
        default=None, description="A name for people; at most 120 characters.", examples=["penguins"]
    )
    tags: Annotated[dict[TagKey, TagValue], AfterValidator(_few)] = Field(
        default={}, description="At most 16 pairs of text, to find jobs by.", examples=[{"team": "birds"}]
    )
    framework: Framework = Field(description="Which framework trains the model.", examples=["torch"])
    model: ModelSpec = Field(
        description="A preset (`linear`, `mlp`, `cnn`, `resnet`) or a list of layers (`sequential`).",
        examples=["mlp", {"type": "mlp", "hidden": [64, 64]}],
    )
    data: DataInput = Field(description="What to train on.", examples=["digits"])
    task: Literal["auto", "classification", "regression"] = Field(
        default="auto", description="What is predicted; `auto` looks at the target column.", examples=["classification"]
    )
    loss: Literal["auto", "cross_entropy", "mse", "mae", "huber"] = Field(
        default="auto",
        description="What training makes small: cross_entropy for classification; mse, mae or huber (delta 1) for "
        "regression. All are means over rows, without the l1 and l2 terms. `auto` = cross_entropy or mse. With "
        "`data.preprocess.numeric: standardize` a regression target is standardised too, by the training part: losses "
        "are then in its standard deviations, while mae and rmse stay in its own unit.",
        examples=["cross_entropy"],
    )
    metrics: Annotated[
        Annotated[Literal["auto"], Tag("word")] | Annotated[MetricList, Tag("list")], Discriminator(_list_or_word)
    ] = Field(
        default="auto",
        description="Reported beside the loss. For classification: accuracy, top_3 and top_5 (the class is among the "
        "first 3 or 5), f1 (mean over classes), auc (mean over classes, one against the rest); for regression: mae, "
        "rmse, r2. `auto` = accuracy, or all of regression's.",
        examples=["auto", ["accuracy"]],
    )
    hyperparameters: Hyperparameters = Field(
        default=Hyperparameters(),
        description="How the model is trained.",
        examples=[{"epochs": 20, "learning_rate": 0.001}],
    )
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
    initialize_from: InitializeFrom | None = Field(
        default=None,
        description="Start from the weights of another job; null = draw them from the seed.",
        examples=[{"job": "job_01k0000000000000000000000a", "checkpoint": "best"}],
    )
    exports: ExportList = Field(
        default=["report", "tensorboard"],
        description="Files made after a success, beside the model itself: report (curves and tables), tensorboard "
        "(event file), onnx, keras (tensorflow only).",
        examples=[["report", "onnx"]],
    )
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


class EffectiveSpec(JobSpec):
    """The spec with every default filled in and nothing left `auto`; what a trainer reads.

    It has the same keys, so posting it again trains the same job. JSON and back gives an equal object.
    """

    data: EffectiveData = Field(description="What to train on, with target, features and split filled in.")
    task: Task = Field(description="What is predicted.", examples=["classification"])
    loss: LossName = Field(description="What training makes small.", examples=["cross_entropy"])
    metrics: MetricList = Field(description="Reported beside the loss.", examples=[["accuracy"]])
    device_type: DeviceType = Field(description="The kind of device that the job runs on.", examples=["cuda"])
