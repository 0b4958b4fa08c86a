"""Everything outside itself that the command line touches, in one object, so that a test can hand in another."""

import getpass
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Final, NoReturn

import httpx
import typer
from rich.console import Console

# How wide tables may be when nobody looks at them: ids must never be cut off in a pipe.
_WIDTH_OF_A_PIPE: Final = 200


def replace_process(command: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Become another program, under the same pid: signals and exit code are then its own."""
    sys.stdout.flush()
    os.execve(command[0], list(command), dict(environ))  # noqa: S606 - no shell is wanted


def console(*, stderr: bool = False) -> Console:
    stream: IO[str] = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else _WIDTH_OF_A_PIPE
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=width is not None)


@dataclass(frozen=True)
class Edge:
    """`transport` None means the network; `pause` waits so many seconds; `ask_hidden` does not show the answer."""

    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    transport: httpx.BaseTransport | None = None
    out: Console = field(default_factory=console)
    err: Console = field(default_factory=lambda: console(stderr=True))
    stdin: IO[str] = field(default_factory=lambda: sys.stdin)
    pause: Callable[[float], None] = time.sleep
    ask_hidden: Callable[[str], str] = getpass.getpass
    become: Callable[[Sequence[str], Mapping[str, str]], NoReturn] = replace_process


def edge_of(context: typer.Context) -> Edge:
    """The edge that `main` was given."""
    edge = context.find_root().obj
    if not isinstance(edge, Edge):
        raise TypeError("the command was not started by app.cli.program.main")
    return edge
