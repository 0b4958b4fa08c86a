"""The options that every client command has, and what it makes of them."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from app.cli.client import Client
from app.cli.connection import find_connection
from app.cli.edge import Edge, edge_of

Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The server; else TRAINSHED_URL, else what `login` or `up` stored."),
]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="The API key; else TRAINSHED_KEY, else as above.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
JobName = Annotated[str, typer.Argument(metavar="ID", help="A job's id, its last characters, or `latest`.")]


def write_json(edge: Edge, content: Any) -> None:  # noqa: ANN401 - JSON
    """One document on one line, never wrapped or coloured."""
    edge.out.file.write(json.dumps(content, ensure_ascii=False) + "\n")
    edge.out.file.flush()


@dataclass(frozen=True)
class Session:
    """One command at work: the server, the edge, and whether a program reads the output."""

    client: Client
    edge: Edge
    as_json: bool

    def show(self, content: Any, *rendered: RenderableType | None) -> None:  # noqa: ANN401 - JSON
        """Print `content` as one JSON document, or `rendered` for people."""
        if self.as_json:
            self.line(content)
            return
        for item in rendered:
            if item is not None:
                self.edge.out.print(item)

    def line(self, content: Any) -> None:  # noqa: ANN401 - JSON
        """One JSON document on one line, never wrapped or coloured."""
        write_json(self.edge, content)


@contextlib.contextmanager
def session(context: typer.Context, url: str | None, key: str | None, *, as_json: bool = False) -> Iterator[Session]:
    edge = edge_of(context)
    with Client(find_connection(url, key, edge.environ), edge.transport, edge.pause) as client:
        yield Session(client, edge, as_json)
