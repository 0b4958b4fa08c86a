"""Commands about bundles: the code that was sent, and who still needs it."""

from collections.abc import Iterable
from typing import Annotated, Final

import typer
from rich.table import Table

from app.cli.errors import UsageProblem
from app.cli.figures import age, number, size
from app.cli.options import AsJson, Key, Session, Url, session
from app.cli.tables import Json, pairs, table
from app.ids import is_id

commands = typer.Typer()
bundles = typer.Typer(no_args_is_help=True)
commands.add_typer(bundles, name="bundles", help="List and delete the code that was sent.")

Bundle = Annotated[str, typer.Argument(metavar="ID", help="A bundle's id, or its last characters.")]
_SHOWN: Final = 200
_SHORTEST: Final = 4


@bundles.command("ls")
def list_bundles(context: typer.Context, url: Url = None, key: Key = None, as_json: AsJson = False) -> None:
    """List bundles, the newest first."""
    with session(context, url, key, as_json=as_json) as at:
        page = at.client.pages("/v1/bundles", _SHOWN)
        at.show(page, bundles_table(page["data"]) if page["data"] else "No bundles; `trainshed run` sends one.")


@bundles.command("show")
def show_bundle(
    context: typer.Context, bundle: Bundle, url: Url = None, key: Key = None, as_json: AsJson = False
) -> None:
    """Show one bundle with its files."""
    with session(context, url, key, as_json=as_json) as at:
        content = at.client.get(f"/v1/bundles/{_resolve(at, bundle)}")
        at.show(content, *_shown(content))


@bundles.command("rm")
def remove_bundles(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids, or their last characters.")],
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Delete bundles that no job needs any more; `trainshed run` sends the same code again."""
    with session(context, url, key, as_json=as_json) as at:
        found = list(dict.fromkeys(_resolve(at, name) for name in names))
        for bundle_id in found:
            at.client.delete(f"/v1/bundles/{bundle_id}")
        at.show({"deleted": found}, *(f"{bundle_id} deleted" for bundle_id in found))


def bundles_table(found: Iterable[Json]) -> Table:
    return table(
        ("id", "name", "format", "files", "size", "unpacked", "by", "age"),
        (
            (
                item["id"],
                item["name"],
                item["format"],
                number(item["files"]),
                size(item["size_bytes"]),
                size(item["unpacked_bytes"]),
                item.get("created_by"),
                age(item["created_at"]),
            )
            for item in found
        ),
    )


def _shown(content: Json) -> list[Table | str | None]:
    names = ("id", "name", "format", "digest", "files", "created_by", "created_at")
    facts = [*((name, content.get(name)) for name in names), ("size", size(content["size_bytes"]))]
    files = table(("file", "size"), ((item["name"], size(item["size_bytes"])) for item in content["file_list"]))
    more = None if content["file_list_complete"] else f"… and more: {content['files']} files in all."
    return [pairs(facts), files, more]


def _resolve(at: Session, name: str) -> str:
    """The id of one bundle.

    Raises:
        UsageProblem: none has it, or several end so.
    """
    if is_id("bun", name):
        return name
    known = [str(item["id"]) for item in at.client.pages("/v1/bundles", _SHOWN)["data"]]
    found = [bundle_id for bundle_id in known if len(name) >= _SHORTEST and bundle_id.endswith(name)]
    if len(found) != 1:
        raise UsageProblem(f"{'No' if not found else 'More than one'} bundle is '{name}'; see trainshed bundles ls")
    return found[0]
