"""The log that a job writes about itself: what is trained, on what, and how it goes, in lines for people.

A trainer's stdout is its job's log, so a line is printed. Every value of every epoch is in the reports; a line for each
would fill the log of a job with a million short epochs, so lines keep a distance that grows with the time.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from app.spec import EffectiveSpec, PythonModel
from workers.backends.base import Prepared
from workers.checkpoints import BestSoFar
from workers.data.dataset import Dataset
from workers.data.split import PART_NAMES
from workers.protocol import Progress

Say = Callable[[str], None]

_DISTANCE_S: Final = 0.5
_SHARE_OF_TIME: Final = 0.001
"""Lines about epochs are as far apart as this share of the time so far: after a day a minute and a half."""


def say(line: str) -> None:
    """Print a line of the log. A log that nobody takes any more does not end a training."""
    with contextlib.suppress(OSError, ValueError):
        print(line, flush=True)  # noqa: T201 - stdout is the log


def on_what(prepared: Prepared) -> str:
    """Say what computes, and on what: `torch 2.13.0 computes on the CPU, 1 thread`."""
    where = f"CUDA: {', '.join(prepared.devices)}" if prepared.device_kind == "cuda" else "the CPU"
    if prepared.simulated:
        where += f" in place of the simulated {', '.join(prepared.devices)}"
    threads = f"{prepared.threads} thread{'' if prepared.threads == 1 else 's'}"
    return f"{prepared.framework} {prepared.version} computes on {where}, {threads}."


class Narrator:
    """Tells one training. `clock` in seconds; the first line about an epoch comes at once, the last one always."""

    def __init__(self, say: Say, clock: Callable[[], float]) -> None:
        self._say = say
        self._clock = clock
        self._began = clock()
        self._next = self._began

    def begin(self, spec: EffectiveSpec, data: Dataset, parameters: int, steps: int) -> None:
        """`steps`: of the whole training."""
        settings = spec.hyperparameters
        kind = f"{data.output_units} classes" if data.vocabulary else "regression"
        train, validation, test = (f"{len(data.parts[name]):,}" for name in PART_NAMES)
        self._say(
            f"Data: {spec.data.source}, {len(spec.data.features)} features, target '{spec.data.target}' ({kind}); "
            f"{train} rows for training, {validation} for validation, {test} for the test."
        )
        rate = f"{settings.learning_rate:g} ({settings.schedule.name})"
        model = f"python, {spec.model.entrypoint}" if isinstance(spec.model, PythonModel) else spec.model.type
        self._say(
            f"Model: {model}, {parameters:,} parameters, seed {settings.seed}; loss {spec.loss}, "
            f"optimizer {settings.optimizer.name}, learning rate {rate}."
        )
        per_epoch = steps // settings.epochs
        self._say(f"Epochs: {settings.epochs:,} of {per_epoch:,} steps, batches of {settings.batch_size:,} rows.")

    def going_on(self, step: int, epoch: int) -> None:
        """`epoch`: how many are complete. Nothing is said of a training from the start."""
        if step:
            self._say(f"Going on from the checkpoint of step {step:,}, {epoch:,} epochs complete.")

    def stopped_early(self, monitor: str, best: BestSoFar | None) -> None:
        where = "never was a number" if best is None else f"was best in epoch {best.epoch:,}: {best.value:.4g}"
        self._say(f"Early stopping: {monitor} {where}.")

    def epoch(self, progress: Progress, values: Mapping[str, float]) -> None:
        """An epoch has ended with these values."""
        if self._due() or progress.epoch == progress.epochs:
            self._say(f"epoch {progress.epoch}/{progress.epochs}: {written(values)}")

    def inside(self, progress: Progress, values: Mapping[str, float]) -> None:
        """An epoch that lasts has come so far."""
        if self._due():
            where = f"epoch {progress.epoch}/{progress.epochs}, step {progress.step:,} of {progress.steps:,}"
            self._say(f"{where}: {written(values)}")

    def tested(self, values: Mapping[str, float]) -> None:
        if values:
            self._say(f"test part: {written(values)}")

    def stopped(self, progress: Progress) -> None:
        self._say(f"Stopped as asked, in epoch {progress.epoch} after step {progress.step:,} of {progress.steps:,}.")

    def saved(self, names: Sequence[str]) -> None:
        self._say(f"Finished after {self._clock() - self._began:.1f} s; files: {', '.join(names)}.")

    def _due(self) -> bool:
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + max(_DISTANCE_S, (now - self._began) * _SHARE_OF_TIME)
        return True


def written(values: Mapping[str, float]) -> str:
    """Write values for people, four digits each: `loss 0.6931, accuracy 0.5`."""
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())
