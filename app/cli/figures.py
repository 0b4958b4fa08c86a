"""Values as people read them."""

import unicodedata
from datetime import UTC, datetime
from typing import Any, Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024
_MINUTE: Final = 60
_HOUR: Final = 3600
_SMALL: Final = 10.0
_THOUSAND: Final = 1000


def harmless(text: object) -> str:
    """Text from elsewhere without control and direction characters, which could rewrite the terminal."""
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c != "\t" else c for c in str(text))


def duration(seconds: Any) -> str:  # noqa: ANN401 - a number out of JSON, or nothing
    """`4.2 s`, `1 min 05 s`, `2 h 03 min`."""
    if not isinstance(seconds, int | float):
        return "–"
    if seconds < _SMALL:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02d} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02d} min"


def size(count: Any) -> str:  # noqa: ANN401 - as above
    """`980 B`, `1.5 GiB`."""
    if not isinstance(count, int | float):
        return "–"
    value, unit = float(count), 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def number(value: Any) -> str:  # noqa: ANN401 - a metric out of JSON: a number, or the name of a non-finite one
    """`0.9731`, `1.2e-05`, `12 345`, `NaN`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "–" if value is None else harmless(value)
    if abs(value) >= _THOUSAND:
        return f"{value:,.0f}".replace(",", "\u202f")
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def clock_time(text: Any) -> str:  # noqa: ANN401 - as above
    """An API time as the time of day here."""
    moment = _parsed(text)
    return "–" if moment is None else f"{moment.astimezone():%H:%M:%S}"


def age(text: Any, now: datetime | None = None) -> str:  # noqa: ANN401 - as above
    """How long ago an API time was."""
    moment = _parsed(text)
    return "–" if moment is None else duration(max((now or datetime.now(UTC)).timestamp() - moment.timestamp(), 0.0))


def _parsed(text: Any) -> datetime | None:  # noqa: ANN401 - as above
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
