"""The models: presets, and a list of layers. Presets expand to layers, so they mean the same in both frameworks."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from app.spec.base import SpecModel
from app.spec.layer_specs import DEEPEST, MOST_LAYERS, DropoutRate, LayerSpec, Length, Units, Window
from app.spec.layers import ActivationName
from app.spec.python_model import PythonModel
from app.spec.sugar import named_by

InputShape = Annotated[list[Length], Field(min_length=3, max_length=3)]


class Linear(SpecModel):
    """The output layer alone: linear or logistic regression."""

    type: Literal["linear"] = Field(description="The kind of model.")


class Mlp(SpecModel):
    """Hidden dense layers, each followed by batch_norm if asked for, the activation and dropout; then the output."""

    type: Literal["mlp"] = Field(description="The kind of model.")
    hidden: list[Units] = Field(
        default=[64, 64],
        min_length=1,
        max_length=64,
        description="The units of each hidden layer, from the input on.",
        examples=[[64, 64]],
    )
    activation: ActivationName = Field(
        default="relu", description="The activation after each hidden layer.", examples=["relu"]
    )
    dropout: DropoutRate = Field(
        default=0.0, description="The share of values dropped after each hidden layer; 0 = none.", examples=[0.2]
    )
    batch_norm: bool = Field(
        default=False, description="Normalise before each activation; the hidden layers then have no bias."
    )


class Cnn(SpecModel):
    """Blocks of convolution, batch norm, activation and max pooling; then flatten, dense layers and the output.

    `dropout` follows each dense layer (the flattened pictures when there is none).
    """

    type: Literal["cnn"] = Field(description="The kind of model.")
    filters: list[Units] = Field(
        default=[16, 32],
        min_length=1,
        max_length=32,
        description="The filters of each block, from the input on.",
        examples=[[16, 32]],
    )
    kernel_size: Window = Field(default=3, description="Height and width of the filters.", examples=[3])
    batch_norm: bool = Field(
        default=True, description="Normalise before each activation; the convolutions then have no bias."
    )
    pool: Window = Field(
        default=2,
        description="Height and width of the windows of max pooling after each block; 1 = none.",
        examples=[2],
    )
    activation: ActivationName = Field(default="relu", description="The activation everywhere.", examples=["relu"])
    dense: list[Units] = Field(
        default=[64], max_length=64, description="The units of each dense layer before the output.", examples=[[64]]
    )
    dropout: DropoutRate = Field(default=0.0, description="The share of values dropped; 0 = none.", examples=[0.2])
    input_shape: InputShape | None = Field(
        default=None,
        description="[height, width, channels] of a picture; null = what the data says.",
        examples=[[8, 8, 1]],
    )


class Resnet(SpecModel):
    """A residual network: stages of blocks, each two convolutions beside a shortcut; mean over the picture; output.

    From the second stage on, the first block halves height and width, and its shortcut is a 1 x 1 convolution. Every
    convolution is followed by batch norm and has no bias.
    """

    type: Literal["resnet"] = Field(description="The kind of model.")
    filters: list[Units] = Field(
        default=[16, 32, 64],
        min_length=1,
        max_length=8,
        description="The filters of each stage, from the input on.",
        examples=[[16, 32, 64]],
    )
    blocks: int = Field(default=2, ge=1, le=32, description="Residual blocks per stage.", examples=[2])
    dropout: DropoutRate = Field(
        default=0.0, description="The share of values dropped before the output; 0 = none.", examples=[0.2]
    )
    activation: ActivationName = Field(default="relu", description="The activation everywhere.", examples=["relu"])
    input_shape: InputShape | None = Field(
        default=None,
        description="[height, width, channels] of a picture; null = what the data says.",
        examples=[[8, 8, 1]],
    )


def _few_and_flat(value: object) -> object:
    """Look at the raw layers first: a body of thousands of nested layers must not be built before it is refused."""
    count = 0
    waiting = [(layer, 0) for layer in _listed(value)]
    while waiting:
        layer, depth = waiting.pop()
        count += 1
        if depth > DEEPEST:
            raise PydanticCustomError(
                "nesting", "must nest residual and parallel layers at most {most} deep", {"most": DEEPEST}
            )
        if count > MOST_LAYERS:
            raise PydanticCustomError("layers", "must have at most {most} layers in all", {"most": MOST_LAYERS})
        if isinstance(layer, dict):
            branches = [layer.get("layers"), layer.get("shortcut"), *_listed(layer.get("branches"))]
            waiting += [(inner, depth + 1) for branch in branches for inner in _listed(branch)]
    return value


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


class Sequential(SpecModel):
    """A list of layers, run in order. The output layer is added from the task: do not write it."""

    type: Literal["sequential"] = Field(description="The kind of model.")
    layers: Annotated[list[LayerSpec], BeforeValidator(_few_and_flat)] = Field(
        min_length=1,
        max_length=256,
        description="The layers from the input on, without the output layer.",
        examples=[[{"type": "dense", "units": 64, "activation": "relu"}, {"type": "dropout", "rate": 0.2}]],
    )


Model: TypeAlias = Linear | Mlp | Cnn | Resnet | Sequential | PythonModel
_Tagged = Annotated[Model, Field(discriminator="type")]
ModelSpec = Annotated[
    _Tagged,
    BeforeValidator(named_by("type"), json_schema_input_type=Literal["linear", "mlp", "cnn", "resnet"] | _Tagged),
]
"""A model; the string `"mlp"` is sugar for `{"type": "mlp"}`."""
