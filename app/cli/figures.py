"""Values as people read them."""

import unicodedata
from datetime import UTC, datetime
from typing import Any, Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024
_MINUTE: Final = 60
_HOUR: Final = 3600
_AGES: Final = (("d", 24 * _HOUR), ("h", _HOUR), ("min", _MINUTE), ("s", 1))
_SMALL: Final = 10.0
_GROUPED: Final = 10_000  # shorter numbers are read at a glance, and a year is no 2 007
_ROUNDED: Final = 1000


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
    if abs(value) >= _GROUPED:
        return f"{value:,.0f}".replace(",", "\u202f")
    if abs(value) >= _ROUNDED:
        return f"{value:.0f}"
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def on_host(device: object) -> str:
    """A device as it is called on its host, without the host's id behind the `@` of a CPU slot."""
    return harmless(device).partition("@")[0]


def moment(text: Any) -> str:  # noqa: ANN401 - as above
    """An API time to the second: `2026-01-31T12:00:05Z`."""
    found = _parsed(text)
    return "–" if found is None else f"{found.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def clock_time(text: Any) -> str:  # noqa: ANN401 - as above
    """An API time as the time of day here."""
    found = _parsed(text)
    return "–" if found is None else f"{found.astimezone():%H:%M:%S}"


def age(text: Any, now: datetime | None = None) -> str:  # noqa: ANN401 - as above
    """How long ago an API time was, in its largest unit: `4 s`, `2 min`, `3 h`, `5 d`."""
    found = _parsed(text)
    if found is None:
        return "–"
    seconds = int(max((now or datetime.now(UTC)).timestamp() - found.timestamp(), 0.0))
    return next(f"{seconds // unit} {name}" for name, unit in _AGES if seconds >= unit or unit == 1)


def _parsed(text: Any) -> datetime | None:  # noqa: ANN401 - as above
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
