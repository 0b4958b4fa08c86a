"""The text of an API key: `ts_`, a public part of 10 characters, 256 random bits, and a checksum.

`ts_` lets scanners of leaked secrets find it (the scheme is GitHub's). The checksum drops typos and guesses without a
query. All characters are base 62, so a double click selects the whole key.
"""

import hashlib
import re
import secrets
import zlib
from dataclasses import dataclass
from typing import Final

_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PREFIX: Final = "ts_"
_PUBLIC: Final = 10
_SECRET: Final = 43  # 62**43 > 2**256
_CHECK: Final = 6  # 62**6 > 2**32
_SHAPE: Final = re.compile(f"{_PREFIX}[0-9A-Za-z]{{{_PUBLIC + _SECRET + _CHECK}}}")


@dataclass(frozen=True)
class KeyText:
    """A fresh key. `text` is shown once and never stored; `hint` is its public beginning, to tell keys apart by."""

    text: str
    hint: str

    def __repr__(self) -> str:
        return f"KeyText({self.hint}…)"


def new_key() -> KeyText:
    hint = _PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_PUBLIC))
    body = hint + _base62(secrets.randbits(256), _SECRET)
    return KeyText(text=body + _checksum(body), hint=hint)


def is_well_formed(text: str) -> bool:
    """Whether `text` can be a key at all; false for every single mistyped character."""
    return _SHAPE.fullmatch(text) is not None and _checksum(text[:-_CHECK]) == text[-_CHECK:]


def digest(text: str) -> str:
    """What is stored instead of the key: SHA-256, in hex. A slow hash protects guessable secrets; this one is not."""
    return hashlib.sha256(text.encode()).hexdigest()


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECK)


def _base62(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
