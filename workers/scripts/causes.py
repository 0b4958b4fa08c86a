"""From how a command ended, and what it wrote last, to the cause and the sentence that a user reads. Pure.

What a process says about its own end counts more than its exit code, and the last exception more than what was printed
before it: a script may catch, print and go on.
"""

import re
import shlex
import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.errors import Cause
from workers.scripts.hints import hint_of
from workers.scripts.ranks import Exit

_SHELL_SIGNALS: Final = 128
_TAIL_LINES: Final = 12
_LAST_LINES: Final = 30
"""Where an error is looked for when there is no traceback."""
_LINE_CHARACTERS: Final = 300
_COMMAND_CHARACTERS: Final = 200

_TRACEBACK: Final = "Traceback (most recent call last):"
_CHAINED: Final = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_EXCEPTION: Final = r"^(?:\[rank\d+\]: ?)?((?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?:: (.*))?$"
_LAUNCHER: Final = r"torch\.distributed\.elastic\S*\.ChildFailedError\b|subprocess\.CalledProcessError\b"
_WHERE: Final = r'^\s*(?:\[rank\d+\]: ?)?File "([^"]+)", line (\d+)'

# Patterns are compiled when they are needed: all of them would delay every start by some milliseconds.
# Ordered: what is more exact comes first. On the CPU TensorFlow words it as on a card.
_TEXTS: Final[tuple[tuple[str, Cause], ...]] = (
    (r"OOM when allocating.*device:CPU|DefaultCPUAllocator|not enough memory: you tried", Cause.HOST_OUT_OF_MEMORY),
    (r"CUDA out of memory|CUDA error: out of memory|cuda\.OutOfMemoryError", Cause.DEVICE_OUT_OF_MEMORY),
    (r"torch\.OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY|OOM when allocating", Cause.DEVICE_OUT_OF_MEMORY),
    (r"ResourceExhaustedError|RESOURCE_EXHAUSTED: Out of memory", Cause.DEVICE_OUT_OF_MEMORY),
    (r"CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED", Cause.DEVICE_OUT_OF_MEMORY),
    (
        r"insufficient shared memory|unable to (?:open|write to) (?:shared memory|file </torch_)",
        Cause.SHARED_MEMORY,
    ),
    (r"No space left on device.*/dev/shm|/dev/shm.*No space left on device", Cause.SHARED_MEMORY),
    (r"^\S*MemoryError\b|std::bad_alloc|Cannot allocate memory", Cause.HOST_OUT_OF_MEMORY),
    (r"No space left on device|Disk quota exceeded", Cause.ARTIFACT_UNREADABLE),
)
_CARD_TEXTS: Final[tuple[tuple[str, Cause], ...]] = (
    (r"uncorrectable ECC error|CUDA_ERROR_ECC_UNCORRECTABLE|fallen off the bus", Cause.DEVICE_FAULT),
    (r"no CUDA-capable device|Found no NVIDIA driver|No CUDA GPUs are available", Cause.DEVICE_UNAVAILABLE),
    (r"CUDA driver version is insufficient|CUDA_ERROR_NO_DEVICE", Cause.DEVICE_UNAVAILABLE),
    (r"not compiled with CUDA enabled|torch\.cuda\.is_available\(\) is False", Cause.DEVICE_UNAVAILABLE),
)
"""Only where the attempt holds real cards: elsewhere there is none to be seen."""
_CONSEQUENCE: Final = (
    r"Connection (?:reset|closed|refused)|connection closed by peer|Broken pipe|ncclRemoteError|DistBackendError"
    r"|DistNetworkError|UnavailableError|CancelledError"
)
"""What a rank says when another one has gone away."""
_MEMORY: Final = (Cause.DEVICE_OUT_OF_MEMORY, Cause.HOST_OUT_OF_MEMORY, Cause.SHARED_MEMORY)


@dataclass(frozen=True)
class Verdict:
    """Why the command failed: `sentence` names the command and its code or signal; `message` adds its last output."""

    cause: Cause
    sentence: str
    tail: str = ""

    @property
    def message(self) -> str:
        return f"{self.sentence} Its last output:\n{self.tail}" if self.tail else self.sentence


def culprit(exits: Sequence[Exit], tails: Mapping[int, str]) -> Exit | None:
    """Which of the ends, in the order in which they were seen, explains the others; None when all are good.

    A rank that only lost its connection to another one, or was asked to leave, is not to blame where there is one that
    is: several may have ended by the time that the first is seen.
    """
    failed = [end for end in exits if not end.good]
    own = [end for end in failed if end.signal != signal.SIGTERM and not _is_consequence(tails.get(end.rank, ""))]
    return next(iter(own or failed), None)


