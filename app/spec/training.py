"""The hyperparameters: how long, how fast, with which optimizer. Optimizers follow torch's definitions."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from app.spec.base import NonNegative, Positive, SpecModel
from app.spec.data import Seed
from app.spec.sugar import named_by

SMALLEST, LARGEST = 1e-30, 1e30
"""Where a factor of training may lie. Weights are 32-bit numbers: beyond this a factor is 0 or infinite to them."""

NEAREST_TO_1 = 0.9999999
"""The largest share below 1 that is still below 1 as a 32-bit number, with room for `1 - share` to mean something."""


def _fits_training(value: float) -> float:
    if value and not SMALLEST <= value <= LARGEST:
        raise PydanticCustomError(
            "float32",
            "must fit the 32-bit numbers of training: between {smallest} and {largest}",
            {"smallest": SMALLEST, "largest": LARGEST},
        )
    return value


def _below_1(value: float) -> float:
    if value > NEAREST_TO_1:
        raise PydanticCustomError(
            "float32",
            "must be at most {largest}: closer to 1 it is 1 to the 32-bit numbers of training",
            {"largest": NEAREST_TO_1},
        )
    return value


Moment = Annotated[float, Field(ge=0, lt=1), AfterValidator(_below_1)]
Rate = Annotated[Positive, AfterValidator(_fits_training)]
Factor = Annotated[NonNegative, AfterValidator(_fits_training)]


class Sgd(SpecModel):
    """Stochastic gradient descent: `v = momentum v + g`, `w -= rate v` (the rate stands outside the velocity)."""

    name: Literal["sgd"] = Field(description="The optimizer.")
    momentum: Moment = Field(default=0.0, description="The share of the velocity that is kept.", examples=[0.9])
    nesterov: bool = Field(default=False, description="Look ahead along the velocity; needs momentum above 0.")

    @model_validator(mode="after")
    def _momentum_for_nesterov(self) -> "Sgd":
        if self.nesterov and not self.momentum:
            raise PydanticCustomError("nesterov", "needs momentum above 0 for nesterov, for example 0.9")
        return self


class Adam(SpecModel):
    """Adam: `w -= rate m' / (sqrt(v') + epsilon)` with bias-corrected m' and v'; epsilon stands outside the root."""

    name: Literal["adam"] = Field(description="The optimizer.")
    beta_1: Moment = Field(default=0.9, description="Decay of the gradient's mean.", examples=[0.9])
    beta_2: Moment = Field(default=0.999, description="Decay of the gradient's square.", examples=[0.999])
    epsilon: Rate = Field(default=1e-7, description="Added after the root and the bias correction.", examples=[1e-7])


class Constant(SpecModel):
    """The learning rate stays as it is."""

    name: Literal["constant"] = Field(description="The schedule.")


class Cosine(SpecModel):
    """From the learning rate at step 0 down to the final rate after the last step, along half a cosine.

    `rate(step) = final + (start - final) (1 + cos(pi step / steps)) / 2`, step from 0, steps = all the job's.
    """

    name: Literal["cosine"] = Field(description="The schedule.")
    final_learning_rate: Factor = Field(default=0.0, description="The rate at the end.", examples=[0.0001])


OptimizerSpec = Annotated[
    Annotated[Sgd | Adam, Field(discriminator="name")],
    BeforeValidator(
        named_by("name"),
        json_schema_input_type=Literal["sgd", "adam"] | Annotated[Sgd | Adam, Field(discriminator="name")],
    ),
]
ScheduleSpec = Annotated[
    Annotated[Constant | Cosine, Field(discriminator="name")],
    BeforeValidator(
        named_by("name"),
        json_schema_input_type=Literal["constant", "cosine"]
        | Annotated[Constant | Cosine, Field(discriminator="name")],
    ),
]


def _no_decay(value: float) -> float:
    if value:
        raise PydanticCustomError(
            "weight_decay", "must be 0: only the optimizer adamw decays weights, and it comes later"
        )
    return value


class Hyperparameters(SpecModel):
    """How the model is trained."""

    epochs: int = Field(default=20, ge=1, le=1_000_000, description="Passes over the training part.", examples=[20])
    batch_size: int = Field(
        default=64,
        ge=1,
        le=1_048_576,
        description="Rows per step over all devices together; the last batch of an epoch may be smaller.",
        examples=[64],
    )
    learning_rate: Rate = Field(default=0.001, description="The learning rate at the start.", examples=[0.001])
    optimizer: OptimizerSpec = Field(default=Adam(name="adam"), description="The optimizer.", examples=["adam"])
    schedule: ScheduleSpec = Field(
        default=Constant(name="constant"), description="How the learning rate changes.", examples=["cosine"]
    )
    l1: Factor = Field(
        default=0.0,
        description="Adds l1 times the sum of |kernel| over all dense layers to the loss.",
        examples=[0.0001],
    )
    l2: Factor = Field(
        default=0.0,
        description="Adds l2 times the sum of kernel² over all dense layers to the loss.",
        examples=[0.0001],
    )
    weight_decay: Annotated[NonNegative, AfterValidator(_no_decay)] = Field(
        default=0.0, description="Decoupled weight decay; must be 0 until adamw is there.", examples=[0.0]
    )
    early_stopping: None = Field(default=None, description="Comes later: must be null.", examples=[None])
    checkpoint_every_epochs: int = Field(
        default=1,
        ge=1,
        le=1_000_000,
        description="Checkpoints come later; the number is kept, and has no effect yet.",
        examples=[1],
    )
    seed: Seed = Field(
        default=0,
        description="Seed of initial weights, batch order, dropout and, unless it has its own, the split.",
        examples=[0],
    )
