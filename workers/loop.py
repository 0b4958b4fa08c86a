"""The training loop: from an assignment to a saved model, the same for every framework.

What is reported, by name:

- each epoch: `loss` and the spec's metrics over the epoch's batches, as the model met them (dropout on, weights on
  the move); the same with `val_` over the validation part after the epoch, if there is one; `learning_rate` of the
  epoch's last step; `samples_per_s`, training rows per second, without validation.
- inside of an epoch that lasts: `step_loss`, the mean loss of the rows since the last report.
- at the end: `test_` values, if there is a test part; it is looked at once and steers nothing.

Losses are in the units the model is trained in, without the l1 and l2 terms; mae and rmse in the target's own unit.
"""

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from app.errors import Cause
from app.spec import layers_of
from workers.backends.base import Backend, Diverged, DType, Steps, TrainingFailed
from workers.backends.pace import Pace, Speed
from workers.backends.schedules import learning_rates
from workers.context import Context, Reporter
from workers.data.metrics import Sums, no_sums, readings
from workers.data.order import EpochPlan, epoch_plan, steps_per_epoch
from workers.data.split import PartName
from workers.handover import hand_over
from workers.narration import Narrator, Say, say
from workers.preparation import block_rows, open_session, parameter_count, read_dataset
from workers.protocol import Assignment, Done, Progress

Clock = Callable[[], float]

_SENTENCES: Final = {
    Cause.DEVICE_OUT_OF_MEMORY: "The device ran out of memory. Use a smaller hyperparameters.batch_size, for example "
    "{half}, or a smaller model.",
    Cause.HOST_OUT_OF_MEMORY: "The host ran out of memory. Use a smaller hyperparameters.batch_size, for example "
    "{half}, a smaller model, or fewer columns.",
    Cause.DEVICE_FAULT: "The device reported a fault of its hardware. The job itself is not at fault.",
}


class _Stopped(Exception):
    """Not an error: the way out of the loops, taken at a safe point."""


