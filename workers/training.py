"""One training, from its data to its last file; `workers.loop.train` is the way in, and says what is reported."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from workers.backends.base import Backend, Diverged, DType, Steps
from workers.backends.pace import Pace, Speed
from workers.backends.schedules import learning_rates
from workers.blueprint import blueprint_of
from workers.checkpointing import Checkpointer
from workers.checkpoints import State
from workers.context import Context, Reporter
from workers.data.metrics import readings
from workers.data.order import epoch_plan, steps_per_epoch
from workers.environment_record import environment_record
from workers.epoch_run import EpochRun, Window
from workers.evaluation import Evaluator
from workers.handover import PROBE_ROWS, Finished, hand_over
from workers.narration import Narrator
from workers.preparation import open_session, parameter_count, read_dataset
from workers.protocol import Assignment, Done, Progress
from workers.track import Track, finite_weights, read_own, require_own_weights

Clock = Callable[[], float]

CANCEL: Final = "cancel"
"""The one reason to leave without a checkpoint."""


class _Stopped(Exception):
    """Not an error: the way out of the loops, taken at a safe point."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Training:
    """One run of `train`: what stays the same over it; how far it is, its track knows."""

    def __init__(
        self,
        assignment: Assignment,
        backend: Backend,
        context: Context,
        narrator: Narrator,
        clock: Clock,
        dtype: DType,
    ) -> None:
        self._assignment = assignment
        self._spec = assignment.spec
        self._settings = assignment.spec.hyperparameters
        self._backend = backend
        self._context = context
        self._clock = clock
        self._narrator = narrator
        self._work_dir = Path(assignment.work_dir)
        self._data = data = read_dataset(assignment, context, dtype)
        self._blueprint = blueprint_of(assignment, data)
        self._resumed = read_own(assignment, self._blueprint.facts(data), context)
        self._track = Track(assignment, validated=len(data.parts["validation"]) > 0, resumed=self._resumed)
        self._fold = self._blueprint.fold
        self._rows = len(data.parts["train"])
        self._per_epoch = steps_per_epoch(self._rows, self._settings.batch_size, fold_single=self._fold)
        self._steps = self._settings.epochs * self._per_epoch
        self._reporter = Reporter(context, clock)
        self._pace = Pace()
        self._speed = Speed()
        self._checkpointer = Checkpointer(
            self._work_dir,
            context,
            clock,
            self._settings.checkpoint_every_epochs,
            before=lambda: self._reporter.send_points(self._progress()),
            resumed=None if self._resumed is None else (self._track.step, self._track.epoch),
        )
        self._session = open_session(assignment, self._blueprint, data, backend, dtype)  # nothing may fail after it
        self._evaluator = Evaluator(self._session, data, self._spec, self._blueprint.block, self._safe_point)

    def close(self) -> None:
        self._session.close()

    def run(self) -> Done:
        if self._resumed is not None:
            require_own_weights(self._assignment, self._resumed, self._session.facts())
            self._session.restore(self._resumed.weights, self._resumed.optimizer)
            self._resumed = None
        self._narrator.begin(self._spec, self._data, parameter_count(self._session.facts()), self._steps)
        self._narrator.going_on(self._track.step, self._track.epoch)
        try:
            return self._train()
        except Diverged as error:
            self._checkpointer.flush()
            self._reporter.send(self._progress())
            raise Diverged(f"{error} {self._advice()} {self._last_good()}") from None

    def _train(self) -> Done:
        try:
            while not self._track.over:
                self._epoch()
                if self._reporter.due():
                    self._reporter.send(self._progress())
            self._end()
        except _Stopped as stopped:
            if stopped.reason != CANCEL and not self._track.over:  # after the last epoch it is written already
                self._checkpointer.stopped(self._capture)
            self._reporter.send(self._progress())
            self._narrator.stopped(self._progress())
            return self._done("stop", self._track.final_metrics)
        return self._done(None, self._metrics)

    def _epoch(self) -> None:
        run, epoch = self._track.begin_epoch(), self._track.epoch + 1
        settings = self._settings
        plan = epoch_plan(settings.seed, epoch, self._rows, settings.batch_size, fold_single=self._fold)
        window = Window(run)
        for batches in run.chunks(plan, self._pace):
            self._safe_point()
            self._chunk(run, batches)
            self._require_finite("loss", run.mean_loss)
            if run.steps < plan.steps:
                self._inside(run, window)
        values = readings(run.sums, self._data.yardsticks["train"], self._spec.metrics)
        values |= {"learning_rate": run.rate, "samples_per_s": run.rows / max(run.seconds, 1e-9)}
        values |= self._evaluator.measure("validation", "val_")
        self._require_finite("val_loss", values.get("val_loss", 0.0))
        self._reporter.add(epoch, self._track.step, values)
        best = self._track.end_epoch(values, self._session)
        self._narrator.epoch(self._progress(), values)
        if self._track.over:
            self._checkpointer.ended(self._capture, best=best)
        else:
            self._checkpointer.epoch_ended(epoch, self._capture, best=best)

    def _chunk(self, run: EpochRun, batches: NDArray[np.int64]) -> None:
        track, settings = self._track, self._settings
        rates = learning_rates(
            settings.schedule,
            settings.learning_rate,
            self._steps,
            track.step,
            len(batches),
            self._per_epoch,
            track.decisions.scale,
        )
        began = self._clock()
        sums = self._session.run(Steps(rows=batches, rates=rates, first=track.step), run.sums)
        took = self._clock() - began
        self._pace.took(len(batches), took)
        self._speed.add(len(batches), batches.size, took)
        track.step += len(batches)
        run.add(batches, sums, took, float(rates[-1]))

    def _inside(self, run: EpochRun, window: Window) -> None:
        """Between two chunks of an epoch that lasts."""
        if self._reporter.due():
            values = {"step_loss": window.mean_loss(run)}
            self._reporter.add(self._track.epoch + 1, self._track.step, values)
            self._reporter.send(self._progress())
            self._narrator.inside(self._progress(), values)
        self._checkpointer.inside(self._capture)

    def _end(self) -> None:
        """Bring the best weights back, look at the test part, and hand everything over."""
        track = self._track
        if track.decisions.stopped_early:
            self._narrator.stopped_early(track.decisions.monitor, track.decisions.best)
        if (best := track.best_weights) is not None:
            self._session.restore(best, None)
        self._require_finite_outputs()
        values = self._evaluator.measure("test", "test_")
        self._require_finite("test_loss", values.get("test_loss", 0.0))
        self._metrics = track.final_metrics | values
        self._narrator.tested(values)
        finished = Finished(
            spec=self._spec,
            blueprint=self._blueprint,
            data=self._data,
            weights=finite_weights(self._session),
            metrics=self._metrics,
            epoch=track.final_epoch,
            environment=environment_record(self._assignment, self._backend, self._data),
        )
        names = hand_over(self._work_dir, self._context, finished, self._evaluator)
        # Last of all: an end that is made again, because it was interrupted, must not have told this before.
        self._reporter.add(track.epoch, track.step, values)
        self._reporter.send(self._progress())
        self._narrator.saved(names)

    def _capture(self) -> State:
        state = self._track.capture(self._session)
        if self._track.run is not None or not len(self._data.parts["validation"]):
            self._require_finite_outputs()  # after an epoch, the validation loss has told
        return state

    def _safe_point(self) -> None:
        if (reason := self._context.stop_reason()) is not None:
            raise _Stopped(reason)

    def _require_finite(self, name: str, value: float) -> None:
        if math.isfinite(value):
            return
        epoch, step = self._progress().epoch, self._track.step
        self._reporter.add(epoch, step, {name: value})
        raise Diverged(f"The {name} became {value} by step {step} of {self._steps}, in epoch {epoch}.")

    def _require_finite_outputs(self) -> None:
        """Try the weights as they are now on a few rows: the loss of a step is that of the weights before it."""
        if not np.isfinite(self._session.outputs("train", 0, min(PROBE_ROWS, self._rows))).all():
            step = self._track.step
            raise Diverged(f"The outputs are not finite any more after step {step} of {self._steps}.")

    def _advice(self) -> str:
        smaller = f"Use a smaller hyperparameters.learning_rate, for example {self._settings.learning_rate / 10:g}"
        unscaled = self._spec.data.preprocess.numeric == "none"
        return smaller + (", or data.preprocess.numeric 'standardize'." if unscaled else ".")

    def _last_good(self) -> str:
        step = self._checkpointer.newest_step
        return "There is no checkpoint before it." if step is None else f"The last good checkpoint is of step {step}."

    def _progress(self) -> Progress:
        track = self._track
        left = 0 if track.over else self._steps - track.step
        return Progress(
            epoch=track.epoch + (track.run is not None),
            epochs=self._settings.epochs,
            step=track.step,
            steps=self._steps,
            fraction=1 - left / self._steps,
            eta_s=self._speed.seconds_for(left),
            samples_per_s=self._speed.rows_per_s,
        )

    def _done(self, stopped: Literal["stop"] | None, metrics: dict[str, float]) -> Done:
        best = self._track.decisions.best
        return Done(
            metrics=metrics,
            samples_per_s=self._speed.rows_per_s,
            stopped=stopped,
            best_epoch=None if best is None else best.epoch,
            best_step=None if best is None else best.step,
            checkpoint_step=self._checkpointer.newest_step,
        )
