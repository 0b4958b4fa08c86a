"""When a training writes checkpoints, and what it says of them.

With `checkpoint_every_epochs` one after every so many epochs, exactly; without it as often as that costs little, in the
middle of a long epoch too. Besides: the best epoch, when it is due or at the latest before anything newer is written;
one before a stop; one at the end. A best epoch that waits for its turn is held in memory, so that a training that
diverges in its first seconds still leaves its last good state behind.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from workers.backends.pace import WritePace
from workers.checkpoints import State, write
from workers.context import Context
from workers.fault_points import point
from workers.protocol import Checkpoint, CheckpointReason

FOLDER: Final = "checkpoints"

Capture = Callable[[], State]
"""Copies the whole state of the training out of the device; raises Diverged when it is not finite."""


class Checkpointer:
    """Writes and announces the checkpoints of one training. `every`: exactly every so many epochs; None: by cost.

    `resumed`: the (step, epoch) that the training goes on from. `before` is called before each announcement: what was
    reported up to a checkpoint must be on its way before it, or a training that goes on from there would leave a gap. A
    disk that is full costs a checkpoint and a notice, never the training.
    """

    def __init__(
        self,
        work_dir: Path,
        context: Context,
        clock: Callable[[], float],
        every: int | None,
        *,
        before: Callable[[], None] = lambda: None,
        resumed: tuple[int, int] | None = None,
    ) -> None:
        self._work_dir = work_dir
        self._context = context
        self._clock = clock
        self._every = every
        self._before = before
        self._newest = resumed
        self._pending: State | None = None
        self._pace = WritePace(clock())

    @property
    def newest_step(self) -> int | None:
        """The step of the newest complete checkpoint, announced or resumed from."""
        return None if self._newest is None else self._newest[0]

    def epoch_ended(self, epoch: int, capture: Capture, *, best: bool) -> None:
        """After an epoch that is not the last one."""
        due = self._pace.due(self._clock())
        wanted = due if self._every is None else epoch % self._every == 0
        if wanted or (best and due):
            self._write_after_best(capture(), "periodic" if wanted else "best", best=best)
        elif best:
            self._pending = capture()

    def inside(self, capture: Capture) -> None:
        """In the middle of an epoch, between two chunks."""
        if self._every is None and self._pace.due(self._clock()):
            self._write_after_best(capture(), "periodic", best=False)

    def stopped(self, capture: Capture) -> None:
        """Before leaving as asked."""
        self._write_after_best(capture(), "stop", best=False)

    def ended(self, capture: Capture, *, best: bool) -> None:
        """After the last epoch, before the best weights are brought back."""
        self._write_after_best(capture(), "final", best=best)

    def flush(self) -> None:
        """Write the best epoch if it still waits."""
        pending, self._pending = self._pending, None
        if pending is not None:
            self._write(pending, "best", best=True)

    def _write_after_best(self, state: State, reason: CheckpointReason, *, best: bool) -> None:
        if best:
            self._pending = None
        self.flush()
        self._write(state, reason, best=best)

    def _write(self, state: State, reason: CheckpointReason, *, best: bool) -> None:
        position = state.position
        place = (position.step, position.epoch)
        if place == self._newest or position.step == 0:
            return
        began = self._clock()
        path = Path(FOLDER) / f"{position.step}-{position.epoch}"
        shutil.rmtree(self._work_dir / path, ignore_errors=True)
        try:
            write(self._work_dir / path, state)
        except OSError as error:
            shutil.rmtree(self._work_dir / path, ignore_errors=True)
            self._context.notice(
                "checkpoint_not_written",
                f"The checkpoint of step {position.step} could not be written ({error.strerror}); training goes on. "
                "Free space where the worker keeps its work, for example by removing old jobs.",
            )
        else:
            self._newest = place
            self._before()
            self._context.checkpoint(
                Checkpoint(
                    step=position.step,
                    epoch=position.epoch,
                    path=str(path),
                    metrics=position.metrics,
                    reason=reason,
                    best=best,
                )
            )
            point("checkpoint.announced")
        self._pace.wrote(began, self._clock())
