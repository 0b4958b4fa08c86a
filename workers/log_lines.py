"""Cuts a process's output into the lines that a terminal would show."""

import codecs
from collections import deque
from typing import Final

LINE_CHARACTERS: Final = 8_000
"""A longer line is cut: a program that never writes a newline must not fill the memory."""
_TAIL_LINES: Final = 12


class LogLines:
    """Bytes in, whole lines out. What is not UTF-8 becomes U+FFFD, however the bytes were split on the way.

    A line that was overwritten with carriage returns (a progress bar) counts as what was left standing at its end.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)

    def feed(self, data: bytes) -> list[str]:
        return self._cut(self._decoder.decode(data))

    def finish(self) -> list[str]:
        """The last line, if the output did not end with a newline."""
        lines = self._cut(self._decoder.decode(b"", final=True))
        if self._rest:
            lines.append(self._keep(self._rest))
            self._rest = ""
        return lines

    def tail(self) -> str:
        """The last lines, to explain an end that nobody explained."""
        return "\n".join(self._tail)

    def _cut(self, text: str) -> list[str]:
        *whole, self._rest = (self._rest + text).split("\n")
        lines = [self._keep(piece) for line in whole for piece in _pieces(line)]
        while len(self._rest) > LINE_CHARACTERS:
            piece, self._rest = self._rest[:LINE_CHARACTERS], self._rest[LINE_CHARACTERS:]
            lines.append(self._keep(piece))
        return lines

    def _keep(self, line: str) -> str:
        shown = next((part for part in reversed(line.split("\r")) if part), "")
        if shown:
            self._tail.append(shown)
        return shown


def _pieces(line: str) -> list[str]:
    return [line[start : start + LINE_CHARACTERS] for start in range(0, len(line), LINE_CHARACTERS)] or [""]
