"""A job's journal as it grows: replayed from a position, live after that, and over any loss of the connection."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from app.cli.client import Client
from app.cli.errors import ServerFailed, Unreachable
from app.cli.sse import Decoder
from app.jobs.states import FINAL

JournalEntry = dict[str, Any]

_LONGEST_PAUSE_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.2


@dataclass(frozen=True)
class Patience:
    """How long (seconds) a server may be away before a follower gives up; `lost` is told at each try."""

    pause: Callable[[float], None]
    lost: Callable[[str], None] = lambda _reason: None
    clock: Callable[[], float] = time.monotonic
    limit_s: float = 120.0


def is_last(entry: JournalEntry) -> bool:
    """Nothing follows the entry of a final state."""
    return entry.get("kind") == "state" and entry.get("state") in FINAL


def follow_journal(client: Client, job_id: str, patience: Patience, after: int = 0) -> Iterator[JournalEntry]:
    """Every entry after `after`, in order and once, until the job has ended.

    Raises:
        Refused: there is no such job, or the key does not work (any more).
        Unreachable, ServerFailed: nobody answered for `patience.limit_s`, or not once.
    """
    last = after
    pause_s = _FIRST_PAUSE_S
    alive_at: float | None = None
    while True:
        reason = "the stream ended"
        try:
            for entry in _stream(client, job_id, last):
                alive_at, pause_s = patience.clock(), _FIRST_PAUSE_S
                if entry["seq"] > last:
                    last = entry["seq"]
                    yield entry
                if is_last(entry):
                    return
            alive_at = patience.clock()
        except (Unreachable, ServerFailed) as error:
            if alive_at is None or patience.clock() - alive_at > patience.limit_s:
                raise
            reason = str(error)
        except _Ended:
            return
        patience.lost(reason)
        patience.pause(pause_s)
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


class _Ended(Exception):
    """The server says that nothing follows the position."""


def _stream(client: Client, job_id: str, last: int) -> Iterator[JournalEntry]:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(last)}
    with client.stream(f"/v1/jobs/{job_id}/events", headers=headers) as answer:
        if answer.status_code == HTTPStatus.NO_CONTENT:
            raise _Ended
        decoder = Decoder()
        for piece in answer.iter_bytes():
            for event in decoder.feed(piece):
                yield json.loads(event.data)
