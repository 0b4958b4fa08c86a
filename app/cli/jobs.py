"""Commands about jobs: submit, ls, show, logs, cancel."""

import uuid
from typing import Annotated

import typer

from app.cli.edge import edge_of
from app.cli.figures import harmless
from app.cli.follow import Patience, follow_journal
from app.cli.identity import resolve_job
from app.cli.options import AsJson, JobName, Key, Session, Url, session
from app.cli.specfile import read_spec
from app.cli.tables import attempts_table, job_pairs, jobs_table, metrics_table
from app.cli.watch import watch

commands = typer.Typer()


@commands.command()
def submit(
    context: typer.Context,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The spec as JSON, comments allowed; - reads standard input.")
    ],
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Change the spec; may be repeated.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Then follow the job to its end.")] = False,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Submit a job: `trainshed submit job.json --set hyperparameters.epochs=5`."""
    body = read_spec(file, changes or [], edge_of(context))
    with session(context, url, key, as_json=as_json) as at:
        job = at.client.post("/v1/jobs", body, key=str(uuid.uuid4()))
        at.show(job, f"{job['id']} {job['state']}")
        for warning in [] if as_json else job["warnings"]:
            at.edge.err.print(f"warning: {harmless(warning)}")
        if follow:
            raise typer.Exit(watch(at, job["id"]))


@commands.command("ls")
def list_jobs(
    context: typer.Context,
    state: Annotated[list[str] | None, typer.Option(help="Only in this state; may be repeated.")] = None,
    framework: Annotated[str | None, typer.Option(help="torch or tensorflow.")] = None,
    tag: Annotated[str | None, typer.Option(metavar="KEY:VALUE")] = None,
    name: Annotated[str | None, typer.Option(help="A part of the name.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most, the newest first.")] = 20,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, the newest first."""
    filters = {"state": state or None, "framework": framework, "tag": tag, "q": name}
    with session(context, url, key, as_json=as_json) as at:
        page = at.client.pages("/v1/jobs", limit, filters)
        more = "There are more: --limit shows them." if page["has_more"] else None
        at.show(page, jobs_table(page["data"]) if page["data"] else "No jobs.", more)


@commands.command()
def show(context: typer.Context, job: JobName, url: Url = None, key: Key = None, as_json: AsJson = False) -> None:
    """Show one job: state, why it waits, metrics, attempts."""
    with session(context, url, key, as_json=as_json) as at:
        content = at.client.get(f"/v1/jobs/{resolve_job(at.client, job)}")
        attempts = attempts_table(content["attempts"]) if content.get("attempts") else None
        at.show(content, job_pairs(content), metrics_table(content), attempts)


@commands.command()
def follow(context: typer.Context, job: JobName, url: Url = None, key: Key = None, as_json: AsJson = False) -> None:
    """Follow a job to its end. Exit code: 0 it succeeded, 1 it failed or was cancelled."""
    with session(context, url, key, as_json=as_json) as at:
        raise typer.Exit(watch(at, resolve_job(at.client, job)))


@commands.command()
def logs(
    context: typer.Context,
    job: JobName,
    tail: Annotated[int | None, typer.Option(min=1, max=100_000, metavar="N", help="Only the last N lines.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the job has ended.")] = False,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Print what the trainer wrote."""
    with session(context, url, key, as_json=as_json) as at:
        job_id = resolve_job(at.client, job)
        if not follow:
            lines = at.client.get_text(f"/v1/jobs/{job_id}/logs", {"tail": tail}).splitlines()
            _print_lines(at, lines) if not as_json else at.line({"job_id": job_id, "lines": lines})
        elif tail is None:
            _follow_whole_log(at, job_id)
        else:
            _follow_end_of_log(at, job_id, tail)


@commands.command()
def cancel(context: typer.Context, job: JobName, url: Url = None, key: Key = None, as_json: AsJson = False) -> None:
    """Cancel a job. One that runs stops at its next safe point."""
    with session(context, url, key, as_json=as_json) as at:
        content = at.client.post(f"/v1/jobs/{resolve_job(at.client, job)}/cancel")
        done = content["state"] == "cancelled"
        at.show(content, f"{content['id']} {content['state']}{'' if done else ', stops at its next safe point'}")


def _print_lines(at: Session, lines: list[str]) -> None:
    """To a terminal without control characters; to a file or a pipe as they are."""
    terminal = at.edge.out.is_terminal
    at.edge.out.file.writelines(f"{harmless(line) if terminal else line}\n" for line in lines)
    at.edge.out.file.flush()


def _follow_whole_log(at: Session, job_id: str) -> None:
    """From the journal, which can go on after a lost connection without a gap."""
    for entry in follow_journal(at.client, job_id, Patience(at.edge.pause)):
        if entry["kind"] == "log":
            _emit(at, entry["lines"])


def _follow_end_of_log(at: Session, job_id: str, tail: int) -> None:
    parameters = {"tail": tail, "follow": "true"}
    with at.client.stream(f"/v1/jobs/{job_id}/logs", parameters) as answer:
        for line in answer.iter_lines():
            _emit(at, [line])


def _emit(at: Session, lines: list[str]) -> None:
    if at.as_json:
        for line in lines:
            at.line({"line": line})
    else:
        _print_lines(at, lines)
