"""Why devices cannot be held."""

from collections.abc import Sequence
from typing import ClassVar

from app.errors import Conflict, TrainshedError
from app.spec import SpecProblem


class DevicesBusy(Conflict):
    """Devices of this kind exist, but not enough of them are free on one host now; `retry_after_s` is a suggestion."""

    code: ClassVar[str] = "devices_busy"
    retry_after_s = 5

    def __init__(self, reason: str) -> None:
        super().__init__(f"The devices cannot be held now: {reason}. Ask again later, or for fewer or other devices.")


class HoldEnded(Conflict):
    """It is over, so there is nothing to extend."""

    def __init__(self, hold_id: str, why: str | None) -> None:
        super().__init__(f"'{hold_id}' is over ({why or 'ended'}); its devices may be somebody else's. Hold anew.")


class InvalidHold(TrainshedError):
    """One field of the request asks for something impossible; `problems` has one entry, with its pointer."""

    code: ClassVar[str] = "invalid_request"

    def __init__(self, field: str, message: str, example: str) -> None:
        self.problems: Sequence[SpecProblem] = [SpecProblem(f"/{field}", message, example)]
        super().__init__(f"{field}: {message}")
