"""`trainshed key`: API keys straight in the database, for operators on the server's host; no server needs to run."""

import json
import sys
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer
from sqlalchemy.orm import Session

from app.accounts.models import ApiKey
from app.accounts.schemas import key_json
from app.accounts.service import FIRST_PROJECT, PERMISSIONS, Role, create_key, list_keys, permit_key, revoke_key
from app.cli.connection import checked_url, read_client_file, write_client_file
from app.cli.errors import UsageProblem
from app.cli.processes.direct import opened, run_program
from app.cli.processes.health import API_URL
from app.clock import SystemClock
from app.errors import TrainshedError
from app.settings import Settings, load_settings

T = TypeVar("T")

program = typer.Typer(
    help="Create, list, permit and revoke API keys, straight in the database.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


class NoServerKnown(TrainshedError):
    code = "no_server_known"

    def __init__(self, settings: Settings) -> None:
        super().__init__(f"Nobody said in {settings.home} yet where the server is; start `trainshed up` first.")


@program.command()
def create(
    name: Annotated[str, typer.Option(help="To tell keys apart.")] = "command line",
    user: Annotated[str, typer.Option(help="Whose key it is.")] = "admin",
    project: Annotated[
        str, typer.Option(help="Whose jobs and data it sees; made if it does not exist.")
    ] = FIRST_PROJECT,
    role: Annotated[Role, typer.Option(help="viewer reads, user also submits, admin also manages.")] = Role.ADMIN,
    permission: Annotated[
        list[str] | None,
        typer.Option(help="`code`: may bring code along that workers run; no role has it by itself. Can be repeated."),
    ] = None,
    save: Annotated[bool, typer.Option("--save", help="Store it for the client commands of this home.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it; it cannot be read again later."""
    settings = load_settings()
    url = _server_of(settings) if save else ""

    def make(session: Session) -> tuple[ApiKey, str]:
        now = SystemClock().now()
        return create_key(
            session, project=project, user=user, name=name, role=role, now=now, permissions=permission or ()
        )

    key, secret = _in_database(settings, make)
    if save:
        write_client_file(settings.home / "client.json", url, secret)
    print(json.dumps({**key_json(key, project), "secret": secret}, default=str) if as_json else secret)


@program.command("ls")
def list_all(as_json: AsJson = False) -> None:
    """List all keys, revoked ones too; their secrets cannot be read."""
    rows = _in_database(load_settings(), lambda session: list_keys(session, limit=10_000))
    keys = [key_json(key, project) for key, project in rows]
    if as_json:
        print(json.dumps({"object": "list", "data": keys, "has_more": False, "next_after": None}, default=str))
        return
    for key in keys:
        state = "revoked" if key["revoked_at"] else "works"
        may = "".join(f"  +{permission}" for permission in key["permissions"])
        whose = f"{key['project']}/{key['user']}  {key['name']}"
        print(f"{key['id']}  {key['hint']}  {key['role']:6}{may}  {whose}  {state}")


@program.command()
def permit(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `key ls` shows it.")],
    permissions: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PERMISSION]…", help=f"All that it has then: {', '.join(PERMISSIONS)}."),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Take all permissions away.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what a key may besides its role, instead of what it could before. A running server follows within seconds."""
    wanted = list(permissions or ())
    if bool(wanted) == none:
        raise UsageProblem(f"Name the permissions that {key_id} has from now on, for example code; or say --none.")
    key = _in_database(load_settings(), lambda session: key_json(*permit_key(session, key_id, wanted)))
    if as_json:
        print(json.dumps(key, default=str))
        return
    print(
        f"{key_id} has the permission {', '.join(key['permissions'])}."
        if wanted
        else f"{key_id} has no permission any more."
    )


@program.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `key ls` shows it.")], as_json: AsJson = False
) -> None:
    """Make a key stop working. Again is harmless."""
    _in_database(load_settings(), lambda session: revoke_key(session, key_id, SystemClock().now()).id)
    print(json.dumps({"id": key_id, "revoked": True}) if as_json else f"{key_id} is revoked.")


def _server_of(settings: Settings) -> str:
    """The address that `up` stored; or, when it has no key, as after a restore, the one that its API wrote down.

    Raises:
        NoServerKnown: there was none yet.
    """
    stored = read_client_file(settings.home / "client.json")
    if stored is not None:
        return stored.url
    try:
        return checked_url((settings.effective_run_dir / API_URL).read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError, UsageProblem) as error:
        raise NoServerKnown(settings) from error


def _in_database(settings: Settings, work: Callable[[Session], T]) -> T:
    """Do it in one transaction."""
    with opened(settings) as database, database.write() as session:
        return work(session)


def main() -> int:
    return run_program(program, "trainshed key")


if __name__ == "__main__":
    sys.exit(main())
