"""The optimizers, by torch's definitions in both frameworks; g is the gradient, w a weight, rate the learning rate."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from app.spec.base import SpecModel
from app.spec.ranges import Factor, Moment, Rate
from app.spec.sugar import named_by


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


class AdamW(SpecModel):
    """Adam with decoupled weight decay: first `w -= rate weight_decay w` for every kernel, then Adam's step.

    `hyperparameters.weight_decay` says how much; it acts on kernels, not on biases or normalisation.
    """

    name: Literal["adamw"] = Field(description="The optimizer.")
    beta_1: Moment = Field(default=0.9, description="Decay of the gradient's mean.", examples=[0.9])
    beta_2: Moment = Field(default=0.999, description="Decay of the gradient's square.", examples=[0.999])
    epsilon: Rate = Field(default=1e-7, description="Added after the root and the bias correction.", examples=[1e-7])


class RmsProp(SpecModel):
    """RMSprop: `s = rho s + (1 - rho) g^2`, `b = momentum b + g / (sqrt(s) + epsilon)`, `w -= rate b`."""

    name: Literal["rmsprop"] = Field(description="The optimizer.")
    rho: Moment = Field(default=0.9, description="Decay of the gradient's square.", examples=[0.9])
    momentum: Moment = Field(default=0.0, description="The share of the velocity that is kept.", examples=[0.9])
    epsilon: Rate = Field(default=1e-7, description="Added after the root.", examples=[1e-7])


class Adagrad(SpecModel):
    """Adagrad: `s += g^2`, `w -= rate g / (sqrt(s) + epsilon)`, s from `initial_accumulator`."""

    name: Literal["adagrad"] = Field(description="The optimizer.")
    initial_accumulator: Factor = Field(default=0.0, description="What the sum of squares starts from.", examples=[0.1])
    epsilon: Rate = Field(default=1e-7, description="Added after the root.", examples=[1e-7])


Optimizer: TypeAlias = Sgd | Adam | AdamW | RmsProp | Adagrad
_Tagged = Annotated[Optimizer, Field(discriminator="name")]
OptimizerSpec = Annotated[
    _Tagged,
    BeforeValidator(
        named_by("name"),
        json_schema_input_type=Literal["sgd", "adam", "adamw", "rmsprop", "adagrad"] | _Tagged,
    ),
]
"""An optimizer; the string `"adam"` is sugar for `{"name": "adam"}`."""
