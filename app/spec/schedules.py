"""How the learning rate changes; every schedule can begin with a linear warm-up.

While `step < warmup_steps` (steps count from 0) the rate is `learning_rate (step + 1) / warmup_steps`. After it, a
schedule counts from 0 again: it sees `step - warmup_steps` of `steps - warmup_steps` steps.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from app.spec.base import NonNegative, SpecModel
from app.spec.monitors import MonitorName
from app.spec.ranges import Factor
from app.spec.sugar import named_by

WarmupSteps = Annotated[
    int,
    Field(
        ge=0,
        le=1_000_000_000,
        description="Steps in which the rate first rises in a straight line; 0 = none.",
        examples=[100],
    ),
]
Share = Annotated[float, Field(gt=0, le=1)]
Patience = Annotated[int, Field(ge=0, le=1_000_000)]


class Constant(SpecModel):
    """The learning rate stays as it is."""

    name: Literal["constant"] = Field(description="The schedule.")
    warmup_steps: WarmupSteps = 0


class Cosine(SpecModel):
    """From the learning rate at step 0 down to the final rate after the last step, along half a cosine.

    `rate(step) = final + (start - final) (1 + cos(pi step / steps)) / 2`, step from 0, steps = all the job's.
    """

    name: Literal["cosine"] = Field(description="The schedule.")
    final_learning_rate: Factor = Field(default=0.0, description="The rate at the end.", examples=[0.0001])
    warmup_steps: WarmupSteps = 0


class Step(SpecModel):
    """Times `factor` after every `every_epochs` epochs: `rate(epoch) = start factor^floor(epoch / every_epochs)`."""

    name: Literal["step"] = Field(description="The schedule.")
    every_epochs: int = Field(default=10, ge=1, le=1_000_000, description="Epochs between two changes.", examples=[10])
    factor: Share = Field(default=0.1, description="What the rate is multiplied by each time.", examples=[0.1])
    warmup_steps: WarmupSteps = 0


class Exponential(SpecModel):
    """Times `factor` per epoch, a little at every step: `rate(step) = start factor^(step / steps_per_epoch)`."""

    name: Literal["exponential"] = Field(description="The schedule.")
    factor: Share = Field(default=0.95, description="What an epoch multiplies the rate by.", examples=[0.95])
    warmup_steps: WarmupSteps = 0


class ReduceOnPlateau(SpecModel):
    """Times `factor` when `monitor` has not become better for `patience` epochs; then wait `cooldown` epochs.

    Better: by more than `min_delta` than the best so far. The rate never falls below `min_learning_rate`.
    """

    name: Literal["reduce_on_plateau"] = Field(description="The schedule.")
    monitor: MonitorName = Field(default="val_loss", description="The value to look at after each epoch.")
    factor: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.5, description="What the rate is multiplied by each time.", examples=[0.5]
    )
    patience: Patience = Field(
        default=5,
        description="Epochs without a better value that are waited for; the next one changes the rate.",
        examples=[5],
    )
    min_delta: NonNegative = Field(default=0.0, description="How much better counts as better.", examples=[0.001])
    cooldown: Patience = Field(default=0, description="Epochs after a change that are not counted.", examples=[0])
    min_learning_rate: Factor = Field(default=0.0, description="The rate never falls below.", examples=[0.000001])
    warmup_steps: WarmupSteps = 0


Schedule: TypeAlias = Constant | Cosine | Step | Exponential | ReduceOnPlateau
_Tagged = Annotated[Schedule, Field(discriminator="name")]
ScheduleSpec = Annotated[
    _Tagged,
    BeforeValidator(
        named_by("name"),
        json_schema_input_type=Literal["constant", "cosine", "step", "exponential", "reduce_on_plateau"] | _Tagged,
    ),
]
"""A schedule; the string `"cosine"` is sugar for `{"name": "cosine"}`."""
