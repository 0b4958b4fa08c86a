"""Why a job has no environment.

EnvironmentFailed
EnvironmentCancelled
"""

from collections.abc import Sequence
from typing import ClassVar

from app.errors import Cause, TrainshedError


class EnvironmentFailed(TrainshedError):
    """The packages could not be installed; the attempt ends with `cause`, this sentence, and pip's last lines.

    `cause` is `worker_lost` when the host is at fault and not what was asked for.
    """

    code: ClassVar[str] = "environment_failed"

    def __init__(self, message: str, detail: Sequence[str] = (), cause: Cause = Cause.ENVIRONMENT_FAILED) -> None:
        super().__init__(message)
        self.detail = tuple(detail)
        self.cause = cause


class EnvironmentCancelled(TrainshedError):
    """Whoever asked does not want it any more; nothing of what was under way is left."""

    code: ClassVar[str] = "environment_cancelled"

    def __init__(self) -> None:
        super().__init__("The installation was stopped because the job was.")
