"""Commands about holds: devices for a person, for a while."""

import json
import shlex
import uuid
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from app.cli.errors import Refused, UsageProblem
from app.cli.figures import duration, harmless, moment
from app.cli.options import AsJson, Key, Session, Url, session
from app.cli.quantities import seconds, size_bytes
from app.cli.tables import table

commands = typer.Typer()

Count = Annotated[int | None, typer.Argument(metavar="COUNT", min=1, help="How many devices of one host; default 1.")]
For = Annotated[
    str | None, typer.Option("--for", metavar="TIME", help="For how long: 30m, 4h, 1h30m, 2d. Needed for a new hold.")
]
DeviceType = Annotated[
    str | None, typer.Option("--device-type", metavar="KIND", help="cuda or cpu; default: as for jobs.")
]
DeviceName = Annotated[
    str | None, typer.Option("--device-name", metavar="TEXT", help="Only devices with this in their name.")
]
MinMemory = Annotated[
    str | None, typer.Option("--min-memory", metavar="SIZE", help="Of each device, for example 40GiB.")
]
Host = Annotated[str | None, typer.Option("--host", metavar="HOST", help="Only of this host.")]
Note = Annotated[str | None, typer.Option("--note", metavar="TEXT", help="What it is for.")]
StopWhenIdle = Annotated[
    str | None,
    typer.Option("--stop-when-idle", metavar="TIME", help="End it when its cards did nothing for so long."),
]
Wait = Annotated[bool, typer.Option("--wait", help="Ask until devices are free; jobs that wait come first.")]
Extend = Annotated[str | None, typer.Option("--extend", metavar="ID", help="Let a hold end --for from now instead.")]
Release = Annotated[str | None, typer.Option("--release", metavar="ID", help="As `trainshed unhold ID`.")]
Show = Annotated[str | None, typer.Option("--show", metavar="ID", help="Print a hold's environment again.")]
HoldName = Annotated[str, typer.Argument(metavar="ID", help="A hold's id, its last characters, or `latest`.")]
_ASK_AGAIN_S: Final = 5.0
_BUSY: Final = "devices_busy"
_LATEST: Final = "latest"
_SHOWN: Final = 50