def _is_consequence(tail: str) -> bool:
    return any(re.search(_CONSEQUENCE, line) for line in tail.splitlines()[-_TAIL_LINES:])


def judge(
    first: Exit,
    tail: str,
    command: Sequence[str],
    ranks: int = 1,
    *,
    on_cards: bool = False,
    files: Collection[str] = (),
) -> Verdict:
    """Judge the end of the rank that failed first; `tail` is its last output, without metrics, `files` the bundle's."""
    lines = tail.splitlines()
    error = _last_error(lines)
    number = _signal_of(first)
    cause = _cause(error, number, on_cards=on_cards)
    who = shown(command) if ranks == 1 else f"Rank {first.rank} of {shown(command)}"
    sentence = f"{who} {_how(first, number)}"
    if said := _exception(error, lines):
        sentence += f": {said}"
    sentence = sentence.rstrip(".") + "."
    exception = next((line for line in reversed(error) if re.match(_EXCEPTION, line)), "")
    if hint := hint_of(error, exception, number, files):
        sentence += f" {hint}"
    return Verdict(cause, sentence, "\n".join(line[:_LINE_CHARACTERS] for line in lines[-_TAIL_LINES:]))


def swallowed(tail: str) -> str | None:
    """Whether the last output of a command that left with 0 speaks of memory that ran out: then the line, else None."""
    for line in reversed(tail.splitlines()[-_LAST_LINES:]):
        if any(cause in _MEMORY and re.search(pattern, line) for pattern, cause in _TEXTS):
            return line[:_LINE_CHARACTERS]
    return None


def shown(command: Sequence[str]) -> str:
    """A command for a sentence: in quotes, one line, not too long."""
    text = shlex.join(command)
    text = text if text.isprintable() else ascii(text)[1:-1]
    return f"'{text}'" if len(text) <= _COMMAND_CHARACTERS else f"'{text[:_COMMAND_CHARACTERS]}…'"


def name_of(number: int) -> str:
    """The name of a signal."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"number {number}"


def _signal_of(end: Exit) -> int | None:
    """The signal that ended it, or, by its exit code, a child of a shell."""
    if end.signal is not None:
        return end.signal
    code = (end.code or 0) - _SHELL_SIGNALS
    return code if code in set(signal.Signals) else None


def _how(end: Exit, number: int | None) -> str:
    if end.signal is not None:
        return f"was ended by signal {name_of(end.signal)}"
    meaning = f" (a shell's word for signal {name_of(number)})" if number is not None else ""
    return f"ended with exit code {end.code}{meaning}"


def _cause(error: Sequence[str], number: int | None, *, on_cards: bool) -> Cause:
    if number == signal.SIGKILL:
        return Cause.TRAINER_KILLED
    texts = (*_CARD_TEXTS, *_TEXTS) if on_cards else _TEXTS
    for pattern, cause in texts:
        if any(re.search(pattern, line) for line in error):
            return cause
    return Cause.SHARED_MEMORY if number == signal.SIGBUS else Cause.USER_CODE


def _last_error(lines: Sequence[str]) -> Sequence[str]:
    """The last traceback with those that it was chained to; without one the last lines.

    That of a launcher (torchrun, accelerate) only says that its child failed, whose own stands before it.
    """
    starts = [at for at, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    if not starts:
        return lines[-_LAST_LINES:]
    start, end = starts.pop(), len(lines)
    if starts and any(re.match(_LAUNCHER, line) for line in lines[start:]):
        start, end = starts.pop(), start
        while starts and any(re.search(_CONSEQUENCE, line) for line in lines[start:end]):
            start, end = starts.pop(), start
    while starts and any(line.endswith(_CHAINED) for line in lines[starts[-1] : start]):
        start = starts.pop()
    return lines[start:end]


def _exception(error: Sequence[str], lines: Sequence[str]) -> str:
    """What the last exception says, with the place of a syntax error; empty when no exception is the last word."""
    at = next((at for at in range(len(error) - 1, -1, -1) if re.match(_EXCEPTION, error[at])), None)
    if at is None:
        return ""
    found = re.match(_EXCEPTION, error[at])
    if found is None or not (any(_TRACEBACK in line for line in lines) or _is_syntax(found[1])):
        return ""
    said = error[at].strip()[:_LINE_CHARACTERS]
    where = next((match for line in reversed(error[:at]) if (match := re.match(_WHERE, line))), None)
    if _is_syntax(found[1]) and where is not None:
        return f"{said} ({where[1].rpartition('/code/')[2]}, line {where[2]})"
    return said


def _is_syntax(name: str) -> bool:
    return name in {"SyntaxError", "IndentationError", "TabError"}
