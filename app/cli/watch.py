"""Following one job on behalf of a command: the display, why it waits, and what came out."""

import threading
from types import TracebackType
from typing import Any, Final, Self

from app.cli.display import Display, open_display
from app.cli.errors import NOT_SUCCEEDED, OK, CliError
from app.cli.figures import harmless
from app.cli.follow import JournalEntry, Patience, follow_journal
from app.cli.options import Session
from app.cli.tables import artifacts_table, job_pairs, metrics_table
from app.cli.view import JobView

_ASK_S: Final = 1.5
_LAST_ANSWER_S: Final = 5.0
_LAST_LINES: Final = 15


def watch(at: Session, job_id: str, *, with_log: bool = False, goes_on: bool = True) -> int:
    """Show the job until it ends; the exit code of the command.

    `with_log` shows the lines of its log as they come. `goes_on` False: whoever interrupts is not told that the job
    goes on, since the caller ends it.
    """
    if at.as_json:
        return _watch_for_program(at, job_id)
    return _watch_for_person(at, job_id, with_log=with_log, goes_on=goes_on)


def _watch_for_program(at: Session, job_id: str) -> int:
    """One line per journal entry, then the job itself as the last line."""
    for entry in follow_journal(at.client, job_id, Patience(at.edge.pause)):
        at.line(entry)
    job = at.client.get(f"/v1/jobs/{job_id}")
    at.line(job)
    return _code(job)


def _watch_for_person(at: Session, job_id: str, *, with_log: bool, goes_on: bool) -> int:
    view = JobView()
    try:
        with open_display(at.edge.out) as display, WhyWaiting(at, job_id, display) as why:
            patience = Patience(at.edge.pause, lambda reason: display.note(f"connecting again: {reason}"))
            for entry in follow_journal(at.client, job_id, patience):
                view.apply(entry)
                display.entry(entry, view)
                why.entry(entry)
                if with_log and entry.get("kind") == "log":
                    display.log(entry["lines"])
    except KeyboardInterrupt:
        if goes_on:
            at.edge.err.print(f"The job goes on. trainshed follow {job_id} shows it again, trainshed cancel ends it.")
        raise
    return _conclude(at, job_id, log_seen=with_log)


def _conclude(at: Session, job_id: str, *, log_seen: bool) -> int:
    """Print what came out of the job, and for one that failed the end of its log, unless that was shown."""
    job = at.client.get(f"/v1/jobs/{job_id}")
    artifacts = at.client.get(f"/v1/jobs/{job_id}/artifacts")["data"]
    found = artifacts_table(artifacts) if artifacts else None
    at.show(job, job_pairs(job), metrics_table(job), found)
    if job["state"] == "failed" and not log_seen:
        lines = at.client.get_text(f"/v1/jobs/{job_id}/logs", {"tail": _LAST_LINES}).splitlines()
        for line in lines:
            at.edge.out.print(f"  | {harmless(line)}")
    return _code(job)


def _code(job: dict[str, Any]) -> int:
    return OK if job["state"] == "succeeded" else NOT_SUCCEEDED


class WhyWaiting:
    """While the job is queued, asks now and then why, and notes each new reason on the display.

    From a thread, since the stream says nothing while nothing happens. A job that starts at once is never asked about.
    """

    def __init__(self, at: Session, job_id: str, display: Display, interval_s: float = _ASK_S) -> None:
        self._client = at.client
        self._path = f"/v1/jobs/{job_id}"
        self._display = display
        self._interval_s = interval_s
        self._enough = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join(_LAST_ANSWER_S)

    def entry(self, entry: JournalEntry) -> None:
        if entry["kind"] != "state":
            return
        self._enough.set()
        if entry["state"] == "queued":
            self._enough = threading.Event()
            thread = threading.Thread(target=self._ask, args=(self._enough,), name="why-waiting", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _ask(self, enough: threading.Event) -> None:
        said = ""
        while not enough.wait(self._interval_s):
            try:
                reason = (self._client.get(self._path).get("waiting") or {}).get("message", "")
            except (CliError, RuntimeError):  # away for now; or the client was closed since
                continue
            if reason not in ("", said) and not enough.is_set():
                said = reason
                self._display.note(f"queued: {harmless(reason)}")
