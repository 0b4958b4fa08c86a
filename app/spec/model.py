"""The models: presets, and a list of layers. Presets expand to layers, so they mean the same in both frameworks."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from app.spec.base import SpecModel
from app.spec.layers import ActivationName, DropoutRate, LayerSpec, Units
from app.spec.sugar import named_by


class Linear(SpecModel):
    """The output layer alone: linear or logistic regression."""

    type: Literal["linear"] = Field(description="The kind of model.")


class Mlp(SpecModel):
    """Hidden dense layers, each followed by the activation and, if asked for, dropout; then the output layer."""

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


class Sequential(SpecModel):
    """A list of layers, run in order. The output layer is added from the task: do not write it."""

    type: Literal["sequential"] = Field(description="The kind of model.")
    layers: list[LayerSpec] = Field(
        min_length=1,
        max_length=256,
        description="The layers from the input on, without the output layer.",
        examples=[[{"type": "dense", "units": 64, "activation": "relu"}, {"type": "dropout", "rate": 0.2}]],
    )


ModelSpec = Annotated[
    Annotated[Linear | Mlp | Sequential, Field(discriminator="type")],
    BeforeValidator(
        named_by("type"),
        json_schema_input_type=Literal["linear", "mlp"]
        | Annotated[Linear | Mlp | Sequential, Field(discriminator="type")],
    ),
]
"""A model; the string `"mlp"` is sugar for `{"type": "mlp"}`."""
