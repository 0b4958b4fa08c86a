"""Numbers of training and the range in which they mean something to 32-bit arithmetic."""

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from app.spec.base import NonNegative, Positive

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
