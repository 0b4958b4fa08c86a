"""Commands that steer a job or make another one from it: pause, resume, retry, clone, checkpoints."""

import json
import uuid
from typing import Annotated, Any

import typer

from app.cli.errors import UsageProblem
from app.cli.figures import harmless
from app.cli.identity import resolve_job
from app.cli.options import AsJson, JobName, Key, Session, Url, session
from app.cli.tables import checkpoints_table
from app.cli.values import with_changes
from app.cli.watch import watch

commands = typer.Typer()

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Then follow the new job to its end.")]


@commands.command()
def pause(context: typer.Context, job: JobName, url: Url = None, key: Key = None, as_json: AsJson = False) -> None:
    """Pause a job: it writes a checkpoint at its next safe point and gives its devices back."""
    with session(context, url, key, as_json=as_json) as at:
        content = at.client.post(f"/v1/jobs/{resolve_job(at.client, job)}/pause")
        done = content["state"] == "paused"
        at.show(content, f"{content['id']} {content['state']}{'' if done else ', pauses at its next safe point'}")


@commands.command()
def resume(context: typer.Context, job: JobName, url: Url = None, key: Key = None, as_json: AsJson = False) -> None:
    """Let a paused job go on from its checkpoint, at its old place in the queue."""
    with session(context, url, key, as_json=as_json) as at:
        content = at.client.post(f"/v1/jobs/{resolve_job(at.client, job)}/resume")
        at.show(content, f"{content['id']} {content['state']}")


@commands.command()
def retry(
    context: typer.Context,
    job: JobName,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="WHERE", help="last (the default), best, or start: which checkpoint to go on from."
        ),
    ] = None,
    follow: Follow = False,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Make a new job that goes on where a failed or cancelled one ended."""
    with session(context, url, key, as_json=as_json) as at:
        _make(at, resolve_job(at.client, job), "retry", {} if start is None else {"from": start}, follow=follow)


@commands.command()
def clone(
    context: typer.Context,
    job: JobName,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Change the spec; may be repeated.")
    ] = None,
    follow: Follow = False,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Make a new job with the spec of another, changed or not: `trainshed clone latest --set framework=tensorflow`."""
    with session(context, url, key, as_json=as_json) as at:
        patch = with_changes({}, changes) if changes else {}
        _make(at, resolve_job(at.client, job), "clone", {"spec": patch} if patch else {}, follow=follow)


@commands.command()
def checkpoints(
    context: typer.Context, job: JobName, url: Url = None, key: Key = None, as_json: AsJson = False
) -> None:
    """List the checkpoints of a job, the newest first."""
    with session(context, url, key, as_json=as_json) as at:
        page = at.client.get(f"/v1/jobs/{resolve_job(at.client, job)}/checkpoints")
        at.show(page, checkpoints_table(page["data"]) if page["data"] else "This job has no checkpoints.")


@commands.command()
def rm(
    context: typer.Context,
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids or names, or `latest`.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Delete jobs that are over, with their history, checkpoints and files, for good."""
    with session(context, url, key, as_json=as_json) as at:
        found = list(dict.fromkeys(resolve_job(at.client, job) for job in jobs))
        if not yes and not _agreed(at, f"Delete {', '.join(found)} for good? [y/N] "):
            raise UsageProblem("Nothing was deleted. Answer y, or say --yes.")
        for job_id in found:
            at.client.delete(f"/v1/jobs/{job_id}")
        at.show({"deleted": found}, *(f"{job_id} deleted" for job_id in found))


def _agreed(at: Session, question: str) -> bool:
    """Ask at the terminal; where there is none, the answer is no."""
    if not at.edge.stdin.isatty():
        return False
    at.edge.err.print(question, end="")
    return at.edge.stdin.readline().strip().lower() in ("y", "yes")


def _make(at: Session, job_id: str, how: str, body: dict[str, Any], *, follow: bool) -> None:
    job = at.client.post(f"/v1/jobs/{job_id}/{how}", json.dumps(body).encode() if body else b"", key=str(uuid.uuid4()))
    at.show(job, f"{job['id']} {job['state']}")
    for warning in [] if at.as_json else job["warnings"]:
        at.edge.err.print(f"warning: {harmless(warning)}")
    if follow:
        raise typer.Exit(watch(at, job["id"]))
