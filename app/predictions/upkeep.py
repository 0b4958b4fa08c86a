"""What time does to tasks: deadlines pass, workers get lost, and what is over is forgotten."""

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.orm import Session

from app.db import Database
from app.fleet.models import Worker
from app.predictions.models import ModelTask
from app.predictions.states import OPEN, OVER, TaskState
from app.predictions.tasks import CLAIMS, changed, over, task_error, waits_again

KEEP: Final = timedelta(days=1)
"""How long an answer can be read after it was given."""
_AT_ONCE: Final = 500
_EXPIRED: Final = task_error(
    "task_expired", "Nobody answered before the deadline; ask again, or look at GET /v1/workers for why."
)
_LOST: Final = task_error("task_lost", "The worker that had it disappeared, and so did the one that tried again.")


def settle(database: Database, offline_after_s: float) -> int:
    """End what is past its deadline, and put back, once, what a lost worker had; answers how many tasks changed.

    Several processes may do it at the same time: every change is guarded by the state that it found.
    """
    with database.read() as session:
        overdue, lost = _to_settle(session, database.now(session), offline_after_s)
    if not overdue and not lost:
        return 0
    with database.write() as session:
        now = database.now(session)
        expired = {"error": _EXPIRED, **over(TaskState.EXPIRED, now)}
        done = changed(
            session, expired, ModelTask.id.in_(overdue), ModelTask.state.in_(OPEN), ModelTask.deadline <= now
        )
        still_lost = ModelTask.id.in_(lost) & _is_lost(now, offline_after_s)
        done += changed(session, waits_again(), still_lost, ModelTask.claim < CLAIMS)
        failed = {"error": _LOST, **over(TaskState.FAILED, now)}
        return done + changed(session, failed, still_lost, ModelTask.claim >= CLAIMS)


def forget(database: Database, now: datetime, at_once: int = _AT_ONCE) -> int:
    """Delete tasks that were over more than `KEEP` ago, in short transactions; answers how many."""
    old = (
        select(ModelTask.id)
        .where(ModelTask.state.in_(OVER), ModelTask.finished_at < now - KEEP)
        .order_by(ModelTask.id)
        .limit(at_once)
        .with_for_update(skip_locked=True)
    )
    forgotten = 0
    while True:
        with database.write() as session:
            statement = delete(ModelTask).where(ModelTask.id.in_(old)).returning(ModelTask.id)
            gone = session.execute(statement.execution_options(synchronize_session=False)).all()
        forgotten += len(gone)
        if len(gone) < at_once:
            return forgotten


def _to_settle(session: Session, now: datetime, offline_after_s: float) -> tuple[list[str], list[str]]:
    overdue = select(ModelTask.id).where(ModelTask.state.in_(OPEN), ModelTask.deadline <= now)
    lost = select(ModelTask.id).where(_is_lost(now, offline_after_s))
    return list(session.scalars(overdue.limit(_AT_ONCE))), list(session.scalars(lost.limit(_AT_ONCE)))


def _is_lost(now: datetime, offline_after_s: float) -> ColumnElement[bool]:
    """It runs, says its row, but the start of the worker that took it is not the one that is there and heard."""
    heard = now - timedelta(seconds=offline_after_s)
    holders = select(Worker.id).where(
        Worker.id == ModelTask.worker_id,
        Worker.instance == ModelTask.instance,
        Worker.state == "online",
        Worker.heartbeat_at >= heard,
    )
    return (ModelTask.state == TaskState.RUNNING) & ~holders.exists()
