"""`trainshed init DATASET`: a spec to begin with, with comments, that trains as it stands."""

import json
from pathlib import Path
from typing import Annotated, Final

import typer

from app.cli.client import Client
from app.cli.edge import edge_of
from app.cli.errors import Refused, UsageProblem
from app.cli.figures import harmless, number
from app.cli.files import add_table, is_address
from app.cli.options import Key, Url, session
from app.cli.tables import Json

commands = typer.Typer()

_USUAL_TARGETS: Final = ("target", "label", "class", "species", "y", "outcome")
_LEFT_OUT: Final = {
    "constant": "the same value in every row",
    "all_different": "a different value in every row, as an id has",
    "too_many_categories": "more than 1000 different texts",
    "not_a_number": "a column of numbers with cells that are none",
}
"""Problems of a column that make it a bad feature, by their code."""


@commands.command()
def init(
    context: typer.Context,
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="A built-in set, a ds_… id, a file, or root://….")],
    framework: Annotated[str, typer.Option(help="torch or tensorflow.")] = "torch",
    target: Annotated[str | None, typer.Option(help="The column to predict; else the likeliest.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write it; else to the standard output.")
    ] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Write a commented spec for a data set: `trainshed init penguins.csv -o job.json`, then `submit job.json`."""
    if output is not None and output.exists():
        raise UsageProblem(f"{output} exists; --output names another file.")
    if output is not None and not output.parent.is_dir():
        raise UsageProblem(f"There is no folder {output.parent}; --output job.json writes beside you.")
    file = Path(dataset)
    with session(context, url, key) as at:
        if is_address(dataset) or file.is_file():
            found: Json = add_table(at.client, dataset)
            done = "registered" if is_address(dataset) else "uploaded"
            at.edge.err.print(f"{done} {harmless(file.name)}: {found['id']}")
        else:
            found = _found(at.client, dataset)
    text = commented_spec(found, framework, target)
    if output is None:
        edge_of(context).out.file.write(text)
    else:
        _write(output, text)
        edge_of(context).out.print(f"{output}: trainshed submit {output} --follow")


def commented_spec(dataset: Json, framework: str, target: str | None) -> str:
    """The text of the spec; JSON with comments, which `submit` reads.

    Raises:
        UsageProblem: there is no such column.
    """
    table = dataset["table"]
    columns = {column["name"]: column for column in table["columns"]}
    chosen, why = _target(table, columns, target)
    left_out = _unfit(dataset.get("problems") or table.get("problems") or [], columns, chosen)
    features = [name for name, column in columns.items() if name != chosen and name not in left_out]
    gaps = {name: columns[name].get("missing", 0) + columns[name].get("infinite", 0) for name in (*features, chosen)}
    lines = [
        f"// {harmless(dataset.get('name') or dataset['id'])}: {number(table['rows'])} rows, {len(columns)} columns.",
        "// Every member but framework, model and data may be left out; docs/spec.md has them all.",
        "{",
        f'  "name": {json.dumps(_short(dataset))},',
        f'  "framework": {json.dumps(framework)}, // torch or tensorflow: the same model, the same curve',
        *_model(table),
        '  "data": {',
        f'    "source": {json.dumps(dataset["id"])},',
        f'    "target": {json.dumps(chosen)}, // {why}',
        *_features(features, left_out),
        *_missing({name: count for name, count in gaps.items() if count}),
        '    "split": {"validation": 0.2, "test": 0.1} // shares; "method": stratified, random, given, time',
        "  },",
        *_hyperparameters(),
        '  "device_count": 1',
        "}",
    ]
    return "\n".join(lines) + "\n"


def _target(table: Json, columns: dict[str, Json], asked: str | None) -> tuple[str, str]:
    if asked is not None:
        if asked not in columns:
            raise UsageProblem(f"There is no column '{asked}'; the columns are {', '.join(list(columns)[:20])}.")
        return asked, _kind(columns[asked])
    if table.get("default_target"):
        return str(table["default_target"]), "the set's own target"
    usual = next((name for name in columns if name.lower() in _USUAL_TARGETS), None)
    if usual is not None:
        return usual, f"guessed by its name; {_kind(columns[usual])}"
    last = list(columns)[-1]
    return last, f"a guess: the last column; {_kind(columns[last])}"


def _kind(column: Json) -> str:
    distinct = column.get("distinct", 0)
    if column["kind"] in ("text", "boolean"):
        return f"{distinct} classes"
    if column["kind"] == "integer" and distinct <= 20:  # noqa: PLR2004 - as `task: auto` decides, see docs/spec.md
        return f"{distinct} whole numbers, taken for classes"
    return "a number: regression"


def _unfit(notes: list[Json], columns: dict[str, Json], target: str) -> dict[str, str]:
    found = {
        note["column"]: _LEFT_OUT[note["code"]]
        for note in notes
        if note["code"] in _LEFT_OUT and note.get("column") not in (None, target)
    }
    times = {
        name: "a time, good for split.column alone" for name, column in columns.items() if column["kind"] == "time"
    }
    return {**times, **found}


def _model(table: Json) -> list[str]:
    if table.get("image_shape"):
        return [
            '  "model": {"type": "cnn", "filters": [16, 32], "dropout": 0.1},',
            '  // or "linear", {"type": "mlp", "hidden": [64, 64]}, "resnet", {"type": "sequential", "layers": […]}',
        ]
    return [
        '  "model": {"type": "mlp", "hidden": [64, 64], "dropout": 0.1},',
        '  // or "linear", or {"type": "sequential", "layers": [{"type": "dense", "units": 64, "activation": "relu"}]}',
    ]


def _features(features: list[str], left_out: dict[str, str]) -> list[str]:
    notes = [f"    // left out: {harmless(name)} ({reason})" for name, reason in left_out.items()]
    if not left_out:
        return [f'    "features": "all", // the {len(features)} other columns, or a list of names']
    return [*notes, f'    "features": {json.dumps(features, ensure_ascii=False)},']


def _missing(gaps: dict[str, int]) -> list[str]:
    if not gaps:
        return ['    "missing": "error", // there are no gaps; drop or impute would fill them']
    told = ", ".join(f"{harmless(name)} {count}" for name, count in list(gaps.items())[:6])
    more = f" and {len(gaps) - 6} more columns" if len(gaps) > 6 else ""  # noqa: PLR2004 - as many as one line holds
    return [
        f"    // gaps: {told}{more}",
        '    "missing": "impute", // or drop: leave such rows out; error: refuse them',
    ]


def _hyperparameters() -> list[str]:
    return [
        '  "hyperparameters": {',
        '    "epochs": 30, "batch_size": 32, "learning_rate": 0.003,',
        '    "optimizer": "adam", // sgd, adamw, rmsprop, adagrad',
        '    "schedule": "cosine", // constant, step, exponential, reduce_on_plateau; each with warmup_steps',
        '    "early_stopping": {"monitor": "val_loss", "patience": 10} // keeps the best weights; null: never',
        "  },",
    ]


def _short(dataset: Json) -> str:
    return str(dataset.get("name") or dataset["id"]).rpartition("/")[2].partition(".")[0][:120] or "job"


def _found(client: Client, name: str) -> Json:
    neither = UsageProblem(f"'{name}' is neither a file here nor a data set. `trainshed datasets ls` lists them.")
    if not name or any(character in name for character in "/\\?#%."):
        raise neither
    try:
        found: Json = client.get(f"/v1/datasets/{name}")
    except Refused as error:
        if error.content.get("code") == "not_found":
            raise neither from error
        raise
    return found


def _write(output: Path, text: str) -> None:
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageProblem(f"{output} cannot be written: {error.strerror}.") from error
