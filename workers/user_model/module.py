"""Which function builds a model, and with what; plain data that every process of a job can have."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.spec.job import Framework
from app.spec.layers import Shape


@dataclass(frozen=True)
class UserModule:
    """A model by its function: `entrypoint` is `package.module:function`.

    `folder` is the unpacked bundle; None: the module is in the interpreter's own environment. `parameters` are the
    function's keyword arguments; it gets `input_shape` (of one row, without the batch) and `output_units` (classes, or
    1) besides, where it has such arguments. `seed` fixes every generator before the function is called.
    """

    framework: Framework
    folder: str | None
    entrypoint: str
    parameters: Mapping[str, Any]
    input_shape: Shape
    output_units: int
    seed: int = 0
