"""Stop requests, and the way back: accepted beside the state, carried out by whoever runs the attempt."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.errors import Conflict, NotFound
from app.jobs import journal
from app.jobs.endings import Ending, end_attempt
from app.jobs.lifecycle import lock_job, move
from app.jobs.models import Attempt, Job
from app.jobs.states import JobState, StopRequest

_NOT_OVER: Final = ("pause", "cancel", "clone")
LEGAL: Final[dict[JobState, tuple[str, ...]]] = {
    JobState.QUEUED: _NOT_OVER,
    JobState.STARTING: _NOT_OVER,
    JobState.RUNNING: _NOT_OVER,
    JobState.PAUSED: ("resume", "cancel", "clone"),
    JobState.SUCCEEDED: ("clone",),
    JobState.FAILED: ("retry", "clone"),
    JobState.CANCELLED: ("retry", "clone"),
}
"""What a job of each state can be asked for; asking again for what it does or is already is harmless too."""
BEING_CANCELLED: Final = ("cancel", "clone")


class StateConflict(Conflict):
    """The job's state does not allow what was asked; carries the state and what would be legal."""

    code = "state_conflict"

    def __init__(self, job_id: str, state: JobState, asked: str, legal: Sequence[str] | None = None) -> None:
        self.job_id = job_id
        self.state = state
        self.legal = list(LEGAL[state] if legal is None else legal)
        if state.is_final:
            sentence = f"Job {job_id} has already ended ({state.value}); there is nothing to {asked}."
        elif self.legal == list(BEING_CANCELLED):
            sentence = f"Job {job_id} is {state.value} and being cancelled; it cannot be asked to {asked}."
        else:
            sentence = f"Job {job_id} is {state.value} and cannot be asked to {asked}."
        super().__init__(f"{sentence} Legal now: {', '.join(self.legal)}." if self.legal else sentence)


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
    job = _locked(session, project_id, job_id)
    state = JobState(job.state)
    if state in (JobState.SUCCEEDED, JobState.FAILED):
        raise StateConflict(job_id, state, "cancel")
    if state in (JobState.QUEUED, JobState.PAUSED):
        fields = {"stop_requested": StopRequest.CANCEL.value}
        move(session, job_id, JobState.CANCELLED, attempt=job.attempt, now=now, fields=fields)
    elif state.is_active:
        _stop_attempt(session, job, StopRequest.CANCEL, now)
    return _outcome(session, job, JobState.CANCELLED)


def request_pause(session: Session, project_id: str, job_id: str, now: datetime) -> StopOutcome:
    """Pause a job. Waiting: at once. Active: it writes a checkpoint at its next safe point and gives its devices back.

    A job that succeeds before it gets there stays succeeded.

    Raises:
        NotFound: no such job in this project.
        StateConflict: it has ended, or its cancel was accepted already.
    """
    job = _locked(session, project_id, job_id)
    _refuse_if_over(job, "pause")
    state = JobState(job.state)
    if state is JobState.QUEUED:
        move(session, job_id, JobState.PAUSED, attempt=job.attempt, now=now)
    elif state.is_active:
        _stop_attempt(session, job, StopRequest.PAUSE, now)
    return _outcome(session, job, JobState.PAUSED)


def request_resume(session: Session, project_id: str, job_id: str, now: datetime) -> StopOutcome:
    """Let a paused job go on, at its old place in the queue; `done` when there was nothing to do.

    A pause that was not carried out yet is taken back: the job goes on, by way of the queue if it had begun to stop.

    Raises:
        NotFound: no such job in this project.
        StateConflict: it has ended, or its cancel was accepted already.
    """
    job = _locked(session, project_id, job_id)
    _refuse_if_over(job, "resume")
    is_paused = JobState(job.state) is JobState.PAUSED
    is_pausing = job.stop_requested == StopRequest.PAUSE.value
    if is_paused:
        move(session, job_id, JobState.QUEUED, attempt=job.attempt, now=now)
    elif is_pausing:
        _set_request(session, job, None)
        _say(session, job, "stop_withdrawn", "The pause was taken back; the job goes on.", now)
    return _outcome(session, job, None if is_paused or is_pausing else JobState(job.state))


def _locked(session: Session, project_id: str, job_id: str) -> Job:
    job = lock_job(session, job_id)
    if job is None or job.project_id != project_id:
        raise NotFound("job", job_id)
    return job


def _refuse_if_over(job: Job, asked: str) -> None:
    state = JobState(job.state)
    if state.is_final:
        raise StateConflict(job.id, state, asked)
    if job.stop_requested == StopRequest.CANCEL.value:
        raise StateConflict(job.id, state, asked, BEING_CANCELLED)


def _outcome(session: Session, job: Job, wanted: JobState | None) -> StopOutcome:
    session.expire(job)
    session.refresh(job)
    return StopOutcome(job=job, done=wanted is not None and JobState(job.state) is wanted)


def _stop_attempt(session: Session, job: Job, request: StopRequest, now: datetime) -> None:
    """Keep the request for whoever runs the attempt; a placement that nobody has taken yet ends here and now."""
    job_id, attempt = job.id, job.attempt
    present = StopRequest(job.stop_requested) if job.stop_requested else None
    if present is None or present.strength < request.strength:
        _set_request(session, job, request)
        message = f"{request.value} was asked for; the job stops at its next safe point."
        _say(session, job, "stop_requested", message, now)
        # The worker is to be told at once, however shortly ago it was told something else.
        session.execute(
            update(Attempt)
            .where(Attempt.job_id == job_id, Attempt.number == attempt)
            .values(hinted_at=None)
            .execution_options(synchronize_session=False)
        )
    if JobState(job.state) is JobState.STARTING and _is_unclaimed(session, job_id, attempt):
        end_attempt(session, job_id, attempt, Ending(succeeded=False), now)


def _set_request(session: Session, job: Job, request: StopRequest | None) -> None:
    session.execute(
        update(Job)
        .where(Job.id == job.id)
        .values(stop_requested=None if request is None else request.value)
        .execution_options(synchronize_session=False)
    )


def _say(session: Session, job: Job, code: str, message: str, now: datetime) -> None:
    journal.append(session, job.id, job.attempt, [journal.Entry("notice", {"code": code, "message": message})], now)


def _is_unclaimed(session: Session, job_id: str, attempt: int) -> bool:
    claimed = session.execute(
        select(Attempt.claimed_at).where(Attempt.job_id == job_id, Attempt.number == attempt)
    ).scalar()
    return claimed is None
