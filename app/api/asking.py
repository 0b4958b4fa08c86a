"""From a request to a task in the queue: what predictions and exports have in common before and after the wait."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.exc import IntegrityError

from app.accounts.service import Principal
from app.api.desk import Desk
from app.api.services import Services
from app.broker import CHANNEL_TASKS
from app.errors import NotFound
from app.fleet.repository import HostView
from app.ids import new_id
from app.jobs.lifecycle import hold_job
from app.predictions.errors import NoWorkerOnline
from app.predictions.models import ModelTask
from app.predictions.states import TaskKind
from app.predictions.tasks import NewTask, open_export, submit

WAITS: Mapping[int | str, dict[str, Any]] = {
    202: {
        "description": "It takes longer than `timeout_s`; its end is at `Location`, for a day.",
        "headers": {
            "Location": {"schema": {"type": "string"}, "description": "Where to ask again."},
            "Retry-After": {"schema": {"type": "string"}, "description": "Seconds."},
        },
    }
}


def put_into_queue(
    services: Services,
    principal: Principal,
    job_id: str,
    kind: TaskKind,
    request: str,
    *,
    framework: str | None = None,
) -> str:
    """Write the task, and ring for a worker; its id. An export that waits or runs already is not asked for twice.

    `framework`: whose interpreter must run the user's code for it; None: no such code runs.

    Raises:
        TooManyTasks: as many of the project wait as may.
        NotFound: the job was deleted meanwhile.
    """
    task_id = new_id("tsk")
    deadline_s = services.limits.predict_deadline_s
    new = NewTask(task_id, principal.project_id, job_id, principal.user, kind, request, deadline_s, framework)
    try:
        with services.database.write() as session:
            if kind is TaskKind.EXPORT:
                # Who asks for the same at the same time waits here, and then finds it.
                hold_job(session, job_id)
                there = open_export(session, job_id, request)
                if there is not None:
                    return there
            submit(session, new, services.database.now(session), services.limits.max_queued_predictions)
    except IntegrityError as error:
        raise NotFound("job", job_id) from error
    services.bell.ring(CHANNEL_TASKS, kind.value)
    return task_id


def demand_worker(services: Services, framework: str | None = None) -> None:
    """Whether somebody is there to answer.

    Raises:
        NoWorkerOnline: no worker (that has the framework) is heard.
    """
    if any(_can(host, framework) for host in services.hosts.get()):
        return
    # What was seen may be a second old; a worker that has just come must not cost a refusal.
    services.hosts.forget()
    if not any(_can(host, framework) for host in services.hosts.get()):
        raise NoWorkerOnline("" if framework is None else f"with {framework}")


def _can(host: HostView, framework: str | None) -> bool:
    return host.online and (framework is None or framework in host.frameworks)


def later(task: ModelTask) -> dict[str, str]:
    """The headers of an answer that says: not yet."""
    return {"Location": f"/v1/predictions/{task.id}", "Retry-After": "1"}


def desk_of(state: Any) -> Desk:  # noqa: ANN401 - Starlette's State, which has no types
    desk = state.desk
    assert isinstance(desk, Desk)  # noqa: S101 - create_app put it there; this tells the type checker
    return desk
