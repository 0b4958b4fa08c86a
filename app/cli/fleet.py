"""Commands about the hosts: devices, workers."""

import typer

from app.cli.options import AsJson, Key, Url, session
from app.cli.tables import devices_table, workers_table

commands = typer.Typer()


@commands.command()
def devices(context: typer.Context, url: Url = None, key: Key = None, as_json: AsJson = False) -> None:
    """List devices: what they are, whether they are free, and who holds them."""
    with session(context, url, key, as_json=as_json) as at:
        content = at.client.get("/v1/devices")
        at.show(content, devices_table(content["data"]) if content["data"] else "No devices: no worker has registered.")


@commands.command()
def workers(context: typer.Context, url: Url = None, key: Key = None, as_json: AsJson = False) -> None:
    """List workers: one per host, with the frameworks it runs."""
    with session(context, url, key, as_json=as_json) as at:
        content = at.client.get("/v1/workers")
        at.show(content, workers_table(content["data"]) if content["data"] else "No worker has registered.")
