"""NaN and infinities on channels that know only JSON: they travel as the three words of the API."""

import math
from typing import Final

_WORDS: Final[dict[str, float]] = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(value: float) -> float | str:
    """Return a finite number as it is, and NaN and infinities as `"NaN"`, `"Infinity"`, `"-Infinity"`."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def from_json(value: float | str) -> float:
    """Read what `to_json` wrote; any other word is a ValueError, so that no text is taken for a number."""
    if not isinstance(value, str):
        return float(value)
    try:
        return _WORDS[value]
    except KeyError:
        raise ValueError(
            f"{value!r} is not a number; the only words allowed are NaN, Infinity and -Infinity."
        ) from None
