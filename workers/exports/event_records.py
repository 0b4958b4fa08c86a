"""TensorBoard's event files, byte by byte: a sequence of records, each an `Event` message of protocol buffers.

Written here because the libraries that write them cost more than they save: tensorboardX imports torch where it is
installed (2 s and 260 MB against 0.6 s and 75 MB, measured), tensorboard brings a web server, and their writers start
a thread and put the host's name into the file. The formats are fixed: tensorflow/core/lib/io/record_writer.h (framing),
tensorflow/core/util/event.proto, framework/summary.proto, framework/tensor.proto (fields, by the numbers below).
"""

import math
import struct
from typing import Final

_POLYNOMIAL: Final = 0x82F63B78  # CRC-32C (Castagnoli), reflected
_MASK: Final = 0xA282EAD8
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_STRING: Final = 7  # DataType.DT_STRING


def _crc_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)  # noqa: PLW2901 - shifted out bit by bit
        table.append(value)
    return tuple(table)


_TABLE: Final = _crc_table()


def record(event: bytes) -> bytes:
    """Frame an event: its length, and checksums of the length and of the event."""
    length = struct.pack("<Q", len(event))
    return b"".join((length, _checksum(length), event, _checksum(event)))


def header() -> bytes:
    """The event that a file begins with."""
    return _time(0) + _field(3, b"brain.Event:2")


def scalar(tag: str, step: int, value: float) -> bytes:
    """A point of a series, in 32 bits. Its time is `step` seconds, so that TensorBoard's "relative" is the step."""
    content = _field(1, tag.encode()) + _key(2, _FIXED32) + _float32(value)
    return _time(step) + _number(2, step) + _field(5, _field(1, content))


def text(tag: str, content: str) -> bytes:
    """A page of Markdown under *Text*."""
    shape = _field(2, _field(2, _number(1, 1)))
    tensor = _number(1, _STRING) + shape + _field(8, content.encode())
    metadata = _field(1, _field(1, b"text"))
    value = _field(1, f"{tag}/text_summary".encode()) + _field(8, tensor) + _field(9, metadata)
    return _time(0) + _field(5, _field(1, value))


def _float32(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:  # beyond 32 bits
        return struct.pack("<f", math.copysign(math.inf, value))


def _time(seconds: float) -> bytes:
    return _key(1, _FIXED64) + struct.pack("<d", seconds)


def _number(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + _varint(value)


def _field(field: int, content: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(content)) + content


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the high bit says that there are more."""
    parts = bytearray()
    while value > 127:  # noqa: PLR2004 - seven bits
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _checksum(content: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (crc >> 15 | crc << 17) + _MASK & 0xFFFFFFFF)
