"""The program `trainshed`: all commands, and what their errors become.

Exit codes: 0 done; 1 a followed job did not succeed, or the demo missed a bar; 2 asked wrongly, or refused by the
server; 3 no server answers; 130 interrupted.
"""

import itertools
import json
import sys
from collections.abc import Sequence
from typing import NoReturn

import typer

from app import __version__
from app.cli import (
    bundles,
    comparing,
    files,
    fleet,
    holding,
    jobs,
    login,
    predicting,
    servers,
    starting,
    steering,
    usage,
)
from app.cli.demo import command as demo
from app.cli.edge import Edge
from app.cli.errors import INTERRUPTED, CliError
from app.cli.figures import harmless
from app.cli.run import command as running

app = typer.Typer(
    name="trainshed",
    help="Training jobs over HTTP, on your own devices. Start with `trainshed up`, or see `trainshed demo`.",
    epilog=(
        "Exit codes: 0 done; 1 a followed job did not succeed; 2 asked wrongly or refused; 3 no server answers. "
        "Client commands find the server by --url and --key, TRAINSHED_URL and TRAINSHED_KEY, or what `login` or `up` "
        "stored."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
PARTS = (
    jobs,
    running,
    starting,
    steering,
    files,
    bundles,
    predicting,
    comparing,
    fleet,
    holding,
    usage,
    login,
    demo,
    servers,
)
for part in PARTS:
    app.add_typer(part.commands)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"trainshed {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    del version


def main(arguments: Sequence[str] | None = None, edge: Edge | None = None) -> NoReturn:
    """Run one command and exit with its code."""
    asked = list(sys.argv[1:] if arguments is None else arguments)
    at = edge or Edge()
    try:
        app(asked, obj=at, prog_name="trainshed")
    except CliError as error:
        # What stands behind `--` belongs to the command of `trainshed run`.
        if "--json" in itertools.takewhile(lambda word: word != "--", asked):
            at.err.file.write(json.dumps(error.document) + "\n")
        else:
            at.err.print(f"error: {harmless(error)}")
            for line in error.lines:
                at.err.print(f"  {harmless(line)}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Whoever read the output has had enough, as `head` has. The stream is closed before Python tries to flush it.
        sys.stderr.close()
        sys.exit(0)
    sys.exit(0)
