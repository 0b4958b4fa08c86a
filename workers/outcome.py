"""From what was seen of a trainer's end to what is written about it. Pure, a table as far as it goes.

Details follow the cause's own sentence (app.jobs.causes) when a job is shown, so they do not repeat it.

Success needs proof: the trainer said that it started and that it is done, it left with 0, nothing of it is left, and
there is a model (of a script: an output file, unless its exit code is to be enough). Everything else has a cause.
"""

import signal
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.errors import Cause, TrainshedError
from app.jobs.endings import Ending
from app.series.nonfinite import to_json
from workers.launch_port import Busy, Ended, LauncherGone
from workers.protocol import Artifact, Done, Failed, Started
from workers.stopping import StopReason

DETAIL_CHARACTERS: Final = 4_000
_STOPPED: Final = {
    StopReason.FENCED: "The worker lost its hold on the devices and killed the run.",
    StopReason.DEVICE_GONE: "The host does not see the device any more.",
}
_CRASHES: Final = frozenset(
    {signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS, signal.SIGTRAP}
)
"""Signals that a process brings upon itself."""
_UNREADABLE: Final = str.maketrans({"\x00": "\ufffd"})


class Proof(StrEnum):
    """What an attempt must have left besides its word: a file of this kind, or nothing (`exit`)."""

    MODEL = "model"
    OUTPUT = "output"
    EXIT = "exit"


_NOTHING_LEFT: Final = {
    Proof.MODEL: "It said that it was done, but left no model.",
    Proof.OUTPUT: "The command left with exit code 0, but no output file. Write what it makes into the folder that "
    "TRAINSHED_OUTPUT_DIR names; where there is nothing to keep, let the exit code be enough by script.success "
    '"exit" (`trainshed run --success exit`).',
}


@dataclass(frozen=True)
class Watched:
    """What was seen of one attempt from its start to the last event of its launcher.

    `lingered`: it did not leave after its last word, and was killed for that. `proof`: what a success must have left.
    `own_code`: it ran code of the user's.
    """

    end: Ended | Busy | LauncherGone
    started: Started | None = None
    last_word: Done | Failed | None = None
    artifacts: tuple[Artifact, ...] = ()
    stop: StopReason | None = None
    tail: str = ""
    out_of_memory: bool = False
    lingered: bool = False
    proof: Proof = Proof.MODEL
    own_code: bool = False


def clean(text: str) -> str:
    """Text that every database takes: no NUL (PostgreSQL refuses it), no half of a surrogate pair, and not endless."""
    return text.translate(_UNREADABLE).encode("utf-8", "replace").decode()[:DETAIL_CHARACTERS]


def reason_of(error: Exception) -> str:
    """What a user may read of an error: our own sentence, or the system's word for it, which names no path."""
    if isinstance(error, OSError) and not isinstance(error, TrainshedError):
        return error.strerror or type(error).__name__
    return str(error)


def failed(cause: Cause, detail: str) -> Ending:
    """An attempt that ended before it had a process, or whose files could not be stored."""
    return Ending(succeeded=False, cause=cause, detail=clean(detail))


def ending_of(watched: Watched) -> Ending:
    """Judge an end.

    A trainer that failed by itself keeps its own cause, also when it was being stopped at the time. One that left
    without a word, or was killed, while it was being stopped left for the stop's reason.
    """
    end, word = watched.end, watched.last_word
    if isinstance(end, Busy):
        held = end.lock.rpartition("/")[2].removesuffix(".lock")
        return failed(Cause.DEVICE_UNAVAILABLE, f"Another process of this host holds {held}.")
    if isinstance(word, Failed):
        if word.cause is Cause.TRAINER_KILLED and watched.out_of_memory:
            # The trainer saw one of its ranks die; only from here is it seen that the kernel did it.
            return _ended(end, Cause.HOST_OUT_OF_MEMORY, f"The kernel killed a process to free memory. {word.message}")
        return _ended(end, word.cause, word.message)
    if (success := _success(watched)) is not None:
        return success
    if watched.stop is not None:
        return _ended(end, watched.stop.cause, _STOPPED.get(watched.stop))
    return _ended(end, *_unexplained(watched, end))


