"""What a trainer said and the database has not got yet: bounded, so that an outage never blocks the trainer.

One thread fills it, another takes batches. A batch stays in flight until it is known to be written; meanwhile what
arrives is merged: points into one report, lines into entries of at most 64 kB. Over the bound telemetry goes first,
then the oldest log lines, never points, notices or progress, and a notice says how much went.
"""

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final

import orjson

from app.jobs.journal import Entry
from app.jobs.resumption import is_better
from app.series.nonfinite import to_json
from workers.protocol import Progress, Report

LOG_ENTRY_BYTES: Final = 60_000
"""Text of one log entry, as JSON; with what surrounds it an entry stays below 64 kB."""
POINTS_PER_ENTRY: Final = 10_000
BOUND_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True)
class Batch:
    """What one transaction writes: entries in the order of their first arrival, then the job's newest values.

    `best` is the best of the snapshots that were merged into this batch, when it is not the newest one.
    """

    entries: tuple[Entry, ...]
    progress: dict[str, Any] | None = None
    metrics: dict[str, Any] | None = None
    best: dict[str, Any] | None = None


@dataclass
class _Pending:
    """What was taken in since the last batch."""

    series: list[dict[str, dict[str, list[Any]]]] = field(default_factory=list)
    points: int = 0
    notices: list[Entry] = field(default_factory=list)
    progress: dict[str, Any] | None = None
    changed: bool = False
    best: dict[str, Any] | None = None
    lines: deque[tuple[str, int]] = field(default_factory=deque)
    telemetry: deque[tuple[dict[str, Any], int]] = field(default_factory=deque)
    dropped_lines: int = 0
    dropped_telemetry: int = 0

    def is_there(self) -> bool:
        kept = self.points or self.notices or self.lines or self.telemetry or self.progress is not None
        return bool(kept or self.dropped_lines or self.dropped_telemetry)


class Spool:
    """Safe between one thread that fills and one that takes; `bound_bytes` holds for lines and telemetry together.

    `filled` is set whenever something came in; the taker clears it before it takes.
    """

    def __init__(self, *, max_log_bytes: int, bound_bytes: int = BOUND_BYTES) -> None:
        self._bound = bound_bytes
        self._log_left = max_log_bytes
        self._log_limit = max_log_bytes
        self._log_closed = False
        self._bytes = 0
        self._latest: dict[str, Any] = {}
        self._pending = _Pending()
        self._in_flight: Batch | None = None
        self._lock = threading.Lock()
        self.filled = threading.Event()

    def report(self, report: Report) -> None:
        with self._lock:
            pending = self._pending
            following = [point.step for point in report.points[1:]]
            for point, next_step in zip_longest(report.points, following):
                value = to_json(point.value)
                if pending.points % POINTS_PER_ENTRY == 0:
                    pending.series.append({})
                pending.points += 1
                series = pending.series[-1].setdefault(point.name, {"step": [], "epoch": [], "value": []})
                series["step"].append(point.step)
                series["epoch"].append(point.epoch)
                series["value"].append(value)
                self._latest[point.name] = value
                # Judged at each step's last point: a report carries as many epochs as the clock let it, and which epoch
                # is the best must not depend on that.
                if point.step != next_step and is_better(self._latest, pending.best):
                    pending.best = dict(self._latest)
            pending.progress = progress_json(report.progress)
            pending.changed = pending.changed or bool(report.points)
            self.filled.set()

    def notice(self, code: str, message: str) -> None:
        with self._lock:
            self._pending.notices.append(Entry("notice", {"code": code, "message": message}))
            self.filled.set()

    def telemetry(self, sample: Mapping[str, Any]) -> None:
        with self._lock:
            size = len(orjson.dumps(dict(sample)))
            self._pending.telemetry.append((dict(sample), size))
            self._bytes += size
            self._make_room()
            self.filled.set()

    def log(self, lines: Iterable[str]) -> None:
        """Take lines of output. Over the attempt's limit they are dropped, and one notice says so."""
        with self._lock:
            for line in lines:
                size = len(orjson.dumps(line)) + 1
                if self._log_closed or size > self._log_left:
                    self._close_log()
                    break
                self._log_left -= size
                self._pending.lines.append((line, size))
                self._bytes += size
            self._make_room()
            self.filled.set()

    def take(self) -> Batch | None:
        """The batch to write now: the one in flight if there is one, else all that is pending; None if nothing is."""
        with self._lock:
            if self._in_flight is None:
                self._in_flight = self._seal()
            return self._in_flight

    def written(self) -> None:
        """The batch in flight is in the database."""
        with self._lock:
            self._in_flight = None
            if self._pending.is_there():
                self.filled.set()  # the taker may have cleared it while it tried again and again with that batch

    def _close_log(self) -> None:
        if not self._log_closed:
            self._log_closed = True
            message = (
                f"The log has reached its limit of {self._log_limit} bytes; further output of this attempt is dropped."
            )
            self._pending.notices.append(Entry("notice", {"code": "log_limit", "message": message}))

    def _make_room(self) -> None:
        pending = self._pending
        while self._bytes > self._bound and pending.telemetry:
            self._bytes -= pending.telemetry.popleft()[1]
            pending.dropped_telemetry += 1
        while self._bytes > self._bound and pending.lines:
            self._bytes -= pending.lines.popleft()[1]
            pending.dropped_lines += 1

    def _seal(self) -> Batch | None:
        if not self._pending.is_there():
            return None
        pending, self._pending, self._bytes = self._pending, _Pending(), 0
        metrics = dict(self._latest) if pending.changed else None
        entries = [
            *_metric_entries(pending),
            *pending.notices,
            *_dropped_notice(pending),
            *_log_entries(pending.lines),
            *(Entry("telemetry", sample) for sample, _ in pending.telemetry),
        ]
        best = pending.best if pending.best != metrics else None
        return Batch(tuple(entries), pending.progress, metrics, best)


def progress_json(progress: Progress) -> dict[str, Any]:
    return {
        name: to_json(value) if isinstance(value, float) else value for name, value in progress.model_dump().items()
    }


def _metric_entries(pending: _Pending) -> list[Entry]:
    """One entry for all points; more only when one row would become huge. The newest progress goes with the last."""
    entries: list[dict[str, Any]] = [{"points": series} for series in pending.series]
    if pending.progress is not None:
        if not entries:
            entries.append({"points": {}})
        entries[-1]["progress"] = pending.progress
    return [Entry("metric", data) for data in entries]


def _log_entries(lines: Iterable[tuple[str, int]]) -> list[Entry]:
    chunks: list[list[str]] = []
    room = 0
    for line, size in lines:
        if size > room:
            chunks.append([])
            room = LOG_ENTRY_BYTES
        chunks[-1].append(line)
        room -= size
    return [Entry("log", {"lines": chunk, "stream": "output"}) for chunk in chunks]


def _dropped_notice(pending: _Pending) -> list[Entry]:
    parts = [
        f"{count} {what}"
        for count, what in (
            (pending.dropped_lines, "log lines"),
            (pending.dropped_telemetry, "telemetry samples"),
        )
        if count
    ]
    if not parts:
        return []
    message = f"More came than the database could take in time; {' and '.join(parts)} were dropped. No metric was."
    data = {"code": "spool_dropped", "message": message, "lines": pending.dropped_lines}
    return [Entry("notice", data | {"telemetry": pending.dropped_telemetry})]
