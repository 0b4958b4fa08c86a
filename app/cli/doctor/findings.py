"""What a look found."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from app.cli.doctor.place import Place
from app.errors import TrainshedError
from app.logs import without_secrets


class Status(StrEnum):
    """`fault`: the service does not work like this. `warning`: it does, and somebody should see to it."""

    OK = "ok"
    SKIPPED = "skipped"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: a stable name, how it is, and, if it is not well, what to do."""

    name: str
    status: Status
    message: str
    advice: str = ""


def well(name: str, message: str) -> Finding:
    return Finding(name, Status.OK, message)


def skipped(name: str, reason: str) -> Finding:
    return Finding(name, Status.SKIPPED, reason)


def warning(name: str, message: str, advice: str) -> Finding:
    return Finding(name, Status.WARNING, message, advice)


def fault(name: str, message: str, advice: str) -> Finding:
    return Finding(name, Status.FAULT, message, advice)


Check = Callable[[Place], Iterable[Finding]]
_REPORT: Final = "Please report this, with the sentence above."


def run_check(name: str, check: Check, place: Place) -> Iterator[Finding]:
    """The findings of one check. That it fails itself is a finding too: the others must still be told.

    Findings are shown, kept by CI and pasted into reports, and an address may hold a password anywhere: none has one.
    """
    for found in _findings(name, check, place):
        yield replace(found, message=without_secrets(found.message), advice=without_secrets(found.advice))


def _findings(name: str, check: Check, place: Place) -> Iterator[Finding]:
    try:
        yield from check(place)
    except TrainshedError as error:
        yield fault(name, str(error), "The sentence says what is wrong.")
    except Exception as error:  # noqa: BLE001 - whatever is wrong with one part, the others must be looked at
        yield fault(name, f"The check failed: {type(error).__name__}: {error}", _REPORT)