def _success(watched: Watched) -> Ending | None:
    """The good end, if training was finished. A stop that came too late to be noticed does not undo it."""
    end, word = watched.end, watched.last_word
    if not (isinstance(end, Ended) and isinstance(word, Done)) or watched.started is None:
        return None
    has_left = end.code == 0 or (watched.lingered and end.signal == signal.SIGKILL)
    has_proof = watched.proof is Proof.EXIT or any(file.kind == watched.proof.value for file in watched.artifacts)
    if word.stopped is not None or watched.stop is StopReason.FENCED or not has_left or not has_proof:
        return None
    return Ending(
        succeeded=True,
        exit_code=end.code,
        signal=end.signal,
        max_rss_bytes=end.max_rss_bytes or None,
        final_metrics={name: to_json(value) for name, value in word.metrics.items()},
    )


def _unexplained(watched: Watched, end: Ended | LauncherGone) -> tuple[Cause, str]:
    """The cause of an end that nobody asked for and that the trainer did not announce as a failure."""
    if isinstance(end, LauncherGone):
        return _without_launcher(watched)
    if end.deadline:
        return Cause.WORKER_LOST, "The lease ran out: the database was not reached for too long."
    if end.signal is not None:
        return _by_signal(end.signal, watched)
    if not isinstance(watched.last_word, Done):
        return Cause.INCOMPLETE, _with_tail(f"It left with exit code {end.code}.", watched.tail)
    if watched.last_word.stopped is not None:
        return Cause.TRAINER_KILLED, "It was told to stop by a signal that the worker did not send."
    unclean = f"It said that it was done, but left with exit code {end.code}."
    missing = unclean if end.code else _NOTHING_LEFT.get(watched.proof, "It said that it was done before it started.")
    remark = f" {watched.last_word.remark}" if watched.last_word.remark else ""
    return Cause.INCOMPLETE, _with_tail(f"{missing}{remark}", watched.tail)


def _without_launcher(watched: Watched) -> tuple[Cause, str]:
    if watched.out_of_memory:
        return Cause.HOST_OUT_OF_MEMORY, "The launcher of the training process was killed to free memory."
    return Cause.WORKER_LOST, _with_tail("The launcher of the training process died.", watched.tail)


def _by_signal(number: int, watched: Watched) -> tuple[Cause, str]:
    if number == signal.SIGKILL and watched.out_of_memory:
        return Cause.HOST_OUT_OF_MEMORY, "The kernel killed the training process to free memory."
    if number == signal.SIGBUS:  # memory that was promised and is not there: a full /dev/shm
        return Cause.SHARED_MEMORY, _with_tail("It ended by signal SIGBUS.", watched.tail)
    name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
    if watched.own_code and number in _CRASHES:
        crash = f"The code, or a library that it called, crashed: it ended by signal {name}."
        return Cause.USER_CODE, _with_tail(crash, watched.tail)
    return Cause.TRAINER_KILLED, _with_tail(f"It ended by signal {name}.", watched.tail)


def _with_tail(sentence: str, tail: str) -> str:
    return f"{sentence} Its last output:\n{tail}" if tail else sentence


def _ended(end: Ended | LauncherGone, cause: Cause | None, detail: str | None) -> Ending:
    text = clean(detail) if detail else None
    if isinstance(end, LauncherGone):
        return Ending(succeeded=False, cause=cause, detail=text)
    return Ending(
        succeeded=False,
        cause=cause,
        detail=text,
        exit_code=end.code,
        signal=end.signal,
        max_rss_bytes=end.max_rss_bytes or None,
    )
