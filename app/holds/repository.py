"""Reading holds."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.errors import NotFound
from app.holds.models import Hold


@dataclass(frozen=True)
class Holder:
    """Whose a held device is, and until when."""

    hold_id: str
    project_id: str
    owner: str
    until: datetime


@dataclass(frozen=True)
class HeldDevices:
    """An open hold as the worker of its host sees it; `cards` are its real cards, which alone can be measured."""

    hold_id: str
    cards: tuple[str, ...]
    stop_when_idle_s: float | None


def holders(session: Session) -> dict[str, Holder]:
    """Everybody who holds devices now, by the hold's id."""
    query = select(Hold.id, Hold.project_id, Hold.owner, Hold.until).where(Hold.ended_at.is_(None))
    return {row.id: Holder(row.id, row.project_id, row.owner, row.until) for row in session.execute(query)}


def held_devices(session: Session, worker_id: str) -> list[HeldDevices]:
    """The open holds of one host, oldest first."""
    query = select(Hold).where(Hold.ended_at.is_(None), Hold.worker_id == worker_id).order_by(Hold.id)
    return [
        HeldDevices(
            row.id,
            tuple(str(device["id"]) for device in row.devices if device["kind"] == "cuda"),
            row.stop_when_idle_s,
        )
        for row in session.execute(query).scalars()
    ]


def get_hold(session: Session, project_id: str | None, hold_id: str) -> Hold:
    """One hold of a project; None as the project: of any.

    Raises:
        NotFound: there is none with this id, or it is another project's.
    """
    hold = session.get(Hold, hold_id)
    if hold is None or project_id not in (None, hold.project_id):
        raise NotFound("hold", hold_id)
    return hold


def list_holds(
    session: Session,
    project_id: str | None,
    *,
    is_open: bool | None = None,
    after: str | None = None,
    limit: int = 50,
    descending: bool = True,
) -> list[Hold]:
    """A page of holds by id, which is by time; None as the project: of all."""
    query = select(Hold)
    if project_id is not None:
        query = query.where(Hold.project_id == project_id)
    if is_open is not None:
        query = query.where(Hold.ended_at.is_(None) if is_open else Hold.ended_at.is_not(None))
    if after is not None:
        query = query.where(Hold.id < after if descending else Hold.id > after)
    query = query.order_by(Hold.id.desc() if descending else Hold.id.asc()).limit(limit)
    return list(session.execute(query).scalars())


def told(session: Session, project_id: str) -> dict[str, str]:
    """By hold id, what a reader of this project is told of who has it: `ana until 2030-01-31 18:00 UTC`."""
    return {
        hold.hold_id: f"{hold.owner} until {hold.until:%Y-%m-%d %H:%M} UTC"
        for hold in holders(session).values()
        if hold.project_id == project_id
    }
