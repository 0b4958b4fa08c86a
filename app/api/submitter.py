"""Accepts jobs in groups: those that wait while one group is written make up the next, and share its commit.

A commit waits for the disk, and threads that write by turns mostly wait for each other: with eight clients on SQLite
this was measured to give twice the jobs per second of one transaction each. A job is still written whole or not at all.
"""

import asyncio
from collections.abc import Sequence
from contextvars import Context
from typing import Final

import structlog
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from sqlalchemy.exc import IntegrityError

from app.api.services import Services
from app.api.submission import Created, Order, created, prepare, replay
from app.broker import CHANNEL_WANTED
from app.errors import TrainshedError, Unavailable
from app.jobs.submit import Submission, SubmitResult, submit_all

_LARGEST_GROUP: Final = 32
log = structlog.get_logger("trainshed.api")

Outcome = Created | Exception
Waiting = tuple[Order, "asyncio.Future[Created]"]


class Submitter:
    """Belongs to the event loop's thread; the work itself is done in one other."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._waiting: list[Waiting] = []
        self._writer: asyncio.Task[None] | None = None
        self._limiter = CapacityLimiter(1)

    async def create(self, order: Order) -> Created:
        """Accept the job; returns after its commit.

        Raises:
            TrainshedError: why it was not accepted; nothing of it was kept.
        """
        answer: asyncio.Future[Created] = asyncio.get_running_loop().create_future()
        self._waiting.append((order, answer))
        if self._writer is None:
            # A context of its own: it works for others too, and must not log under this request's id.
            self._writer = asyncio.create_task(self._write_all(), name="submitter", context=Context())
        accepted = await answer
        log.info("job_submitted", job_id=accepted.job_id, replayed=accepted.replayed, owner=order.principal.user)
        return accepted

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:_LARGEST_GROUP], self._waiting[_LARGEST_GROUP:]
                await self._write(group)
        finally:
            self._writer = None

    async def _write(self, group: Sequence[Waiting]) -> None:
        orders = [order for order, _ in group]
        try:
            outcomes: list[Outcome] = await run_sync(accept, self._services, orders, limiter=self._limiter)
        except Exception as error:  # noqa: BLE001 - each of the group is told, and answers for itself
            outcomes = [error] * len(group)
        for (_, answer), outcome in zip(group, outcomes, strict=True):
            if answer.done():  # its client has left
                continue
            if isinstance(outcome, Exception):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)


def accept(services: Services, orders: Sequence[Order]) -> list[Outcome]:
    """What becomes of each order: checked one by one, written in one transaction."""
    prepared = [_prepare(services, order) for order in orders]
    ready = [(order, found) for order, found in zip(orders, prepared, strict=True) if isinstance(found, Submission)]
    written = iter(_write_together(services, ready))
    outcomes = [next(written) if isinstance(found, Submission) else found for found in prepared]
    if ready:
        services.bell.ring(CHANNEL_WANTED)
    return outcomes


def _prepare(services: Services, order: Order) -> Submission | Outcome:
    try:
        return prepare(services, order)
    except Exception as error:  # noqa: BLE001 - one bad order must not take the others with it
        return error


def _write_together(services: Services, ready: Sequence[tuple[Order, Submission]]) -> list[Outcome]:
    if not ready:
        return []
    try:
        with services.database.write() as session:
            results = submit_all(session, [submission for _, submission in ready])
    except IntegrityError:
        return [_write_alone(services, order, submission) for order, submission in ready]
    return [_outcome(services, *pair, result) for pair, result in zip(ready, results, strict=True)]


def _write_alone(services: Services, order: Order, submission: Submission) -> Outcome:
    """Its group failed: two requests with one key met, or a data set was deleted between the check and the insert."""
    for _ in range(2):
        try:
            with services.database.write() as session:
                (result,) = submit_all(session, [submission])
            return _outcome(services, order, submission, result)
        except IntegrityError:
            services.schemas.clear()
        again = _prepare(services, order)
        if not isinstance(again, Submission):
            return again
        submission = again
    return Unavailable("The job met another request that changes the same things; send it again.")


def _outcome(
    services: Services, order: Order, submission: Submission, result: SubmitResult | TrainshedError
) -> Outcome:
    if isinstance(result, TrainshedError):
        return result
    if result.replayed:
        return replay(services, order.principal, result.job_id)
    return created(result.job_id, submission)
