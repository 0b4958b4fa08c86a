"""The spec of a model job as a client writes it, and the effective spec in which nothing is left open."""

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from app.spec.base import PlainText, SpecModel
from app.spec.data import DataInput, EffectiveData
from app.spec.model import ModelSpec
from app.spec.shared import Bounded, CommonSpec, DeviceType, Labelled, Placed
from app.spec.training import Hyperparameters

Framework: TypeAlias = Literal["torch", "tensorflow"]
Task: TypeAlias = Literal["classification", "regression"]
LossName: TypeAlias = Literal["cross_entropy", "mse", "mae", "huber"]
MetricName: TypeAlias = Literal["accuracy", "top_3", "top_5", "f1", "auc", "mae", "rmse", "r2"]
ExportFormat: TypeAlias = Literal["report", "tensorboard", "onnx", "keras"]


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


MetricList = Annotated[list[MetricName], AfterValidator(_without_repeats)]
ExportList = Annotated[list[ExportFormat], AfterValidator(_each_format_once)]


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


class Training(Labelled):
    """What a model job is about: what is trained, on which data, and how."""

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


class HandedOver(Labelled):
    """What a model job takes over from another, and what it leaves."""

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


class JobSpec(CommonSpec, Bounded, HandedOver, Placed, Training):
    """A training job: what to train, on which data, how, and on which devices.

    The shortest is `{"framework": "torch", "model": "mlp", "data": "digits", "device_count": 1}`.
    """


class EffectiveSpec(JobSpec):
    """The spec with every default filled in and nothing left `auto`; what a trainer reads.

    It has the same keys, so posting it again trains the same job. JSON and back gives an equal object.
    """

    data: EffectiveData = Field(description="What to train on, with target, features and split filled in.")
    task: Task = Field(description="What is predicted.", examples=["classification"])
    loss: LossName = Field(description="What training makes small.", examples=["cross_entropy"])
    metrics: MetricList = Field(description="Reported beside the loss.", examples=[["accuracy"]])
    device_type: DeviceType = Field(description="The kind of device that the job runs on.", examples=["cuda"])
