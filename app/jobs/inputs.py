"""What a job needs besides its row: bundles and data sets that must stay until it is over."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from app.bundles.models import Bundle
from app.datasets.models import Dataset
from app.ids import is_id
from app.jobs.models import Job, JobInput
from app.jobs.states import FINAL
from app.spec import InvalidSpec, SpecProblem

_OVER: Final = [state.value for state in FINAL]


@dataclass(frozen=True)
class Needed:
    """A bundle or data set, and where the spec names it."""

    resource_id: str
    pointer: str


def hold_inputs(session: Session, project_id: str, needed: Sequence[Needed]) -> None:
    """Keep what a job needs from being deleted until the transaction ends, by locks in the order of the ids.

    Raises:
        InvalidSpec: one of them is not there, or not there any more.
    """
    for one in sorted(needed, key=lambda one: one.resource_id):
        table = Bundle if is_id("bun", one.resource_id) else Dataset
        wanted = select(table.id).where(table.id == one.resource_id, table.project_id == project_id)
        if session.execute(wanted.with_for_update(read=True)).scalar() is None:
            kind = "bundle" if table is Bundle else "data set"
            sentence = f"There is no {kind} '{one.resource_id}' in this project (any more)."
            raise InvalidSpec([SpecProblem(one.pointer, sentence)])


def holders_of(session: Session, resource_id: str) -> list[str]:
    """The jobs that need a bundle or data set still. Those that are over let go of it here: their rows refer to it."""
    session.execute(
        update(Job)
        .where(Job.dataset_id == resource_id, Job.state.in_(_OVER))
        .values(dataset_id=None)
        .execution_options(synchronize_session=False)
    )
    named = select(JobInput.job_id).where(JobInput.resource_id == resource_id)
    needing = select(Job.id).where(
        or_(Job.dataset_id == resource_id, Job.id.in_(named) & Job.state.not_in(_OVER)),
    )
    return list(session.scalars(needing.order_by(Job.id)))
