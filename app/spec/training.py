"""The hyperparameters: how long, how fast, with which optimizer, and when to stop."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from app.spec.base import NonNegative, PlainText, SpecModel
from app.spec.data import Seed
from app.spec.monitors import MonitorName, higher_is_better
from app.spec.optimizers import Adagrad, Adam, AdamW, Optimizer, OptimizerSpec, RmsProp, Sgd
from app.spec.ranges import Factor, Rate
from app.spec.schedules import (
    Constant,
    Cosine,
    Exponential,
    Patience,
    ReduceOnPlateau,
    Schedule,
    ScheduleSpec,
    Step,
)

__all__ = [
    "Adagrad",
    "Adam",
    "AdamW",
    "ClassWeights",
    "Constant",
    "Cosine",
    "EarlyStopping",
    "Exponential",
    "Hyperparameters",
    "MonitorName",
    "Optimizer",
    "OptimizerSpec",
    "Precision",
    "ReduceOnPlateau",
    "RmsProp",
    "Schedule",
    "ScheduleSpec",
    "Sgd",
    "Step",
    "higher_is_better",
]

Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]
ClassWeights: TypeAlias = Literal["balanced"] | dict[str, float] | None
MOST_CLASSES = 1000

Label = Annotated[PlainText, Field(max_length=256)]


def _object_or_word(value: object) -> str:
    return "object" if isinstance(value, dict) else "word"


class EarlyStopping(SpecModel):
    """Stop when `monitor` has not become better, by more than `min_delta`, for `patience` epochs.

    With `restore_best` the saved model, and the metrics reported at the end, are those of the best epoch, however the
    job ends.
    """

    monitor: MonitorName = Field(default="val_loss", description="The value to look at after each epoch.")
    patience: Patience = Field(
        default=5, description="Epochs without a better value; when there were as many, training stops.", examples=[5]
    )
    min_delta: NonNegative = Field(default=0.0, description="How much better counts as better.", examples=[0.001])
    restore_best: bool = Field(default=True, description="Keep the weights of the best epoch, not of the last.")


class Hyperparameters(SpecModel):
    """How the model is trained."""

    epochs: int = Field(default=20, ge=1, le=1_000_000, description="Passes over the training part.", examples=[20])
    batch_size: int = Field(
        default=64,
        ge=1,
        le=1_048_576,
        description="Rows per step over all devices together; the last batch of an epoch may be smaller. With "
        "batch_norm a last batch of one row joins the batch before it.",
        examples=[64],
    )
    learning_rate: Rate = Field(default=0.001, description="The learning rate at the start.", examples=[0.001])
    optimizer: OptimizerSpec = Field(default=Adam(name="adam"), description="The optimizer.", examples=["adam"])
    schedule: ScheduleSpec = Field(
        default=Constant(name="constant"), description="How the learning rate changes.", examples=["cosine"]
    )
    l1: Factor = Field(
        default=0.0,
        description="Adds l1 times the sum of |w| over all kernels to the loss; recurrent kernels too.",
        examples=[0.0001],
    )
    l2: Factor = Field(
        default=0.0,
        description="Adds l2 times the sum of w² over all kernels to the loss; recurrent kernels too.",
        examples=[0.0001],
    )
    weight_decay: Factor = Field(
        default=0.0, description="Decoupled weight decay of all kernels; needs the optimizer adamw.", examples=[0.01]
    )
    clip_norm: Rate | None = Field(
        default=None,
        description="Scale the gradients of a step down so that their norm, over all weights together, is at most "
        "this.",
        examples=[1.0],
    )
    clip_value: Rate | None = Field(
        default=None,
        description="Cut every number of the gradients to between minus this and this; before clip_norm.",
        examples=[0.5],
    )
    class_weights: (
        Annotated[
            Annotated[Literal["balanced"], Tag("word")]
            | Annotated[dict[Label, Rate], Field(min_length=1, max_length=MOST_CLASSES), Tag("object")],
            Discriminator(_object_or_word),
        ]
        | None
    ) = Field(
        default=None,
        description="The weight of each class in the training loss: `balanced` = rows / (classes * rows of the class) "
        "of the training part, or weights by label, 1 for labels that are left out.",
        examples=["balanced", {"yes": 5.0, "no": 1.0}],
    )
    precision: Precision = Field(
        default="float32",
        description="What large products are computed in. Weights, optimizer, normalisation, the output layer and the "
        "loss stay float32; float16 scales the loss.",
        examples=["bfloat16"],
    )
    early_stopping: EarlyStopping | None = Field(
        default=None,
        description="Stop when a value no longer becomes better; {} takes every default.",
        examples=[{"monitor": "val_loss", "patience": 5}],
    )
    checkpoint_every_epochs: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None,
        description="Keep a checkpoint every so many epochs; null = as often as it costs little, and keep the best and "
        "the last alone.",
        examples=[5],
    )
    seed: Seed = Field(
        default=0,
        description="Seed of initial weights, batch order, dropout and, unless it has its own, the split.",
        examples=[0],
    )

    @field_validator("weight_decay")
    @classmethod
    def _decay_needs_adamw(cls, value: float, info: ValidationInfo) -> float:
        optimizer = info.data.get("optimizer")  # absent when it is wrong itself
        if value and optimizer is not None and not isinstance(optimizer, AdamW):
            raise PydanticCustomError(
                "weight_decay", 'must be 0, or the optimizer "adamw"; with "{name}" use l2', {"name": optimizer.name}
            )
        return value
