"""Commands that run a part of the server: each becomes (exec) a module of its own, and parses its own arguments there.

This process has then cost the server nothing but its start, and signals and exit codes are the module's own.
"""

import sys
from collections.abc import Callable
from typing import Final

import typer

from app.cli.edge import edge_of

commands = typer.Typer()

_MODULES: Final = {
    "up": ("app.cli.up", "Start the whole service on this host; Ctrl-C stops it."),
    "api": ("app.cli.processes.api", "Run the HTTP API alone; settings from TRAINSHED_*."),
    "control": ("app.cli.processes.control", "Run the control loop alone: it schedules and reconciles."),
    "worker": ("app.cli.processes.worker", "Run this host's worker alone: it trains."),
    "migrate": ("app.cli.processes.migrate", "Bring the database to the newest schema."),
    "gc": (
        "app.cli.processes.gc",
        "Delete what was kept long enough, and files that nobody names.",
    ),
    "health": ("app.cli.processes.health", "Say whether this host's worker, control or api is well."),
    "doctor": ("app.cli.doctor", "Look at what the service needs on this host; say what is wrong and what to do."),
    "backup": (
        "app.cli.processes.backup",
        "Write everything that the service keeps into one file; it may run meanwhile.",
    ),
    "restore": ("app.cli.processes.restore", "Bring a backup back into the database and the storage of the settings."),
    "key": ("app.cli.processes.key", "Create, list and revoke API keys, straight in the database."),
}
# All arguments, --help too, are for the module.
_PASS_ON: Final = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def _becoming(module: str) -> Callable[[typer.Context], None]:
    def become(context: typer.Context) -> None:
        edge = edge_of(context)
        # -P: a folder `app` or `workers` in the working directory must not be taken for ours.
        edge.become([sys.executable, "-P", "-m", module, *context.args], edge.environ)

    return become


for _name, (_module, _help) in _MODULES.items():
    commands.command(_name, help=_help, context_settings=_PASS_ON, rich_help_panel="Server")(_becoming(_module))
