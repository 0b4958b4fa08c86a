"""Checks `initialize_from` before a job is accepted: that job and its checkpoint are there, and the weights fit."""

from collections.abc import Mapping
from typing import Final

import structlog

from app.accounts.service import Principal
from app.api.errors import StorageUnavailable
from app.api.services import Services
from app.checkpoints.headers import WEIGHTS_FILE, UnreadableHeader, tensor_shapes
from app.checkpoints.repository import CheckpointFacts, choose, steps_of
from app.errors import NotFound
from app.jobs.repository import get_job
from app.spec import (
    AnyEffective,
    EffectiveScriptSpec,
    EffectiveSpec,
    InvalidSpec,
    PythonModel,
    SpecProblem,
    TableSchema,
)
from app.spec.summary import model_of
from app.spec.weights import weight_shapes
from app.storage import MissingObject

log = structlog.get_logger("trainshed.api")

_SHOWN: Final = 3
Shapes = Mapping[str, tuple[int, ...]]


def check_initialization(
    services: Services, principal: Principal, spec: AnyEffective, table: TableSchema | None
) -> None:
    """Do nothing for a spec that starts from drawn weights, or is a script's, which has no `table` either.

    The shapes of a model that the user's code builds are known only when it runs: then the trainer compares them.

    Raises:
        InvalidSpec: names what is wrong, and what there is instead.
        StorageUnavailable: the checkpoint cannot be looked at now.
    """
    if isinstance(spec, EffectiveScriptSpec) or table is None or spec.initialize_from is None:
        return
    theirs = _shapes(services, _find(services, principal, spec))
    if isinstance(spec.model, PythonModel):
        return
    ours = weight_shapes(*model_of(spec, table))
    if ours != theirs:
        raise _refusal("", f"the weights of the two models differ: {_difference(ours, theirs)}.", None)


def _find(services: Services, principal: Principal, spec: EffectiveSpec) -> CheckpointFacts:
    source = spec.initialize_from
    assert source is not None  # noqa: S101 - the caller has looked; this tells the type checker
    with services.database.read() as session:
        try:
            kind = get_job(session, principal.project_id, source.job).kind
        except NotFound:
            raise _refusal("/job", f"there is no job '{source.job}' in this project.", None) from None
        if kind == "script":
            raise _refusal("/job", f"job {source.job} runs a script; its checkpoints are files of its own.", None)
        found = choose(session, source.job, source.checkpoint)
        if found is not None:
            return found
        steps = steps_of(session, source.job)
    if not steps:
        raise _refusal("/checkpoint", f"job {source.job} has no checkpoint (yet).", None)
    known = ", ".join(str(step) for step in steps)
    raise _refusal(
        "/checkpoint", f"job {source.job} has no checkpoint {source.checkpoint!r}; its newest: {known}.", "last"
    )


def _shapes(services: Services, checkpoint: CheckpointFacts) -> Shapes:
    """The shapes of the checkpoint's weights, from the head of their file."""
    try:
        with services.storage.open(f"{checkpoint.storage_prefix}/{WEIGHTS_FILE}") as file:
            return tensor_shapes(file)
    except (MissingObject, UnreadableHeader):
        raise _refusal("/checkpoint", f"the checkpoint of step {checkpoint.step} cannot be read.", "last") from None
    except OSError as error:
        log.exception("storage failed", job_id=checkpoint.job_id)
        raise StorageUnavailable from error


def _difference(ours: Shapes, theirs: Shapes) -> str:
    parts = [
        f"'{name}' is {list(ours[name])} here and {list(theirs[name])} there"
        for name in ours
        if name in theirs and ours[name] != theirs[name]
    ]
    parts += [f"'{name}' is only here" for name in ours if name not in theirs]
    parts += [f"'{name}' is only there" for name in theirs if name not in ours]
    more = len(parts) - _SHOWN
    return "; ".join(parts[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _refusal(where: str, sentence: str, suggestion: str | None) -> InvalidSpec:
    return InvalidSpec([SpecProblem(f"/initialize_from{where}", sentence[0].upper() + sentence[1:], suggestion)])
