"""Stop requests: accepted beside the state, carried out by whoever runs the attempt."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.errors import Conflict, NotFound
from app.jobs import journal
from app.jobs.endings import Ending, end_attempt
from app.jobs.lifecycle import lock_job, move
from app.jobs.models import Attempt, Job
from app.jobs.states import JobState, StopRequest


class StateConflict(Conflict):
    """The job's state does not allow what was asked; carries the state and what would be legal."""

    code = "state_conflict"

    def __init__(self, job_id: str, state: JobState, asked: str, legal: list[str]) -> None:
        if legal:
            sentence = f"Job {job_id} is {state.value} and cannot be asked to {asked}. Legal now: {', '.join(legal)}."
        else:
            sentence = f"Job {job_id} has already ended ({state.value}); there is nothing to {asked}."
        super().__init__(sentence)
        self.job_id = job_id
        self.state = state
        self.legal = legal


@dataclass(frozen=True)
class StopOutcome:
    """The job after the request; `done` when it is in its end state already, else the stop is under way."""

    job: Job
    done: bool


def request_cancel(session: Session, project_id: str, job_id: str, now: datetime) -> StopOutcome:
    """Cancel a job. Waiting: at once. Active: the request is kept, and the job is certain to end `cancelled`.

    Raises:
        NotFound: no such job in this project.
        StateConflict: it has succeeded or failed already.
    """
    job = lock_job(session, job_id)
    if job is None or job.project_id != project_id:
        raise NotFound("job", job_id)
    state = JobState(job.state)
    if state in (JobState.SUCCEEDED, JobState.FAILED):
        raise StateConflict(job_id, state, "cancel", [])
    if state in (JobState.QUEUED, JobState.PAUSED):
        fields = {"stop_requested": StopRequest.CANCEL.value}
        move(session, job_id, JobState.CANCELLED, attempt=job.attempt, now=now, fields=fields)
    elif state.is_active:
        _request(session, job, StopRequest.CANCEL, now)
        if state is JobState.STARTING and _is_unclaimed(session, job):
            end_attempt(session, job_id, job.attempt, Ending(succeeded=False), now)
    session.expire(job)
    session.refresh(job)
    return StopOutcome(job=job, done=JobState(job.state) is JobState.CANCELLED)


def _request(session: Session, job: Job, request: StopRequest, now: datetime) -> None:
    present = StopRequest(job.stop_requested) if job.stop_requested else None
    if present is not None and present.strength >= request.strength:
        return
    session.execute(
        update(Job)
        .where(Job.id == job.id)
        .values(stop_requested=request.value)
        .execution_options(synchronize_session=False)
    )
    job_id, attempt = job.id, job.attempt
    message = f"{request.value} was asked for; the job stops at its next safe point."
    journal.append(
        session, job_id, attempt, [journal.Entry("notice", {"code": "stop_requested", "message": message})], now
    )
    # The worker is to be told at once, however shortly ago it was told something else.
    session.execute(
        update(Attempt)
        .where(Attempt.job_id == job_id, Attempt.number == attempt)
        .values(hinted_at=None)
        .execution_options(synchronize_session=False)
    )
    session.expire(job)
    session.refresh(job)


def _is_unclaimed(session: Session, job: Job) -> bool:
    claimed = session.execute(
        select(Attempt.claimed_at).where(Attempt.job_id == job.id, Attempt.number == job.attempt)
    ).scalar()
    return claimed is None
