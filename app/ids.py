"""Opaque identities: a type prefix and a UUIDv7 in 26 characters of lower-case Crockford base 32.

They sort by creation time, so the id of the last row is the cursor of a list. Source of the layout: RFC 9562 §5.7.
"""

import os
import re
import threading
import time
from datetime import UTC, datetime
from typing import Final

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_BODY: Final = "[0-7][0-9a-hjkmnp-tv-z]{25}"
PREFIXES: Final = ("job", "ds", "key", "wrk", "prj", "req", "tsk", "hold", "bun")

_lock = threading.Lock()
_last = [0]


def pattern(prefix: str) -> str:
    """The anchored regular expression of an id; path parameters carry it, which is also the traversal guard."""
    return f"^{prefix}_{_BODY}$"


def is_id(prefix: str, text: str) -> bool:
    return re.fullmatch(pattern(prefix), text) is not None


def new_id(prefix: str, *, unix_ms: int | None = None) -> str:
    """A new id; within one process ids are strictly increasing, also inside one millisecond."""
    now = time.time_ns() // 1_000_000 if unix_ms is None else unix_ms
    random = int.from_bytes(os.urandom(10), "big")
    value = (now & (1 << 48) - 1) << 80 | 7 << 76 | (random >> 68) << 64 | 2 << 62 | random & (1 << 62) - 1
    with _lock:
        if unix_ms is None:
            value = max(value, _last[0] + 1)
            _last[0] = value
    return f"{prefix}_{_base32(value)}"


def id_time(identity: str) -> datetime:
    """When an id was made, to the millisecond; for ids of `is_id` alone."""
    value = 0
    for character in identity.rpartition("_")[2]:
        value = value << 5 | _ALPHABET.index(character)
    return datetime.fromtimestamp((value >> 80) / 1000, UTC)


def first_id(prefix: str, made_at: datetime) -> str:
    """The lowest id that could have been made at this time or later; all older ones sort before it."""
    return f"{prefix}_{_base32(round(made_at.timestamp() * 1000) << 80)}"


def _base32(value: int) -> str:
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))
