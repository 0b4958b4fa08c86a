"""Commands about files: data sets up, models down."""

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from app.cli.client import Client
from app.cli.errors import CliError, UsageProblem
from app.cli.identity import resolve_job
from app.cli.options import AsJson, JobName, Key, Url, session
from app.cli.tables import artifacts_table, columns_table, datasets_table, notes_table, pairs

_ADDRESS: Final = "root://"

commands = typer.Typer()
datasets = typer.Typer(no_args_is_help=True)
commands.add_typer(datasets, name="datasets", help="Upload and list data sets.")


class Damaged(CliError):
    """What arrived is not what the server has."""

    code = "damaged"

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} arrived damaged: its SHA-256 is not the one that the server stored. Try again.")


@datasets.command("ls")
def list_datasets(context: typer.Context, url: Url = None, key: Key = None, as_json: AsJson = False) -> None:
    """List data sets, the newest first."""
    with session(context, url, key, as_json=as_json) as at:
        page = at.client.pages("/v1/datasets", 200)
        at.show(
            page, datasets_table(page["data"]) if page["data"] else "No data sets; `datasets upload FILE` adds one."
        )


@datasets.command()
def upload(
    context: typer.Context,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="CSV or TSV with a header, Parquet, or NPZ; or root://name/path.")
    ],
    name: Annotated[str | None, typer.Option(help="What to call it; else the file's name.")] = None,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Upload a table (CSV, TSV, Parquet, NPZ); the answer's id is what a spec's data.source names.

    `root://name/path` names a file in a data root of the server: it is registered, and read where it lies.
    """
    if not is_address(file) and not Path(file).is_file():
        raise UsageProblem(f"{file} is not a file.")
    with session(context, url, key, as_json=as_json) as at:
        dataset = add_table(at.client, file, name)
        at.show(
            dataset,
            f"{dataset['id']} {dataset['name']}",
            columns_table(dataset["table"]["columns"]),
            notes_table(dataset),
        )


@datasets.command("show")
def show_dataset(
    context: typer.Context,
    dataset: Annotated[str, typer.Argument(metavar="ID")],
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Show one data set with its columns."""
    with session(context, url, key, as_json=as_json) as at:
        content = at.client.get(f"/v1/datasets/{_segment(dataset)}")
        # A built-in set has a description, an uploaded one a state and an owner.
        names = ("id", "name", "description", "uri", "state", "rows", "created_by", "created_at")
        shown = [(name, content.get(name)) for name in names]
        table = content["table"]
        at.show(content, pairs(shown), columns_table(table["columns"]), notes_table(content))


@commands.command()
def artifacts(
    context: typer.Context,
    job: JobName,
    download: Annotated[str | None, typer.Option(metavar="NAME", help="Fetch this file.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to; else NAME in this folder.")] = None,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """List what a job left, or download one file of it."""
    with session(context, url, key, as_json=as_json) as at:
        job_id = resolve_job(at.client, job)
        page = at.client.get(f"/v1/jobs/{job_id}/artifacts")
        if download is None:
            at.show(page, artifacts_table(page["data"]) if page["data"] else "This job has left no files.")
            return
        found = next((item for item in page["data"] if item["name"] == download), None)
        if found is None:
            known = ", ".join(item["name"] for item in page["data"]) or "none"
            raise UsageProblem(f"Job {job_id} has no file '{download}'. It has: {known}.")
        target = fetch(at.client, f"/v1/jobs/{job_id}/artifacts/{_segment(download)}", found, output)
        at.show({**found, "path": str(target)}, f"{target} ({found['size_bytes']} bytes)")


def is_address(text: str) -> bool:
    """Whether it names a file in a data root of the server, rather than one of this computer."""
    return text.startswith(_ADDRESS)


def add_table(client: Client, file: str, name: str | None = None) -> dict[str, Any]:
    """Upload a file, or register the one that an address names; the new data set."""
    if is_address(file):
        content = json.dumps({"uri": file} | ({} if name is None else {"name": name})).encode()
        found: dict[str, Any] = client.post("/v1/datasets", content)
    else:
        found = client.upload("/v1/datasets", Path(file), {"name": name or Path(file).name})
    return found


def fetch(client: Client, path: str, facts: dict[str, Any], output: Path | None) -> Path:
    """Download to `output`, or to the file's own name here; whole and checked, or not at all.

    Raises:
        UsageProblem: the target exists, or cannot be written.
        Damaged: the content is not what the server has on record.
    """
    # The last part alone: a name from elsewhere must not choose the folder.
    target = output or Path(Path(facts["name"]).name)
    if target.is_dir():
        target = target / Path(facts["name"]).name
    if target.exists():
        raise UsageProblem(f"{target} exists; --output names another file.")
    digest = hashlib.sha256()
    try:
        descriptor, fresh = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.absolute().parent)
    except OSError as error:
        raise UsageProblem(f"{target} cannot be written: {error.strerror}.") from error
    try:
        with os.fdopen(descriptor, "wb") as file, client.stream(path) as answer:
            for piece in answer.iter_bytes():
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != facts["digest"]:
            raise Damaged(facts["name"])
        Path(fresh).replace(target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(fresh).unlink()
    return target


def _segment(text: str) -> str:
    """One part of a path: what would lead elsewhere is refused here, before a client library normalises it away."""
    if not text or text in (".", "..") or any(character in text for character in "/\\?#%"):
        raise UsageProblem(f"'{text}' is not a name here.")
    return text
