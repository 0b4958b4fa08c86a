"""Times and sizes as people type them: `4h`, `1h30m`, `40GiB`."""

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from app.cli.errors import UsageProblem

_SECONDS: Final = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)(s|min|m|h|d)", re.ASCII)
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.ASCII | re.IGNORECASE)
_POWERS: Final = "KMGT"
_LONGEST_SIZE: Final = 40
"""Characters; more digits than that are no size of anything, and too many for a float."""


def seconds(text: str) -> float:
    """`90s`, `30m`, `4h`, `2d`, or several of them: `1h30m`.

    Raises:
        UsageProblem: it is none of these, or nothing.
    """
    parts = _SPAN.findall(text)
    total = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or not 0 < total < math.inf:
        raise UsageProblem(f"'{text}' is no length of time; for example 30m, 4h, 1h30m or 2d")
    return total


def size_bytes(text: str) -> int:
    """`40GiB` (1024³), `40GB` (1000³), `40G` (as GiB, which is what cards are sold by), or a number of bytes.

    Raises:
        UsageProblem: it is none of these.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or len(text) > _LONGEST_SIZE:
        raise UsageProblem(f"'{text}' is no size; for example 40GiB or 40000000000")
    number, prefix, binary = found.groups()
    decimal = not binary and text.strip().upper().endswith("B")
    power = _POWERS.index(prefix.upper()) + 1 if prefix else 0
    return round(float(number) * (1000.0 if decimal else 1024.0) ** power)


def moment_of(text: str, now: datetime | None = None) -> datetime:
    """A time in UTC: a length of time ago (`7d`), a date (`2026-01-31`), or RFC 3339.

    Raises:
        UsageProblem: it is none of these.
    """
    try:
        if _SPAN.match(text):
            return (now or datetime.now(UTC)) - timedelta(seconds=seconds(text))
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):  # the second: before the year 1, or after 9999
        raise UsageProblem(f"'{text}' is no time; for example 7d, 2026-01-31 or 2026-01-31T12:00:00Z") from None
