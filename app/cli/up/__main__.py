"""`trainshed up`: parse, hold the home, run the service until a stop."""

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from app.cli.connection import login_file, read_client_file
from app.cli.up.home import Home, sweep
from app.cli.up.service import Ready, Service
from app.cli.up.signals import Signals
from app.cli.up.supervisor import StopAsked
from app.errors import TrainshedError
from app.settings import Settings, load_settings

CANNOT_START: Final = 2
# A worker whose `up` died is ending its trainers, and then stores what they left.
_AFTER_GRACE_S: Final = 5.0

program = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@program.command()
def up(
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the API; 0 or nothing: a free one.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; nothing: 127.0.0.1.")] = None,
    home: Annotated[Path | None, typer.Option(help="Folder for everything; nothing: ~/.trainshed.")] = None,
    postgres: Annotated[
        str | None, typer.Option(metavar="URL", help="A PostgreSQL; nothing: SQLite in the home.")
    ] = None,
    code: Annotated[
        bool,
        typer.Option("--code", help="Let the key of this home bring code along, which runs here as a program."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="When ready, print one JSON document.")] = False,
) -> None:
    """Start the whole service on this host and keep it running until Ctrl-C.

    Redis, the API, the control loop and a worker run as children; one that dies is started again. Every other setting
    comes from TRAINSHED_* variables. Address and key are stored in the home's client.json for the client commands.
    """
    chosen = {"PORT": port, "HOST": host, "HOME": home.absolute() if home else None, "DATABASE_URL": _psycopg(postgres)}
    environ = dict(os.environ)
    for name, value in chosen.items():
        if value is not None:
            environ[f"TRAINSHED_{name}"] = str(value)
            environ.pop(f"TRAINSHED_{name}_FILE", None)
    try:
        raise typer.Exit(run(environ, quiet=quiet, as_json=as_json, code=code))
    except TrainshedError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(CANNOT_START) from error


def run(environ: Mapping[str, str], *, quiet: bool, as_json: bool, code: bool = False) -> int:
    """Run the service with these settings until it is asked to stop; the exit code."""
    environ = _with_whole_paths(environ)
    settings = load_settings(environ)
    home = Home(settings.home, settings.effective_run_dir)
    os.umask(0o077)
    home.make()

    def tell(text: str) -> None:
        if not quiet:
            with contextlib.suppress(OSError):
                print(text, file=sys.stderr, flush=True)

    with home.hold(), Signals() as signals:
        left = sweep(home, settings.stop_grace_s + _AFTER_GRACE_S)
        if left:
            tell(f"Ended what an earlier trainshed up had left running: {', '.join(left)}.")
        service = Service(settings, environ, signals, tell, code=code)
        try:
            ready = service.start()
            _announce(ready, settings, quiet=quiet, as_json=as_json)
            service.run()
        except StopAsked:
            pass
        finally:
            tell("Stopping.")
            service.stop()
    return 0


def _announce(ready: Ready, settings: Settings, *, quiet: bool, as_json: bool) -> None:
    if as_json:
        content = {"url": ready.url, "key": ready.key, "home": str(settings.home), "missing": ready.missing}
        print(json.dumps(content), flush=True)
    elif not quiet:
        print("\n".join(_sentences(ready, settings)), flush=True)


def _sentences(ready: Ready, settings: Settings) -> list[str]:
    lines = [
        f"Trainshed is up ({ready.seconds:.1f} s).",
        f"  API   {ready.url}",
        f"  Docs  {ready.url}/docs",
        f"  Home  {settings.home} (logs in {settings.home / 'logs'})",
    ]
    if ready.first_key:
        lines.append(
            f"  Key   {ready.first_key} (admin; shown this once, and stored in the home for the commands here)"
        )
    elif not ready.key:
        lines.append("  Key   none stored here; `trainshed key create --save` makes one")
    lines += [f"  Not ready: {what}" for what in ready.missing]
    if settings.host not in settings.allowed_hosts:
        lines.append(
            f"  Names by which it may be reached (TRAINSHED_ALLOWED_HOSTS): {', '.join(settings.allowed_hosts)}"
        )
    if settings.home != Path.home() / ".trainshed":
        lines.append(f"  For commands in another terminal: export TRAINSHED_HOME={settings.home}")
    elsewhere = read_client_file(login_file({"TRAINSHED_HOME": str(settings.home)}))
    if elsewhere is not None:
        lines.append(f"  Client commands go to {elsewhere.url}; `trainshed logout` brings them here")
    return [*lines, "Ctrl-C stops it."]


def _with_whole_paths(environ: Mapping[str, str]) -> dict[str, str]:
    """A socket's address cannot be a relative path, and neither should what is printed for another terminal."""
    folders = {name: environ[name] for name in ("TRAINSHED_HOME", "TRAINSHED_RUN_DIR") if environ.get(name)}
    return {**environ, **{name: str(Path(folder).absolute()) for name, folder in folders.items()}}


def _psycopg(url: str | None) -> str | None:
    """The address with the driver we use, as people rarely write it."""
    for scheme in ("postgres://", "postgresql://"):
        if url is not None and url.startswith(scheme):
            return f"postgresql+psycopg://{url.removeprefix(scheme)}"
    return url


if __name__ == "__main__":
    program(prog_name="trainshed up")
