"""The training loop: from an assignment to a saved model, the same for every framework.

What is reported, by name:

- each epoch: `loss` and the spec's metrics over the epoch's batches, as the model met them (dropout on, weights on
  the move); with `val_` loss and metrics over the validation part after the epoch, if there is one; `learning_rate` of
  the epoch's last step; `samples_per_s`, training rows per second, without validation.
- inside of an epoch that lasts: `step_loss`, the mean loss of the rows since the last report.
- at the end: `test_` values, if there is a test part; it is looked at once and steers nothing.

Losses are in the units the model is trained in, without the l1 and l2 terms; mae and rmse in the target's own unit.
Class weights are in `loss` alone.
"""

import time
from typing import Final

from app.errors import Cause
from workers.backends.base import Backend, DType, TrainingFailed
from workers.context import Context
from workers.narration import Narrator, Say, say
from workers.protocol import Assignment, Done
from workers.training import Clock, Training

_SENTENCES: Final = {
    Cause.DEVICE_OUT_OF_MEMORY: "The device ran out of memory. Use a smaller hyperparameters.batch_size, for example "
    "{half}, or a smaller model.",
    Cause.HOST_OUT_OF_MEMORY: "The host ran out of memory. Use a smaller hyperparameters.batch_size, for example "
    "{half}, a smaller model, or fewer columns.",
    Cause.DEVICE_FAULT: "The device reported a fault of its hardware. The job itself is not at fault.",
}


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
    those of the last complete epoch, or of the best one with early stopping. `dtype` is for tests: float64 shows
    whether two backends mean the same. `say` takes the lines of the job's log.

    Raises:
        TrainingFailed: the training cannot go on (diverged, out of memory, a broken device); it carries the cause.
        InvalidTable: the data cannot be read, or does not have what the spec names.
        TooFewRows: nothing is left to train on.
        UnreadableCheckpoint: the checkpoint to go on from is not complete, or not this training's.
        OtherModel: the checkpoint to start from has other weights than this model.
    """
    try:
        training = Training(assignment, backend, context, Narrator(say, clock), clock, dtype)
        try:
            return training.run()
        finally:
            training.close()
    except TrainingFailed:
        raise
    except Exception as error:
        cause = Cause.HOST_OUT_OF_MEMORY if isinstance(error, MemoryError) else backend.cause_of(error)
        if cause is None:
            raise
        half = max(1, assignment.spec.hyperparameters.batch_size // 2)
        raise TrainingFailed(_SENTENCES[cause].format(half=half), cause) from error
