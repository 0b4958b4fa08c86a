"""Commands about the hosts: devices, workers, and taking either out of service."""

import json
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from app.cli.errors import UsageProblem
from app.cli.figures import harmless
from app.cli.fleet_tables import devices_table, workers_table
from app.cli.options import AsJson, Key, Session, Url, session

commands = typer.Typer()

WorkerName = Annotated[str, typer.Argument(metavar="WORKER", help="A host's name, or its worker's id.")]
DeviceName = Annotated[str, typer.Argument(metavar="DEVICE", help="A device's id, or a part that only one has.")]
_LOOK_S: Final = 1.0


@commands.command()
def devices(context: typer.Context, url: Url = None, key: Key = None, as_json: AsJson = False) -> None:
    """List devices: what they are, whether they are free, and who has them."""
    with session(context, url, key, as_json=as_json) as at:
        content = at.client.get("/v1/devices")
        at.show(content, devices_table(content["data"]) if content["data"] else "No devices: no worker has registered.")


@commands.command()
def workers(context: typer.Context, url: Url = None, key: Key = None, as_json: AsJson = False) -> None:
    """List workers: one per host, with the frameworks it runs and what is wrong with it."""
    with session(context, url, key, as_json=as_json) as at:
        content = at.client.get("/v1/workers")
        at.show(content, workers_table(content["data"]) if content["data"] else "No worker has registered.")


@commands.command()
def cordon(
    context: typer.Context, worker: WorkerName, url: Url = None, key: Key = None, as_json: AsJson = False
) -> None:
    """Keep new jobs off a host; what runs there goes on. For admins."""
    with session(context, url, key, as_json=as_json) as at:
        content = _change_worker(at, worker, "cordon")
        at.show(content, f"{harmless(content['host_name'])} takes no new jobs; {_left(content)}.")


@commands.command()
def uncordon(
    context: typer.Context, worker: WorkerName, url: Url = None, key: Key = None, as_json: AsJson = False
) -> None:
    """Let a host take jobs again after `cordon` or `drain`. For admins."""
    with session(context, url, key, as_json=as_json) as at:
        content = _change_worker(at, worker, "uncordon")
        blocked = f", but not now: {harmless(content['blocked'])}" if content.get("blocked") else ""
        at.show(content, f"{harmless(content['host_name'])} takes new jobs{blocked}.")


@commands.command()
def drain(
    context: typer.Context,
    worker: WorkerName,
    wait: Annotated[bool, typer.Option("--wait", help="Return when no job is left there.")] = False,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Empty a host: no new jobs, and those there stop with a checkpoint and go on elsewhere. For admins."""
    with session(context, url, key, as_json=as_json) as at:
        content = _change_worker(at, worker, "drain")
        while wait and content["devices_in_use"] and content["online"]:
            at.edge.pause(_LOOK_S)
            content = _worker(at, content["id"])
        at.show(content, f"{harmless(content['host_name'])} takes no new jobs; {_left(content)}.")


@commands.command()
def quarantine(
    context: typer.Context,
    device: DeviceName,
    reason: Annotated[str, typer.Option("--reason", help="Why, for those who look at `trainshed devices`.")],
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Keep a device out of use until it is released; what runs on it goes on. For admins."""
    with session(context, url, key, as_json=as_json) as at:
        body = json.dumps({"reason": reason}).encode()
        content = at.client.post(f"/v1/devices/{_in_path(_device(at, device))}/quarantine", body)
        at.show(content, f"{harmless(content['id'])} {content['state']}: {harmless(reason)}")


@commands.command()
def release(
    context: typer.Context, device: DeviceName, url: Url = None, key: Key = None, as_json: AsJson = False
) -> None:
    """Let a device be used again after a quarantine. For admins."""
    with session(context, url, key, as_json=as_json) as at:
        content = at.client.post(f"/v1/devices/{_in_path(_device(at, device))}/release")
        why = f": {harmless(content['reason'])}" if content.get("reason") else ""
        at.show(content, f"{harmless(content['id'])} {content['state']}{why}")


def _change_worker(at: Session, name: str, verb: str) -> dict[str, Any]:
    content: dict[str, Any] = at.client.post(f"/v1/workers/{_worker(at, name)['id']}/{verb}")
    return content


def _worker(at: Session, name: str) -> dict[str, Any]:
    known = at.client.get("/v1/workers")["data"]
    found = [worker for worker in known if name in (worker["id"], worker["host_name"], worker["host_id"])]
    if len(found) == 1:
        worker: dict[str, Any] = found[0]
        return worker
    hosts = ", ".join(f"{worker['host_name']} ({worker['id']})" for worker in known) or "none"
    what = "More than one worker" if found else "No worker"
    raise UsageProblem(f"{what} is called '{name}'. Known: {hosts}.")


def _device(at: Session, name: str) -> str:
    known = [str(device["id"]) for device in at.client.get("/v1/devices")["data"]]
    found = [name] if name in known else [identity for identity in known if name in identity]
    if len(found) == 1:
        return found[0]
    what = "More than one device has" if found else "No device has"
    raise UsageProblem(f"{what} '{name}' in its id. Known: {', '.join(found or known) or 'none'}.")


def _in_path(identity: str) -> str:
    """The id of a CPU slot has the host's in it, which is whatever `TRAINSHED_HOST_ID` says."""
    return quote(identity, safe="/@:")


def _left(worker: dict[str, Any]) -> str:
    count = worker["devices_in_use"]
    return f"{count} device{'s are' if count > 1 else ' is'} still in use" if count else "no job is there"
