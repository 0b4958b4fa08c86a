"""The layers as a client writes them in a model of type `sequential`; `app.spec.layers` says what each means."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from app.spec.base import SpecModel
from app.spec.layers import ActivationName, Merge, Padding
from app.spec.ranges import Moment, Rate

DEEPEST = 8
"""How deep residual and parallel layers may stand inside of each other."""

MOST_LAYERS = 1024
"""Layers of a model, the nested ones included."""

Units = Annotated[int, Field(ge=1, le=65536)]
Window = Annotated[int, Field(ge=1, le=1024)]
Length = Annotated[int, Field(ge=1, le=16_777_216)]
DropoutRate = Annotated[float, Field(ge=0, lt=1)]


def _list_or_number(value: object) -> str:
    return "list" if isinstance(value, list) else "number"


Sides = Annotated[
    Annotated[Window, Tag("number")] | Annotated[list[Window], Field(min_length=2, max_length=2), Tag("list")],
    Discriminator(_list_or_number),
]
"""One number for height and width, or both: `3` or `[3, 5]`."""


class Dense(SpecModel):
    """A fully connected layer over the last axis: `activation(x @ kernel + bias)`."""

    type: Literal["dense"] = Field(description="The kind of layer.")
    units: Units = Field(description="How many values the layer gives out.", examples=[64])
    activation: ActivationName = Field(default="linear", description="Applied to each value.", examples=["relu"])
    use_bias: bool = Field(default=True, description="Add a trained number to each unit; off before a batch_norm.")


class Activation(SpecModel):
    """A function applied to each value; it has no parameters."""

    type: Literal["activation"] = Field(description="The kind of layer.")
    function: ActivationName = Field(
        description="The function; `gelu` is the exact (erf) form, `leaky_relu` has slope 0.01.", examples=["relu"]
    )


class Dropout(SpecModel):
    """While training, set a share of the values to zero and scale the others up; later do nothing."""

    type: Literal["dropout"] = Field(description="The kind of layer.")
    rate: DropoutRate = Field(description="The share of values set to zero, below 1.", examples=[0.2])


class BatchNorm(SpecModel):
    """Normalise each feature with the statistics of the batch; in prediction with moving averages of them."""

    type: Literal["batch_norm"] = Field(description="The kind of layer.")
    momentum: Moment = Field(
        default=0.9, description="The share of the old moving statistics that a step keeps.", examples=[0.9]
    )
    epsilon: Rate = Field(default=1e-3, description="Added to the variance.", examples=[0.001])


class LayerNorm(SpecModel):
    """Normalise the last axis of each row."""

    type: Literal["layer_norm"] = Field(description="The kind of layer.")
    epsilon: Rate = Field(default=1e-3, description="Added to the variance.", examples=[0.001])


class Flatten(SpecModel):
    """All values in one axis, channels last."""

    type: Literal["flatten"] = Field(description="The kind of layer.")


class Reshape(SpecModel):
    """The same values in another shape, channels last; the batch is not written."""

    type: Literal["reshape"] = Field(description="The kind of layer.")
    shape: list[Length] = Field(
        min_length=1, max_length=8, description="The new shape of a row, without the batch.", examples=[[8, 8, 1]]
    )


class Conv1d(SpecModel):
    """A convolution along a sequence: [steps, features] to [steps', filters]."""

    type: Literal["conv1d"] = Field(description="The kind of layer.")
    filters: Units = Field(description="How many features the layer gives out.", examples=[32])
    kernel_size: Window = Field(description="Steps that a filter sees.", examples=[3])
    strides: Window = Field(default=1, description="Steps between two places of the filter.", examples=[1])
    padding: Padding = Field(default="same", description="`same` pads with zeros, `valid` does not.")
    dilation: Window = Field(default=1, description="Steps between two values that a filter sees.", examples=[1])
    use_bias: bool = Field(default=True, description="Add a trained number to each filter; off before a batch_norm.")
    activation: ActivationName = Field(default="linear", description="Applied to each value.", examples=["relu"])

    @model_validator(mode="after")
    def _strides_or_dilation(self) -> "Conv1d":
        _not_both(self.strides, self.dilation)
        return self


class Conv2d(SpecModel):
    """A convolution over pictures: [height, width, channels] to [height', width', filters]."""

    type: Literal["conv2d"] = Field(description="The kind of layer.")
    filters: Units = Field(description="How many channels the layer gives out.", examples=[32])
    kernel_size: Sides = Field(description="Height and width of a filter.", examples=[3, [3, 5]])
    strides: Sides = Field(default=1, description="Pixels between two places of the filter.", examples=[1, [2, 1]])
    padding: Padding = Field(default="same", description="`same` pads with zeros, `valid` does not.")
    dilation: Sides = Field(default=1, description="Pixels between two values that a filter sees.", examples=[1])
    use_bias: bool = Field(default=True, description="Add a trained number to each filter; off before a batch_norm.")
    activation: ActivationName = Field(default="linear", description="Applied to each value.", examples=["relu"])

    @model_validator(mode="after")
    def _strides_or_dilation(self) -> "Conv2d":
        _not_both(self.strides, self.dilation)
        return self


class MaxPool2d(SpecModel):
    """The largest value of each window of a picture."""

    type: Literal["max_pool2d"] = Field(description="The kind of layer.")
    pool_size: Sides = Field(default=2, description="Height and width of a window.", examples=[2, [2, 1]])
    strides: Sides | None = Field(
        default=None, description="Pixels between two windows; null = the window's size.", examples=[2]
    )
    padding: Padding = Field(default="valid", description="`same` pads at the edges, `valid` leaves the rest out.")


class AvgPool2d(SpecModel):
    """The mean of each window of a picture; padding is not counted."""

    type: Literal["avg_pool2d"] = Field(description="The kind of layer.")
    pool_size: Sides = Field(default=2, description="Height and width of a window.", examples=[2, [2, 1]])
    strides: Sides | None = Field(
        default=None, description="Pixels between two windows; null = the window's size.", examples=[2]
    )
    padding: Padding = Field(default="valid", description="`same` pads at the edges, `valid` leaves the rest out.")


class GlobalAvgPool2d(SpecModel):
    """The mean of each channel over the whole picture: [height, width, channels] to [channels]."""

    type: Literal["global_avg_pool2d"] = Field(description="The kind of layer.")


class Embedding(SpecModel):
    """A trained vector for each whole number; the first layer, or right after reshape."""

    type: Literal["embedding"] = Field(description="The kind of layer.")
    input_dim: Length = Field(description="How many numbers there are: inputs are 0 to input_dim - 1.", examples=[1000])
    output_dim: Units = Field(description="The length of each vector.", examples=[16])


class Lstm(SpecModel):
    """A recurrent layer with a memory: [steps, features] to [units], or [steps, units]."""

    type: Literal["lstm"] = Field(description="The kind of layer.")
    units: Units = Field(description="How many values the layer gives out at each step.", examples=[32])
    return_sequences: bool = Field(default=False, description="Give out every step, not the last alone.")


class Gru(SpecModel):
    """A recurrent layer with gates: [steps, features] to [units], or [steps, units]."""

    type: Literal["gru"] = Field(description="The kind of layer.")
    units: Units = Field(description="How many values the layer gives out at each step.", examples=[32])
    return_sequences: bool = Field(default=False, description="Give out every step, not the last alone.")


class Residual(SpecModel):
    """`layers(x) + shortcut(x)`; both must give the same shape."""

    type: Literal["residual"] = Field(description="The kind of layer.")
    layers: list["LayerSpec"] = Field(
        min_length=1,
        max_length=256,
        description="The layers whose output is added.",
        examples=[[{"type": "dense", "units": 64, "activation": "relu"}]],
    )
    shortcut: list["LayerSpec"] = Field(
        default=[], max_length=256, description="The layers of the other way; [] = x as it is.", examples=[[]]
    )


class Parallel(SpecModel):
    """Branches that all see the same input, joined on the last axis or summed."""

    type: Literal["parallel"] = Field(description="The kind of layer.")
    branches: list[Annotated[list["LayerSpec"], Field(max_length=256)]] = Field(
        min_length=1,
        max_length=64,
        description="The layers of each branch; [] = x as it is.",
        examples=[[[{"type": "dense", "units": 16}], []]],
    )
    merge: Merge = Field(default="concat", description="`concat` joins the outputs on the last axis, `add` sums them.")


LayerSpec = Annotated[
    Dense
    | Activation
    | Dropout
    | BatchNorm
    | LayerNorm
    | Flatten
    | Reshape
    | Conv1d
    | Conv2d
    | MaxPool2d
    | AvgPool2d
    | GlobalAvgPool2d
    | Embedding
    | Lstm
    | Gru
    | Residual
    | Parallel,
    Field(discriminator="type"),
]

Residual.model_rebuild()
Parallel.model_rebuild()


def _not_both(strides: int | list[int], dilation: int | list[int]) -> None:
    if strides not in (1, [1, 1]) and dilation not in (1, [1, 1]):
        raise PydanticCustomError("strides", "must have strides 1 or dilation 1: no framework computes both at once")