@commands.command()
def hold(
    context: typer.Context,
    count: Count = None,
    for_: For = None,
    device_type: DeviceType = None,
    device_name: DeviceName = None,
    min_memory: MinMemory = None,
    host: Host = None,
    note: Note = None,
    stop_when_idle: StopWhenIdle = None,
    wait: Wait = False,
    extend: Extend = None,
    release: Release = None,
    show: Show = None,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Lease devices to yourself: `eval "$(trainshed hold 2 --for 4h)"`, then start your notebook on that host.

    It prints the environment that keeps a program to these devices. They are not taken from you before the time is
    over, and nobody stops your programs afterwards.
    """
    others = [name for name in (extend, release, show) if name is not None]
    if len(others) > 1 or (others and count is not None):
        raise UsageProblem("--extend, --release and --show each go alone, for example trainshed hold --show latest")
    with session(context, url, key, as_json=as_json) as at:
        if release is not None:
            _release(at, release)
        elif show is not None:
            _show(at, at.client.get(f"/v1/holds/{_resolve(at, show)}"))
        elif extend is not None:
            path = f"/v1/holds/{_resolve(at, extend)}"
            _show(at, at.client.patch(path, json.dumps({"for_s": _needed(for_)}).encode()))
        else:
            body = {
                "device_count": count or 1,
                "for_s": _needed(for_),
                "device_type": device_type,
                "device_name": device_name,
                "min_device_memory_bytes": None if min_memory is None else size_bytes(min_memory),
                "host": host,
                "note": note,
                "stop_when_idle_s": None if stop_when_idle is None else seconds(stop_when_idle),
            }
            _show(at, _take(at, {name: value for name, value in body.items() if value is not None}, wait=wait))


@commands.command()
def unhold(context: typer.Context, hold: HoldName, url: Url = None, key: Key = None, as_json: AsJson = False) -> None:
    """Give held devices back. Stop your programs on them first."""
    with session(context, url, key, as_json=as_json) as at:
        _release(at, hold)


@commands.command()
def holds(
    context: typer.Context,
    ended: Annotated[bool, typer.Option("--all", "-a", help="Those that are over too.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = _SHOWN,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """List holds: who has which devices, and until when."""
    with session(context, url, key, as_json=as_json) as at:
        content = at.client.pages("/v1/holds", limit, {"state": None if ended else "open"})
        at.show(content, holds_table(content["data"]) if content["data"] else "Nobody holds devices.")


def holds_table(found: Iterable[Mapping[str, Any]]) -> Table:
    return table(
        ("id", "owner", "host", "devices", "until", "note", "state"),
        (
            (
                item["id"],
                item["owner"],
                item["host_name"],
                "\n".join(str(device["id"]) for device in item["devices"]),
                moment(item["until"]),
                item["note"] or None,
                item["ended_why"] or "open",
            )
            for item in found
        ),
    )


def environment_lines(content: Mapping[str, Any]) -> list[str]:
    """What a shell can evaluate: the environment, with what a person should know as comments."""
    names = ", ".join(sorted({str(device["name"]) for device in content["devices"]}))
    told = f"{len(content['devices'])} × {names} on {content['host_name']} until {moment(content['until'])}"
    exports = [f"export {name}={shlex.quote(str(value))}" for name, value in content["environment"].items()]
    return [f"# {content['id']}: {harmless(told)}", *exports, f"# give back: trainshed unhold {content['id']}"]


def _take(at: Session, body: Mapping[str, Any], *, wait: bool) -> Mapping[str, Any]:
    """Ask, and with `wait` again and again; one key for all, so that a lost answer holds nothing twice."""
    key, said = str(uuid.uuid4()), False
    while True:
        try:
            made: Mapping[str, Any] = at.client.post("/v1/holds", json.dumps(body).encode(), key=key)
        except Refused as error:
            if not wait or error.content.get("code") != _BUSY:
                raise
            if not said:
                at.edge.err.print(f"waiting: {harmless(error)}")
                said = True
            at.edge.pause(_ASK_AGAIN_S)
        else:
            return made


def _show(at: Session, content: Mapping[str, Any]) -> None:
    if at.as_json:
        at.line(content)
        return
    for line in environment_lines(content):
        at.edge.out.print(line, soft_wrap=True)  # a shell reads it


def _release(at: Session, name: str) -> None:
    hold_id = _resolve(at, name)
    used = at.client.get(f"/v1/holds/{hold_id}")
    at.client.delete(f"/v1/holds/{hold_id}")
    at.show({"released": hold_id}, f"{hold_id} given back after {duration(_held_s(used))}")


def _held_s(content: Mapping[str, Any]) -> float:
    return float(content["device_s"]) / max(1, len(content["devices"]))


def _needed(text: str | None) -> float:
    if text is None:
        raise UsageProblem("Say for how long, for example --for 4h")
    return seconds(text)


def _resolve(at: Session, name: str) -> str:
    """The id of an open hold. `latest` is the newest, as long as nobody else's could be meant.

    Raises:
        UsageProblem: none has it, several end so, or several people hold devices.
    """
    if name.startswith("hold_"):
        return name
    held = at.client.pages("/v1/holds", _SHOWN, {"state": "open"})["data"]
    found = [str(item["id"]) for item in held]
    owners = sorted({str(item["owner"]) for item in held})
    if name == _LATEST and len(owners) > 1:
        raise UsageProblem(f"Holds of {', '.join(owners)} are open, so name one by its id; see trainshed holds")
    matching = found[:1] if name == _LATEST else [hold_id for hold_id in found if name and hold_id.endswith(name)]
    if len(matching) != 1:
        raise UsageProblem(f"{'No' if not matching else 'More than one'} open hold is '{name}'; see trainshed holds")
    return matching[0]
