"""The command about usage: device-hours and energy."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from app.cli.figures import moment
from app.cli.options import AsJson, Key, Url, session
from app.cli.quantities import moment_of
from app.cli.tables import table
from app.clock import to_rfc3339

commands = typer.Typer()

_HOUR_S: Final = 3600.0
_KWH_J: Final = 3.6e6


@commands.command()
def usage(
    context: typer.Context,
    by: Annotated[str, typer.Option("--by", metavar="WHAT", help="owner, project, job or day.")] = "owner",
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="7d, 2026-01-31 or RFC 3339; default: 30 days.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="The same; default: now.")] = None,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Report device-hours and energy of jobs and holds."""
    with session(context, url, key, as_json=as_json) as at:
        asked = {
            "by": by,
            "since": None if since is None else to_rfc3339(moment_of(since)),
            "until": None if until is None else to_rfc3339(moment_of(until)),
        }
        content = at.client.get("/v1/usage", asked)
        title = f"{moment(content['since'])} to {moment(content['until'])}"
        lines = [*content["data"], content["total"]] if content["data"] else []
        at.show(content, usage_table(by, lines, title) if lines else f"Nothing was used ({title}).")


def usage_table(by: str, lines: Iterable[Mapping[str, Any]], title: str) -> Table:
    return table(
        (by, "jobs", "holds", "card-hours", "CPU slot-hours", "kWh"),
        (
            (
                line["key"],
                line["jobs"],
                line["holds"],
                f"{line['cuda_device_s'] / _HOUR_S:.2f}",
                f"{line['cpu_device_s'] / _HOUR_S:.2f}",
                None if line["energy_j"] is None else f"{line['energy_j'] / _KWH_J:.3f}",
            )
            for line in lines
        ),
        title=title,
    )
