"""Why a model gives no answer.

TrainshedError
 +- Conflict
 |   +- NoModel
 |   +- NotThisFramework
 +- Unavailable
 |   +- NoWorkerOnline
 +- TooManyTasks
 +- TaskFailed             with the code that the worker wrote
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from app.errors import Conflict, TrainshedError, Unavailable

# The codes that a task may end with. Any other is told as `internal`: no text of a fault goes out.
TASK_CODES: Final = frozenset(
    {
        "invalid_rows",
        "answer_too_large",
        "model_unreadable",
        "model_failed",
        "export_failed",
        "task_lost",
        "task_expired",
    }
)


_OF_PYTHON: Final = {"torch": "onnx", "tensorflow": "keras"}


class NoModel(Conflict):
    """The job has stored no model: it runs still, or ended without one."""

    code = "no_model"

    def __init__(self, job_id: str, state: str, kind: str = "model") -> None:
        where = "A job has one once it has succeeded; GET /v1/jobs?state=succeeded lists those."
        if kind == "script":
            where = "It ran a script, whose files are its artifacts; GET /v1/jobs?kind=model lists jobs with a model."
        super().__init__(f"The job {job_id} is {state} and has no model. {where}")
        self.state = state


class NotThisFramework(Conflict):
    """The format belongs to another framework than the model's."""

    code = "wrong_framework"

    def __init__(self, wanted: str, framework: str, *, python: bool = False) -> None:
        whose, other = ("python model", _OF_PYTHON[framework]) if python else ("model", "onnx")
        super().__init__(f"A {whose} of {framework} cannot be exported as '{wanted}'; for example '{other}' can be.")


class NoWorkerOnline(Unavailable):
    """Nobody is there who could answer; asking again is right once a worker runs."""

    code = "no_worker_online"

    def __init__(self, what: str) -> None:
        super().__init__(f"No worker {what} is online; GET /v1/workers shows which there are.", retry_after_s=5)


class TooManyTasks(TrainshedError):
    code = "too_many_predictions"

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} predictions and exports of this project wait already; try again when some are done.")
        self.limit = limit


@dataclass(frozen=True, slots=True)
class RowProblem:
    """One problem of a request's rows: where in the body (RFC 6901), which row and column, what is wrong."""

    pointer: str
    message: str
    row: int | None = None
    column: str | None = None
    suggestion: str | None = None
    place: Literal["body"] = "body"


class TaskFailed(TrainshedError):
    """A task that ended badly, as the error of the request that waited for it."""

    code: ClassVar[str] = "internal"

    def __init__(self, error: Mapping[str, Any] | None) -> None:
        told = error if error is not None and error.get("code") in TASK_CODES else None
        super().__init__("The server failed; its log has the reason." if told is None else str(told["message"]))
        self.code = "internal" if told is None else str(told["code"])  # type: ignore[misc] # the code is the task's
        self.problems: Sequence[RowProblem] = [] if told is None else [RowProblem(**item) for item in told["errors"]]
