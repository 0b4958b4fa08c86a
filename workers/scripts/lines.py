"""Cuts what a process writes into lines, as bytes, whatever it writes: no newline, gigabytes, no text at all."""

from typing import Final

LONGEST: Final = 64 * 1024
"""A longer line is cut; so it is no metric, and does not fill the memory."""


class Lines:
    """Bytes in, lines out, each with its newline. `whole` tells lines from the pieces of one that was too long."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._inside = False

    def feed(self, data: bytes) -> list[tuple[bytes, bool]]:
        """Take bytes in; answers the lines that they complete, and for each whether it is a whole line."""
        end = data.rfind(b"\n")
        if end < 0:
            self._rest += data
            return self._overlong()
        head = bytes(self._rest) + data[:end]
        self._rest = bytearray(data[end + 1 :])
        first, *others = head.split(b"\n")
        lines = [(first + b"\n", not self._inside and len(first) <= LONGEST)]
        lines += [(line + b"\n", True) for line in others]
        self._inside = False
        return lines + self._overlong()

    def finish(self) -> list[tuple[bytes, bool]]:
        """The last line, if the output did not end with a newline."""
        if not self._rest:
            return []
        line, whole = bytes(self._rest) + b"\n", not self._inside
        self._rest.clear()
        return [(line, whole)]

    def _overlong(self) -> list[tuple[bytes, bool]]:
        if len(self._rest) <= LONGEST:
            return []
        piece = bytes(self._rest) + b"\n"
        self._rest.clear()
        self._inside = True
        return [(piece, False)]
