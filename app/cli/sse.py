"""Reading an event stream (WHATWG HTML, section 9.2.6): bytes in, in pieces of any size; events out."""

import codecs
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """One event. `id` is the last id seen on the stream, as the standard has it, so it may be an earlier event's."""

    id: str
    kind: str
    data: str


class Decoder:
    """Keeps what is not complete yet; what follows the last blank line never becomes an event."""

    def __init__(self) -> None:
        self._text = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self._begun = False
        self._skip_newline = False
        self._id = ""
        self._kind = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> list[Event]:
        text = self._text.decode(piece)
        if not self._begun and text:
            self._begun = True
            text = text.removeprefix("\ufeff")
        if self._skip_newline and text:
            # The carriage return that ended the last piece was the first half of a line end.
            self._skip_newline = False
            text = text.removeprefix("\n")
        self._skip_newline = self._skip_newline or text.endswith("\r")
        *lines, self._rest = (self._rest + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return [event for line in lines if (event := self._line(line)) is not None]

    def _line(self, line: str) -> Event | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._kind = value
        elif field == "id" and "\0" not in value:
            self._id = value
        # A comment (empty field), `retry` and unknown fields change nothing here.
        return None

    def _dispatch(self) -> Event | None:
        data, kind = self._data, self._kind or "message"
        self._data, self._kind = [], ""
        return Event(self._id, kind, "\n".join(data)) if data else None
