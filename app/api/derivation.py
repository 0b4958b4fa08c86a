"""A new job made from another one: the same again from a checkpoint (retry), or its spec with changes (clone)."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from app.accounts.service import Principal
from app.api.bodies import decode, validated
from app.api.errors import InvalidRequest, RequestProblem
from app.api.services import Services
from app.jobs.lineage import left_by
from app.jobs.repository import JobRow, get_job
from app.jobs.states import JobState, StopRequest
from app.jobs.stops import BEING_CANCELLED, LEGAL, StateConflict
from app.jobs.submit import Parent

How = Literal["retry", "clone"]

# Where a string stands for an object with that name, and under which key the name is: a patch of such an object keeps
# the name.
_SUGAR: Final = {
    ("model",): "type",
    ("data",): "source",
    ("hyperparameters", "optimizer"): "name",
    ("hyperparameters", "schedule"): "name",
}
_FROM_START: Final = "This job left no checkpoint, so the new one starts from the beginning."


class RetryRequest(BaseModel):
    """From where the new job goes on; without a body from the last checkpoint."""

    model_config = ConfigDict(extra="forbid", strict=True)

    start: Annotated[
        Literal["last", "best", "start"],
        Field(alias="from", description="The last or best checkpoint, or the start.", examples=["last"]),
    ] = "last"


class CloneRequest(BaseModel):
    """What is to be different in the new job's spec; without a body nothing is."""

    model_config = ConfigDict(extra="forbid", strict=True)

    spec: Annotated[
        dict[str, Any],
        Field(
            description="A JSON merge patch (RFC 7396) of the spec: members replace, null removes.",
            examples=[{"hyperparameters": {"learning_rate": 0.01}}],
        ),
    ] = {}


@dataclass(frozen=True)
class Origin:
    """The job that a new one is to be made from."""

    job_id: str
    how: How


@dataclass(frozen=True)
class Derived:
    """The spec to submit: `raw` as it will be shown, `content` as it is checked."""

    raw: bytes
    content: object
    parent: Parent | None = None
    warnings: list[str] = field(default_factory=list)


def read_request(raw: bytes) -> object:
    """The body of a retry or clone, decoded; an empty one is an empty object.

    Raises:
        MalformedJson: it is not JSON.
    """
    return decode(raw) if raw.strip() else {}


def derive(services: Services, principal: Principal, origin: Origin, content: object) -> Derived:
    """The spec that the request means.

    Raises:
        NotFound: no such job in this project.
        StateConflict: the job has not failed and was not cancelled, so there is nothing to retry.
        InvalidRequest: the body is not one of a retry or clone, or asks for a checkpoint that there is not.
    """
    with services.database.read() as session:
        job = get_job(session, principal.project_id, origin.job_id)
        if origin.how == "clone":
            return _clone(job, validated(content, CloneRequest).spec)
        start = validated(content, RetryRequest).start
        state = JobState(job.state)
        if "retry" not in LEGAL[state]:
            being_cancelled = not state.is_final and job.stop_requested == StopRequest.CANCEL.value
            raise StateConflict(job.id, state, "retry", BEING_CANCELLED if being_cancelled else None)
        found = None if start == "start" else left_by(session, job.id, start)
    if start == "best" and found is None:
        problem = "names a checkpoint that this job does not have: it never measured which one is the best."
        raise InvalidRequest([RequestProblem("/from", problem, "last")])
    parent = Parent(job.id, "retry", None if found is None else found.step)
    warnings = [_FROM_START] if start == "last" and found is None else []
    # What was resolved then stays resolved, so that the checkpoint fits: `auto` could mean something else today.
    return Derived(job.spec.encode(), orjson.loads(job.effective_spec), parent, warnings)


def merge_patch(target: object, patch: object, at: tuple[str, ...] = ()) -> object:
    """Apply a JSON merge patch (RFC 7396); a name that stands for an object becomes that object first."""
    if not isinstance(patch, dict):
        return patch
    if isinstance(target, str) and at in _SUGAR:
        target = {_SUGAR[at]: target}
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value, (*at, name))
    return merged


def _clone(job: JobRow, patch: dict[str, Any]) -> Derived:
    raw = job.spec.encode()
    parent = Parent(job.id, "clone")
    content = orjson.loads(raw)
    if not patch:
        return Derived(raw, content, parent)
    merged = merge_patch(content, patch)
    return Derived(orjson.dumps(merged), merged, parent)
