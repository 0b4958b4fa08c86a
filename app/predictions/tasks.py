"""The life of a task: asked, taken, answered. Every write is guarded by the state and the claim that it expects.

A task is taken twice at most: when the worker that has it is lost, another one may try; what kills two workers would
kill a third. The claim number grows with every taking, so that a worker that comes back to life writes nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, CursorResult, Select, case, func, select, update
from sqlalchemy.orm import Session

from app.errors import NotFound
from app.predictions.errors import TooManyTasks
from app.predictions.models import ModelTask
from app.predictions.states import OPEN, TaskKind, TaskState

CLAIMS: Final = 2


@dataclass(frozen=True)
class NewTask:
    """A request that was checked; `request` is the JSON that the worker gets.

    `framework`: whose interpreter must run code of a user for it; None: no such code runs.
    """

    id: str
    project_id: str
    job_id: str
    owner: str
    kind: TaskKind
    request: str
    deadline_s: float
    framework: str | None = None


@dataclass(frozen=True)
class Taken:
    """A task in the hands of one worker: `claim` is its fence, `left_s` the time to its deadline.

    `framework` is set when code of a user must run for it.
    """

    id: str
    job_id: str
    kind: TaskKind
    request: str
    claim: int
    left_s: float
    framework: str | None = None


def task_error(code: str, message: str, errors: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The error of a task as it is stored and shown."""
    return {"code": code, "message": message, "errors": list(errors)}


def submit(session: Session, new: NewTask, now: datetime, max_open: int) -> None:
    """Put a task into the queue.

    Raises:
        TooManyTasks: as many of the project wait or run as may. Requests that come together may go a little over.
    """
    waiting = select(func.count()).select_from(ModelTask)
    waiting = waiting.where(ModelTask.project_id == new.project_id, ModelTask.state.in_(OPEN))
    if session.execute(waiting).scalar_one() >= max_open:
        raise TooManyTasks(max_open)
    values = {name: value for name, value in vars(new).items() if name != "deadline_s"}
    session.add(ModelTask(**values, created_at=now, deadline=now + timedelta(seconds=new.deadline_s)))


def get_task(session: Session, project_id: str, task_id: str) -> ModelTask:
    """The task.

    Raises:
        NotFound: there is none with this id in this project (any more).
    """
    query = select(ModelTask).where(ModelTask.id == task_id, ModelTask.project_id == project_id)
    task = session.execute(query).scalar()
    if task is None:
        raise NotFound("prediction", task_id)
    return task


@dataclass(frozen=True)
class Wanted:
    """Which tasks somebody can do: of a kind, with code of users for one of these `frameworks`, or without any (None).

    `requests`: only those whose request is one of these; None: whatever they ask.
    """

    kind: TaskKind
    frameworks: Collection[str] | None = None
    requests: Collection[str] | None = None


def export_request(form: str) -> str:
    """What the worker gets of an export; its exact text is how workers find those that they can make."""
    return f'{{"format":"{form}"}}'


def open_export(session: Session, job_id: str, request: str) -> str | None:
    """The id of an export of the same that waits or runs, so that two are not made at once."""
    query = select(ModelTask.id).where(
        ModelTask.job_id == job_id,
        ModelTask.kind == TaskKind.EXPORT,
        ModelTask.request == request,
        ModelTask.state.in_(OPEN),
    )
    return session.execute(query.order_by(ModelTask.id).limit(1)).scalar()


def next_id(session: Session, wanted: Wanted) -> str | None:
    """The oldest task that waits; reading alone, so that looking costs no write lock."""
    return session.execute(_next(wanted)).scalar()


def take(session: Session, wanted: Wanted, worker_id: str, instance: str, now: datetime) -> Taken | None:
    """Take the oldest task that is wanted. None: there is none.

    Workers that ask at the same time get different ones.
    """
    oldest = _next(wanted).where(ModelTask.deadline > now).with_for_update(skip_locked=True)
    task_id = session.execute(oldest).scalar()
    if task_id is None:
        return None
    task = session.get_one(ModelTask, task_id)
    claim = task.claim + 1
    values = {
        "state": TaskState.RUNNING,
        "claim": claim,
        "worker_id": worker_id,
        "instance": instance,
        "claimed_at": now,
    }
    if not changed(session, values, ModelTask.id == task_id, ModelTask.state == TaskState.QUEUED):
        return None
    left_s = (task.deadline - now).total_seconds()
    return Taken(task_id, task.job_id, wanted.kind, task.request, claim, left_s, task.framework)


def succeed(session: Session, taken: Taken, result: str, now: datetime) -> bool:
    """Write the answer; False when the task is not this worker's any more, and nothing was written."""
    return changed(session, {"result": result, **over(TaskState.SUCCEEDED, now)}, *_held(taken)) == 1


def fail(session: Session, taken: Taken, error: Mapping[str, Any], now: datetime) -> bool:
    """End the task with an error that trying again would repeat; False as `succeed`."""
    return changed(session, {"error": error, **over(TaskState.FAILED, now)}, *_held(taken)) == 1


def give_back(session: Session, taken: Taken, error: Mapping[str, Any], now: datetime) -> TaskState | None:
    """Let another worker try, or end the task with `error` when this was the last try; None as False of `succeed`."""
    if taken.claim >= CLAIMS:
        return TaskState.FAILED if fail(session, taken, error, now) else None
    return TaskState.QUEUED if changed(session, waits_again(), *_held(taken)) else None


def waits_again() -> dict[str, Any]:
    """The columns of a task that goes back into the queue; its claim stays, so that it is counted."""
    return {"state": TaskState.QUEUED, "worker_id": None, "instance": None, "claimed_at": None}


def over(state: TaskState, now: datetime) -> dict[str, Any]:
    """The columns of a task that has ended. The rows of a prediction are of no use any more, so they are not kept."""
    request = case((ModelTask.kind == TaskKind.PREDICT, "{}"), else_=ModelTask.request)
    return {"state": state, "finished_at": now, "request": request}


def _next(wanted: Wanted) -> Select[str]:
    query = select(ModelTask.id).where(ModelTask.state == TaskState.QUEUED, ModelTask.kind == wanted.kind)
    if wanted.frameworks is None:
        query = query.where(ModelTask.framework.is_(None))
    else:
        query = query.where(ModelTask.framework.in_(sorted(wanted.frameworks)))
    if wanted.requests is not None:
        query = query.where(ModelTask.request.in_(sorted(wanted.requests)))
    return query.order_by(ModelTask.id).limit(1)


def _held(taken: Taken) -> tuple[ColumnElement[bool], ...]:
    return ModelTask.id == taken.id, ModelTask.state == TaskState.RUNNING, ModelTask.claim == taken.claim


def changed(session: Session, values: Mapping[str, Any], *guard: ColumnElement[bool]) -> int:
    """How many tasks there were to which the guard applied; they have `values` now."""
    change = update(ModelTask).where(*guard).values(**values).execution_options(synchronize_session=False)
    done = session.execute(change)
    assert isinstance(done, CursorResult)  # noqa: S101 - what an UPDATE answers; this tells the type checker
    return done.rowcount
