"""`trainshed run -- python train.py`: this folder's code on devices of the server's, as if it ran here."""

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer

from app.cli.edge import edge_of
from app.cli.errors import OK
from app.cli.figures import harmless
from app.cli.options import AsJson, Key, Session, Url, session
from app.cli.quantities import size_bytes
from app.cli.run import arguments as asked
from app.cli.run.bringing import bring, choose_folder, folder_for
from app.cli.run.planning import Needs, Plan, make_plan, show_plan
from app.cli.run.sending import send_code, send_data
from app.cli.run.wanted import How, Labels, Place, body_of
from app.cli.watch import watch

commands = typer.Typer()

_HERE: Final = Path()
# Without `--` too: options of the command's own begin behind its first word.
_AS_TYPED: Final = {"allow_interspersed_args": False}


@dataclass(frozen=True)
class Afterwards:
    """What happens once the job is accepted; `output` None is a folder named after the job."""

    output: Path | None
    detach: bool
    cancel_on_interrupt: bool


@commands.command(context_settings=_AS_TYPED)
def run(
    context: typer.Context,
    command: asked.Command,
    folder: asked.Folder = _HERE,
    no_bundle: asked.NoBundle = False,
    max_size: asked.MaxSize = "1GiB",
    output: asked.Output = None,
    framework: asked.Framework = None,
    devices: asked.Devices = 1,
    device_type: asked.DeviceType = None,
    processes: asked.Processes = None,
    data: asked.Data = None,
    requirements: asked.Requirements = None,
    env: asked.Variables = None,
    network: asked.Network = False,
    success: asked.Success = None,
    monitor: asked.Monitor = None,
    seed: asked.Seed = None,
    name: asked.Name = None,
    tag: asked.Tags = None,
    timeout: asked.Timeout = None,
    retries: asked.Retries = None,
    changes: asked.Changes = None,
    detach: asked.Detach = False,
    cancel_on_interrupt: asked.CancelOnInterrupt = False,
    dry_run: asked.DryRun = False,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Run your script as a job: `trainshed run -- python train.py --lr 0.1`.

    The folder is packed without what its ignore files name, the job is followed, and its files are brought back.
    Exit code: 0 it succeeded, 1 it failed or was cancelled.
    """
    edge = edge_of(context)
    plan = make_plan(
        (None if no_bundle else folder, size_bytes(max_size)),
        How(tuple(command), processes, success, monitor, seed, network),
        Needs(framework, data or [], requirements, env or []),
        Labels(name, tuple(tag or ())),
        Place(devices, device_type, timeout, retries),
        changes or [],
        edge,
    )
    afterwards = Afterwards(choose_folder(output), detach, cancel_on_interrupt)
    if dry_run:
        show_plan(plan, edge, as_json=as_json)
        return
    with session(context, url, key, as_json=as_json) as at:
        raise typer.Exit(_perform(at, plan, afterwards))


def _perform(at: Session, plan: Plan, afterwards: Afterwards) -> int:
    """Send, submit, and follow; the exit code."""
    job = _submit(at, plan)
    if afterwards.detach:
        return OK
    code = _follow(at, job["id"], cancel=afterwards.cancel_on_interrupt)
    if code == OK:
        # Only a job that succeeded has files; its name is the one that the server gave it.
        folder = afterwards.output or folder_for(job)
        names = bring(at, job, folder)
        lines = [f"{folder / name}" for name in names]
        at.show({"job_id": job["id"], "output": str(folder) if names else None, "files": names}, *map(harmless, lines))
    return code


def _submit(at: Session, plan: Plan) -> dict[str, Any]:
    bundle, data = None, {}
    if plan.content is not None:
        found, sentence = send_code(at.client, plan.content, plan.bundle_name)
        bundle = str(found["id"])
        _tell(at, f"code {sentence}")
    for name, source in plan.data.items():
        data[name], sentence = send_data(at.client, source)
        _tell(at, f"data {name} {sentence}")
    if plan.why:
        _tell(at, f"framework {plan.why}")
    job: dict[str, Any] = at.client.post("/v1/jobs", body_of(plan.spec, bundle, data), key=str(uuid.uuid4()))
    at.show(job, f"{job['id']} {job['state']}")
    for warning in [] if at.as_json else job["warnings"]:
        at.edge.err.print(f"warning: {harmless(warning)}")
    return job


def _follow(at: Session, job_id: str, *, cancel: bool) -> int:
    try:
        return watch(at, job_id, with_log=True, goes_on=not cancel)
    except KeyboardInterrupt:
        if cancel:
            job = at.client.post(f"/v1/jobs/{job_id}/cancel")
            done = job["state"] == "cancelled"
            at.edge.err.print(f"{job_id} {'cancelled' if done else 'is asked to stop'}.")
        raise


def _tell(at: Session, sentence: str) -> None:
    """To whoever looks on; a program's output has only what it asked for."""
    at.edge.err.print(harmless(sentence))
