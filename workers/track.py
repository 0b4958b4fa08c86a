"""Where a training is: all that a checkpoint must know of it, taken up again from one and copied out for one."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from app.spec import WeightFacts
from workers.backends.base import Diverged, Session, SessionState
from workers.backends.initial import Weights
from workers.checkpoints import Position, State, UnreadableCheckpoint, read
from workers.context import Context
from workers.decisions import Decisions
from workers.early_stopping import finite
from workers.environment_record import spec_digest
from workers.epoch_run import EpochRun
from workers.preparation import OtherModel, require_same_shapes
from workers.protocol import Assignment

Floats = NDArray[np.floating]


class Track:
    """How far a training is, counted by the loop; `resumed`: the checkpoint that it goes on from.

    `step`: steps made. `epoch`: complete epochs. `metrics`: of the last of them. `run`: the epoch under way.
    """

    def __init__(self, assignment: Assignment, *, validated: bool, resumed: State | None) -> None:
        self._assignment = assignment
        self._digest = spec_digest(assignment.spec)
        position = None if resumed is None else resumed.position
        settings = assignment.spec.hyperparameters
        self.decisions = Decisions(settings, validated=validated, position=position)
        self.step = 0 if position is None else position.step
        self.epoch = 0 if position is None else position.epoch
        self.metrics = {} if position is None else dict(position.metrics)
        self.run: EpochRun | None = None
        self._partial = None if position is None else position.partial
        self._best_weights = None if resumed is None else resumed.best

    @property
    def over(self) -> bool:
        """Whether no epoch is left."""
        return self.decisions.stopped_early or self.epoch >= self._assignment.spec.hyperparameters.epochs

    @property
    def best_weights(self) -> Weights | None:
        """The weights that the training ends with when they are not the last ones."""
        best = self.decisions.best
        return self._best_weights if best is not None and best.step != self.step else None

    @property
    def final_metrics(self) -> dict[str, float]:
        """The values of the epoch whose weights count: the best one's with early stopping, else the last one's."""
        best = self.decisions.best
        return dict(best.metrics) if self.decisions.restore_best and best is not None else self.metrics

    @property
    def final_epoch(self) -> int:
        """The epoch whose weights count."""
        best = self.decisions.best
        return best.epoch if self.decisions.restore_best and best is not None else self.epoch

    def begin_epoch(self) -> EpochRun:
        """Begin the next epoch, or take up again the one that a checkpoint was made in."""
        self.run = EpochRun.of(self._partial, self._assignment.spec.task)
        self._partial = None
        return self.run

    def end_epoch(self, values: dict[str, float], session: Session) -> bool:
        """Close the epoch under way with its values; whether it is the best one so far."""
        self.run, self.epoch, self.metrics = None, self.epoch + 1, values
        best = self.decisions.observe(values, self.epoch, self.step)
        if best and self.decisions.restore_best:
            self._best_weights = finite_weights(session)
        return best

    def capture(self, session: Session) -> State:
        """Copy all of it out of the device.

        Raises:
            Diverged: a weight, or what the optimizer remembers, is not a finite number: nothing to go on from.
        """
        best = self.decisions.best
        at_best = self._best_weights is not None and best is not None and best.step == self.step and self.run is None
        weights = self._best_weights if at_best and self._best_weights is not None else finite_weights(session)
        optimizer = session.state()
        _require_finite(optimizer, "The optimizer's memory")
        return State(weights=weights, optimizer=optimizer, best=self._best_weights, position=self._position())

    def _position(self) -> Position:
        partial = self._partial if self.run is None else self.run.partial()
        return Position(
            step=self.step,
            epoch=self.epoch,
            partial=partial,
            metrics=finite(self.metrics),
            best=self.decisions.best,
            patience=self.decisions.patience,
            plateau=self.decisions.plateau,
            stopped_early=self.decisions.stopped_early,
            framework=self._assignment.spec.framework,
            threads=self._assignment.threads,
            spec_digest=self._digest,
        )


def finite_weights(session: Session) -> Weights:
    """Copy the weights out.

    Raises:
        Diverged: one of them is not a finite number.
    """
    weights = session.weights()
    _require_finite(weights, "The weight")
    return weights


def read_own(assignment: Assignment, facts: Mapping[str, WeightFacts] | None, context: Context) -> State | None:
    """Read the checkpoint that this training goes on from; None for one from the start.

    `facts`: of the model's weights, None where they are not known yet: then `require_own_weights` is for later.

    Another number of threads is allowed, with a notice: torch's sums depend on it in their last bits.

    Raises:
        UnreadableCheckpoint: it is not complete, or is another training's: of another spec, framework or model.
    """
    if assignment.resume is None:
        return None
    folder = Path(assignment.work_dir) / assignment.resume
    state = read(folder)
    position, spec = state.position, assignment.spec
    if position.framework != spec.framework:
        raise UnreadableCheckpoint(folder, f"it was made by {position.framework}, and this job uses {spec.framework}.")
    if position.spec_digest != spec_digest(spec):
        raise UnreadableCheckpoint(folder, "it was made by a job with another spec.")
    if facts is not None:
        require_own_weights(assignment, state, facts)
    if position.threads != assignment.threads:
        context.notice(
            "threads_changed",
            f"The checkpoint was made with {position.threads} threads, and the job goes on with {assignment.threads}: "
            "results may differ from those of an unbroken run in their last digits.",
        )
    return state


def require_own_weights(assignment: Assignment, state: State, facts: Mapping[str, WeightFacts]) -> None:
    """Check that the checkpoint to go on from has the model's weights.

    Raises:
        UnreadableCheckpoint: it is of another model.
    """
    try:
        require_same_shapes(state.weights, facts)
    except OtherModel as error:
        folder = Path(assignment.work_dir) / (assignment.resume or "")
        raise UnreadableCheckpoint(folder, f"its weights are those of another model, at '{error.name}'.") from error


def _require_finite(values: Weights | SessionState, what: str) -> None:
    for name, value in values.items():
        if np.issubdtype(value.dtype, np.floating) and not np.isfinite(cast("Floats", value)).all():
            raise Diverged(f"{what} '{name}' is not finite any more.")
