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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from app.errors import Cause
from app.spec import EffectiveSpec, Layer, layers_of
from app.tables import features_and_target, read_table
from workers.backends.base import Backend, Diverged, DType, Program, Session, Steps, TrainingFailed
from workers.backends.initial import draw_weights, weight_shapes
from workers.backends.pace import Pace, Speed
from workers.backends.schedules import learning_rates
from workers.context import Context, Reporter
from workers.data.dataset import Dataset, prepare
from workers.data.metrics import Sums, no_sums, readings
from workers.data.order import EpochPlan, epoch_plan, steps_per_epoch
from workers.data.split import PART_NAMES, PartName
from workers.model_file import TrainedModel, save
from workers.protocol import Assignment, Done, Progress

Clock = Callable[[], float]

MODEL_FOLDER: Final = "model"
SPLIT_NAME: Final = "split.safetensors"
"""Row numbers of each part, as the table counts them: `train`, `validation`, `test`, int64."""

_EVALUATION_COST: Final = 1e9
"""Rows times parameters in one call of `evaluate`: a fraction of a second on one core."""

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
) -> Done:
    """Train the assignment's spec; `backend.prepare(assignment.devices, assignment.threads)` was called before.

    Returns `Done` also when the context asked to stop: then `stopped` is set, no model was saved, and `metrics` are
    those of the last complete epoch. `dtype` is for tests: float64 shows whether two backends mean the same.

    Raises:
        TrainingFailed: the training cannot go on (diverged, out of memory, a broken device); it carries the cause.
        InvalidTable: the data cannot be read, or does not have what the spec names.
        TooFewRows: nothing is left to train on.
    """
    try:
        return _Training(assignment, backend, context, clock, dtype).run()
    except TrainingFailed:
        raise
    except Exception as error:
        cause = Cause.HOST_OUT_OF_MEMORY if isinstance(error, MemoryError) else backend.cause_of(error)
        if cause is None:
            raise
        half = max(1, assignment.spec.hyperparameters.batch_size // 2)
        raise TrainingFailed(_SENTENCES[cause].format(half=half), cause) from error


def read_dataset(assignment: Assignment, context: Context, dtype: DType = "float32") -> Dataset:
    """Read the table and make the parts, with a notice for everything about them that a user should know."""
    devices = len(assignment.devices)
    if devices > 1:
        context.notice("one_device_used", f"The job holds {devices} devices and trains on the first of them.")
    source = assignment.table
    table = read_table(None if source.path is None else Path(source.path), source.builtin)
    columns = features_and_target(table, assignment.spec)
    if columns.dropped:
        context.notice("rows_dropped", f"{columns.dropped} rows with gaps were left out, as data.missing 'drop' says.")
    data = prepare(columns, assignment.spec, dtype)
    for code, message in data.notices:
        context.notice(code, message)
    return data


def open_session(
    spec: EffectiveSpec, layers: Sequence[Layer], data: Dataset, backend: Backend, dtype: DType = "float32"
) -> Session:
    """Build the model that a spec describes, with its first weights."""
    hyperparameters = spec.hyperparameters
    program = Program(
        layers=tuple(layers),
        loss=spec.loss,
        optimizer=hyperparameters.optimizer,
        batch_size=min(hyperparameters.batch_size, len(data.parts["train"])),
        l1=hyperparameters.l1,
        l2=hyperparameters.l2,
        seed=hyperparameters.seed,
        dtype=dtype,
    )
    weights = draw_weights(layers, len(spec.data.features), hyperparameters.seed)
    return backend.open(program, weights, data.parts)


class _Training:
    """One run of `train`: what stays the same over it, and how far it is."""

    def __init__(self, assignment: Assignment, backend: Backend, context: Context, clock: Clock, dtype: DType) -> None:
        self._spec = assignment.spec
        self._settings = assignment.spec.hyperparameters
        self._context = context
        self._clock = clock
        self._folder = Path(assignment.work_dir) / MODEL_FOLDER
        self._data = read_dataset(assignment, context, dtype)
        self._layers = layers_of(self._spec, self._data.output_units)
        self._session = open_session(self._spec, self._layers, self._data, backend, dtype)
        self._block = _block_rows(self._layers, len(self._spec.data.features))
        self._rows = len(self._data.parts["train"])
        self._steps = self._settings.epochs * steps_per_epoch(self._rows, self._settings.batch_size)
        self._step = 0
        self._metrics: dict[str, float] = {}
        self._reporter = Reporter(context, clock)
        self._pace = Pace()
        self._speed = Speed()

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
                reported = (float(sums[0]), rows)
        values = readings(sums, self._data.yardsticks["train"], self._spec.metrics)
        values |= {"learning_rate": rate, "samples_per_s": rows / max(seconds, 1e-9)}
        values |= self._look(epoch, "validation", "val_")
        self._reporter.add(epoch, self._step, values)
        self._metrics = values

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
        data = self._data
        model = TrainedModel(
            weights=weights,
            layers=self._layers,
            inputs=data.inputs,
            classes=data.vocabulary.labels if data.vocabulary else None,
            target=data.target,
            spec=self._spec,
            metrics=self._metrics,
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in save(self._folder, model):
            media = "application/json" if path.suffix == ".json" else "application/octet-stream"
            self._context.artifact(path.name, path, media, "model")
        split = self._folder / SPLIT_NAME
        save_file({name: data.row_numbers[data.division.rows(name)] for name in PART_NAMES}, split)
        self._context.artifact(split.name, split, "application/octet-stream", "report")


def _block_rows(layers: Sequence[Layer], features: int) -> int:
    """How many rows `evaluate` gets at once: fixed by the model, so that sums are added in the same order each time."""
    parameters = sum(math.prod(shape) for shape in weight_shapes(layers, features).values())
    return max(32, min(8192, int(_EVALUATION_COST / parameters)))
