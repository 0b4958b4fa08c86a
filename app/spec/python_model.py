"""A model that a function of the client's builds; data, loop, metrics, checkpoints and export stay ours."""

import json
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from app.spec.base import PlainText, SpecModel
from app.spec.script import EXAMPLE_BUNDLE, BundleId, Environment

LARGEST_PARAMETERS = 64 * 1024
DEEPEST_PARAMETERS = 32

_ENTRYPOINT = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*", re.ASCII)


def _entrypoint(text: str) -> str:
    # `train.py:build` has the form of a module `py` in a package `train`; nobody has one, but many mean the file.
    if _ENTRYPOINT.fullmatch(text) is None or ".py:" in text:
        raise PydanticCustomError(
            "entrypoint", "must be a module, a colon and a function in it, for example package.module:build"
        )
    return text


def entrypoint_meant(text: str) -> str | None:
    """Return the entrypoint that `nets/small.py:build`, `nets.small.build` or `net:build()` means, or None."""
    plain = text.strip().removesuffix("()").removeprefix("./").replace(".py:", ":").replace("/", ".")
    module, _, function = plain.rpartition(".")
    meant = plain if ":" in plain else f"{module}:{'build' if function == 'py' else function}"
    return meant if _ENTRYPOINT.fullmatch(meant) and ".py:" not in meant else None


def _small(parameters: dict[str, Any]) -> dict[str, Any]:
    if _depth(parameters) > DEEPEST_PARAMETERS:
        raise PydanticCustomError(
            "parameters", "must nest objects and lists at most {most} deep", {"most": DEEPEST_PARAMETERS}
        )
    try:
        size = len(json.dumps(parameters, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError):  # a UnicodeEncodeError is one
        raise PydanticCustomError(
            "parameters", "must be JSON that UTF-8 can carry, without NaN or infinities"
        ) from None
    if size > LARGEST_PARAMETERS:
        raise PydanticCustomError(
            "parameters",
            "must be at most {most} bytes of JSON, but has {size}; put larger things into the bundle",
            {"most": LARGEST_PARAMETERS, "size": size},
        )
    return parameters


def _depth(value: object) -> int:
    """Count the levels of objects and lists, without recursion and no further than matters."""
    level, layer = 0, [value]
    while layer and level <= DEEPEST_PARAMETERS:
        level += any(isinstance(item, dict | list) for item in layer)
        layer = [
            inner
            for item in layer
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return level


class PythonModel(SpecModel):
    """A model that your own function builds: a `torch.nn.Module` or a `keras.Model`, by the spec's framework."""

    type: Literal["python"] = Field(description="The kind of model.")
    bundle: BundleId | None = Field(
        default=None,
        description="The uploaded code that has the module; null = it is in the worker's environment.",
        examples=[EXAMPLE_BUNDLE],
    )
    entrypoint: Annotated[PlainText, Field(min_length=3, max_length=512), AfterValidator(_entrypoint)] = Field(
        description="The module and the function in it that returns the model. It is called with `parameters`, and "
        "with `input_shape` and `output_units` if it has such arguments.",
        examples=["package.module:build"],
    )
    parameters: Annotated[dict[str, Any], AfterValidator(_small)] = Field(
        default={},
        description="Keyword arguments of the function: any JSON object of at most 64 KiB.",
        examples=[{"width": 64}],
    )
    environment: Environment = Field(
        default=Environment(),
        description="Packages and variables.",
        examples=[{"requirements": "requirements.txt", "variables": {}}],
    )
    network: bool = Field(
        default=False, description="Let the code reach the network; only where the service allows it."
    )
