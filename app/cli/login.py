"""`trainshed login` and `logout`: which server the client commands of this user talk to."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.client import Client
from app.cli.connection import (
    KEY_VARIABLE,
    URL_VARIABLE,
    Connection,
    checked_key,
    checked_url,
    client_file,
    login_file,
    read_client_file,
    write_client_file,
)
from app.cli.edge import Edge, edge_of
from app.cli.errors import UsageProblem
from app.cli.options import AsJson, write_json

commands = typer.Typer()


@commands.command()
def login(
    context: typer.Context,
    server: Annotated[str, typer.Argument(metavar="URL", help="For example https://trainshed.example.org")],
    key_file: Annotated[
        Path | None, typer.Option("--key-file", metavar="FILE", help="Read the API key from its first line.")
    ] = None,
    key_stdin: Annotated[bool, typer.Option("--key-stdin", help="Read the API key from standard input.")] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="Send the key over plain http to another host.")] = False,
    as_json: AsJson = False,
) -> None:
    """Store a server's address and your API key for the client commands, once the server has accepted the key.

    The key is asked for and not shown; it is stored in login.json in the home (~/.trainshed), for this user alone. A
    certificate of an authority of your own: SSL_CERT_FILE=/path/ca.pem.
    """
    edge = edge_of(context)
    connection = Connection(checked_url(server), "")
    if connection.url.startswith("http://") and not connection.is_local and not insecure:
        raise UsageProblem(
            f"{connection.url} is plain http: everybody on the way could read the key. Use https://, or a tunnel "
            "(ssh -L 8000:127.0.0.1:8000 HOST, then http://127.0.0.1:8000), or say --insecure."
        )
    key = checked_key(_read_key(edge, key_file, connection.url, from_stdin=key_stdin))
    with Client(Connection(connection.url, key), edge.transport, edge.pause) as client:
        # What every role may read; a server that does not know the key refuses it.
        client.get("/v1/jobs", {"limit": 1})
    file = login_file(edge.environ)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_client_file(file, connection.url, key)
    if as_json:
        write_json(edge, {"url": connection.url, "file": str(file)})
        return
    edge.out.print(f"Logged in to {connection.url}; the key is in {file}.")
    for variable in (URL_VARIABLE, KEY_VARIABLE):
        if edge.environ.get(variable):
            edge.err.print(f"{variable} is set, and comes before what is stored.")


@commands.command()
def logout(context: typer.Context, as_json: AsJson = False) -> None:
    """Forget what `login` stored; the key itself goes on working until it is revoked."""
    edge = edge_of(context)
    file = login_file(edge.environ)
    stored = read_client_file(file)
    file.unlink(missing_ok=True)
    here = read_client_file(client_file(edge.environ))
    if as_json:
        write_json(edge, {"url": stored.url if stored else None, "next": here.url if here else None})
        return
    edge.out.print(f"Logged out of {stored.url}." if stored else "Nobody was logged in.")
    if here:
        edge.out.print(f"Client commands now go to {here.url}, which `trainshed up` started here.")


def _read_key(edge: Edge, file: Path | None, url: str, *, from_stdin: bool) -> str:
    """The key from where it was said to be; never from the command line, where every user of the host could read it."""
    if file is not None and from_stdin:
        raise UsageProblem("Give --key-file or --key-stdin, not both.")
    if file is not None:
        try:
            key = next(iter(file.read_text(encoding="utf-8").splitlines()), "")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageProblem(
                f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}."
            ) from error
    elif from_stdin:
        key = edge.stdin.readline()
    elif edge.stdin.isatty():
        key = edge.ask_hidden(f"API key for {url}: ")
    else:
        raise UsageProblem("There is no terminal to ask for the key; give it with --key-stdin or --key-file FILE.")
    if not key.strip():
        raise UsageProblem("No key was given; on the server's host `trainshed key create` makes one.")
    return key.strip()
