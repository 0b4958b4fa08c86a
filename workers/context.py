"""What training code may ask of the outside: say something, hand a file over, and learn that it should stop.

Narrow on purpose: the training loop can then be run by a test, a notebook or a benchmark with `NullContext`, where
there is no worker, no socket and no job.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from workers.protocol import ArtifactKind, Checkpoint, Point, Progress, Report


class Context(Protocol):
    """The outside, as a training loop sees it. No method blocks for long, none raises for a lost listener."""

    def report(self, report: Report) -> None:
        """Send points and progress; the loop calls this at most about twice a second."""
        ...

    def notice(self, code: str, message: str) -> None:
        """Tell the user something that is not an error."""
        ...

    def artifact(self, name: str, path: Path, media_type: str, kind: ArtifactKind) -> None:
        """Hand over a complete file inside the work directory, to be stored under `name`."""
        ...

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Hand over a complete checkpoint, to be stored; its folder then belongs to whoever listens."""
        ...

    def stop_reason(self) -> str | None:
        """Why to leave at this safe point, or None; asked at least once a second, so it must be cheap.

        `cancel` asks for nothing but to leave; before any other reason a checkpoint is wanted.
        """
        ...


class NullContext:
    """The same with nobody listening."""

    def report(self, report: Report) -> None:
        pass

    def notice(self, code: str, message: str) -> None:
        pass

    def artifact(self, name: str, path: Path, media_type: str, kind: ArtifactKind) -> None:
        pass

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        pass

    def stop_reason(self) -> str | None:
        return None


class Reporter:
    """Collects points and sends them at most about twice a second, so that a fast job does not drown its journal."""

    def __init__(self, context: Context, clock: Callable[[], float], interval_s: float = 0.5) -> None:
        self._context = context
        self._clock = clock
        self._interval_s = interval_s
        self._points: list[Point] = []
        self._sent_at = clock()

    def add(self, epoch: int, step: int, values: Mapping[str, float]) -> None:
        self._points += [Point(name=name, step=step, epoch=epoch, value=value) for name, value in values.items()]

    def due(self) -> bool:
        """Whether enough time has passed since the last report, or since the start."""
        return self._clock() - self._sent_at >= self._interval_s

    def send_points(self, progress: Progress) -> None:
        """Send what was collected, if there is anything: before a checkpoint, which must not be ahead of its series."""
        if self._points:
            self.send(progress)

    def send(self, progress: Progress) -> None:
        """Send what was collected, whatever the time; without points this is progress alone."""
        points, self._points = self._points, []
        self._context.report(Report(epoch=progress.epoch, step=progress.step, points=points, progress=progress))
        self._sent_at = self._clock()