def train(
    assignment: Assignment,
    backend: Backend,
    context: Context,
    *,
    clock: Clock = time.monotonic,
    dtype: DType = "float32",
    say: Say = say,
) -> Done:
    """Train the assignment's spec; `backend.prepare(assignment.devices, assignment.threads)` was called before.

    Returns `Done` also when the context asked to stop: then `stopped` is set, no model was saved, and `metrics` are
    those of the last complete epoch. `dtype` is for tests: float64 shows whether two backends mean the same. `say`
    takes the lines of the job's log.

    Raises:
        TrainingFailed: the training cannot go on (diverged, out of memory, a broken device); it carries the cause.
        InvalidTable: the data cannot be read, or does not have what the spec names.
        TooFewRows: nothing is left to train on.
    """
    try:
        return _Training(assignment, backend, context, Narrator(say, clock), clock, dtype).run()
    except TrainingFailed:
        raise
    except Exception as error:
        cause = Cause.HOST_OUT_OF_MEMORY if isinstance(error, MemoryError) else backend.cause_of(error)
        if cause is None:
            raise
        half = max(1, assignment.spec.hyperparameters.batch_size // 2)
        raise TrainingFailed(_SENTENCES[cause].format(half=half), cause) from error


class _Training:
    """One run of `train`: what stays the same over it, and how far it is."""

    def __init__(
        self,
        assignment: Assignment,
        backend: Backend,
        context: Context,
        narrator: Narrator,
        clock: Clock,
        dtype: DType,
    ) -> None:
        self._spec = assignment.spec
        self._settings = assignment.spec.hyperparameters
        self._context = context
        self._clock = clock
        self._narrator = narrator
        self._work_dir = Path(assignment.work_dir)
        self._data = read_dataset(assignment, context, dtype)
        self._layers = layers_of(self._spec, self._data.output_units)
        self._session = open_session(self._spec, self._layers, self._data, backend, dtype)
        parameters = parameter_count(self._layers, len(self._spec.data.features))
        self._block = block_rows(parameters)
        self._rows = len(self._data.parts["train"])
        self._steps = self._settings.epochs * steps_per_epoch(self._rows, self._settings.batch_size)
        self._step = 0
        self._metrics: dict[str, float] = {}
        self._reporter = Reporter(context, clock)
        self._pace = Pace()
        self._speed = Speed()
        narrator.begin(self._spec, self._data, parameters, self._steps)

    def run(self) -> Done:
        epoch = 0
        try:
            for epoch in range(1, self._settings.epochs + 1):
                self._epoch(epoch)
                if self._reporter.due():
                    self._reporter.send(self._progress(epoch))
            self._test(epoch)
        except _Stopped:
            self._reporter.send(self._progress(epoch))
            self._narrator.stopped(self._progress(epoch))
            return self._done("stop")
        except Diverged:
            self._reporter.send(self._progress(epoch))
            raise
        self._reporter.send(self._progress(epoch))
        self._save(epoch)
        return self._done(None)

    def _epoch(self, epoch: int) -> None:
        sums, rows, seconds, rate = no_sums(self._spec.task), 0, 0.0, 0.0
        reported = (0.0, 0)
        for batches in self._chunks(epoch_plan(self._settings.seed, epoch, self._rows, self._settings.batch_size)):
            self._safe_point()
            began = self._clock()
            sums, rate = self._chunk(batches, sums)
            took = self._clock() - began
            self._pace.took(len(batches), took)
            self._speed.add(len(batches), batches.size, took)
            rows, seconds = rows + batches.size, seconds + took
            self._require_finite(epoch, "loss", float(sums[0]) / rows)
            if rows < self._rows and self._reporter.due():
                window = {"step_loss": (float(sums[0]) - reported[0]) / (rows - reported[1])}
                self._reporter.add(epoch, self._step, window)
                self._reporter.send(self._progress(epoch))
                self._narrator.inside(self._progress(epoch), window)
                reported = (float(sums[0]), rows)
        values = readings(sums, self._data.yardsticks["train"], self._spec.metrics)
        values |= {"learning_rate": rate, "samples_per_s": rows / max(seconds, 1e-9)}
        values |= self._look(epoch, "validation", "val_")
        self._reporter.add(epoch, self._step, values)
        self._metrics = values
        self._narrator.epoch(self._progress(epoch), values)

    def _chunks(self, plan: EpochPlan) -> Iterator[NDArray[np.int64]]:
        """Cut an epoch where the pace says; the uneven last batch is a chunk of its own."""
        start = 0
        while start < len(plan.full):
            chunk = plan.full[start : start + self._pace.steps]
            yield chunk
            start += len(chunk)
        if len(plan.rest):
            yield plan.rest[None]

    def _chunk(self, batches: NDArray[np.int64], sums: Sums) -> tuple[Sums, float]:
        """Run a chunk; returns the sums, and the learning rate of its last step."""
        rates = learning_rates(
            self._settings.schedule, self._settings.learning_rate, self._steps, self._step, len(batches)
        )
        sums = self._session.run(Steps(rows=batches, rates=rates, first=self._step), sums)
        self._step += len(batches)
        return sums, float(rates[-1])

    def _look(self, epoch: int, part: PartName, prefix: str) -> dict[str, float]:
        """Measure a part without training; nothing for an empty part."""
        rows = len(self._data.parts[part])
        if not rows:
            return {}
        sums = no_sums(self._spec.task)
        for start in range(0, rows, self._block):
            self._safe_point()
            sums = self._session.evaluate(part, start, min(start + self._block, rows), sums)
        self._require_finite(epoch, f"{prefix}loss", float(sums[0]) / rows)
        values = readings(sums, self._data.yardsticks[part], self._spec.metrics)
        return {f"{prefix}{name}": value for name, value in values.items()}

    def _test(self, epoch: int) -> None:
        values = self._look(epoch, "test", "test_")
        self._reporter.add(epoch, self._step, values)
        self._metrics = self._metrics | values
        self._narrator.tested(values)

    def _safe_point(self) -> None:
        if self._context.stop_requested():
            raise _Stopped

    def _require_finite(self, epoch: int, name: str, value: float) -> None:
        if math.isfinite(value):
            return
        self._reporter.add(epoch, self._step, {name: value})
        raise Diverged(
            f"The {name} became {value} by step {self._step} of {self._steps}, in epoch {epoch}. Use a smaller "
            f"hyperparameters.learning_rate, for example {self._settings.learning_rate / 10:g}"
            + (", or data.preprocess.numeric 'standardize'." if self._unscaled else ".")
        )

    @property
    def _unscaled(self) -> bool:
        return self._spec.data.preprocess.numeric == "none"

    def _progress(self, epoch: int) -> Progress:
        return Progress(
            epoch=epoch,
            epochs=self._settings.epochs,
            step=self._step,
            steps=self._steps,
            fraction=self._step / self._steps,
            eta_s=self._speed.seconds_for(self._steps - self._step),
            samples_per_s=self._speed.rows_per_s,
        )

    def _done(self, stopped: Literal["stop"] | None) -> Done:
        return Done(metrics=self._metrics, samples_per_s=self._speed.rows_per_s, stopped=stopped)

    def _save(self, epoch: int) -> None:
        weights = self._session.weights()
        for name, value in weights.items():
            if not np.isfinite(value).all():
                self._require_finite(epoch, f"weight '{name}'", float(value[~np.isfinite(value)][0]))
        names = hand_over(self._work_dir, self._context, self._spec, self._layers, self._data, weights, self._metrics)
        self._narrator.saved(names)
