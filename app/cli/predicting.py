"""Commands that use a trained model: predict, export."""

import json
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from app.cli.errors import CliError, UsageProblem
from app.cli.figures import harmless, number
from app.cli.identity import resolve_job
from app.cli.options import AsJson, JobName, Key, Session, Url, session
from app.cli.tables import table

commands = typer.Typer()

_ASK_S: Final = 0.5
_LONGEST_REQUEST_S: Final = 30.0
_SHOWN_CLASSES: Final = 3


class TaskFailed(CliError):
    """A prediction or an export that could not be made; the server's own reason."""

    code = "task_failed"

    def __init__(self, task: dict[str, Any]) -> None:
        self.error = task.get("error") or {}
        super().__init__(str(self.error.get("message") or f"The task ended {task.get('state')}."))

    @property
    def lines(self) -> list[str]:
        return [str(problem.get("message", "")) for problem in self.error.get("errors") or []]


@commands.command()
def predict(
    context: typer.Context,
    job: JobName,
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="A CSV file with a header, or JSON rows; - reads standard input."),
    ] = None,
    row: Annotated[
        list[str] | None,
        typer.Option(
            "--row", metavar="JSON", help='One row as an object, {"sepal length (cm)": 5.1}; may be repeated.'
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=600, help="How long to wait for the answer, in seconds.")
    ] = 60.0,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Predict from raw rows with a finished job's model: `trainshed predict latest new.csv`."""
    with session(context, url, key, as_json=as_json) as at:
        body, media = _rows(file, row or [], at)
        path = f"/v1/jobs/{resolve_job(at.client, job)}/predict"
        asked = {"timeout_s": min(timeout, _LONGEST_REQUEST_S)}
        answer = _finished(at, at.client.post(path, body, media=media, params=asked), timeout)
        for warning in [] if as_json else answer.get("warnings") or []:
            at.edge.err.print(f"warning: {harmless(warning['message'])}")
        at.show(answer, _answers(answer))


@commands.command()
def export(
    context: typer.Context,
    job: JobName,
    form: Annotated[str, typer.Argument(metavar="FORMAT", help="onnx, keras, report or tensorboard.")],
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Make a file of another format from a finished job's model; `artifacts` then downloads it."""
    with session(context, url, key, as_json=as_json) as at:
        job_id = resolve_job(at.client, job)
        task = at.client.post(f"/v1/jobs/{job_id}/exports", json.dumps({"format": form}).encode())
        done = _finished(at, task, 600.0)
        names = [item["name"] for item in done["artifacts"]]
        at.show(done, "\n".join(f"{name}: trainshed artifacts {job_id} --download {name}" for name in names) or "done")


def _rows(file: str | None, given: list[str], at: Session) -> tuple[bytes, str]:
    """The body and what it is: a CSV file goes as it is, since its cells have no types that JSON could carry."""
    if (file is None) == (not given):
        raise UsageProblem("Give a file of rows, or --row with one row as JSON, for example --row '{\"age\": 41}'.")
    if file is None:
        return _json_rows([_object(text) for text in given])
    try:
        text = at.edge.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageProblem(f"{file} cannot be read: {reason}.") from error
    if not text.strip():
        raise UsageProblem(f"{file} is empty; it needs a header and at least one row, for example 'a,b\\n1,2\\n'.")
    if text.lstrip().startswith(("[", "{")):
        rows = _decoded(text)
        return _json_rows(rows if isinstance(rows, list) else [rows])
    return text.encode(), "text/csv"


def _json_rows(rows: list[Any]) -> tuple[bytes, str]:
    return json.dumps({"rows": rows}).encode(), "application/json"


def _object(text: str) -> Any:  # noqa: ANN401 - JSON
    row = _decoded(text)
    if not isinstance(row, dict):
        raise UsageProblem(f'--row {text} is not an object, for example {{"age": 41}}.')
    return row


def _decoded(text: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageProblem(f"The rows are not JSON: {error}.") from error


def _finished(at: Session, task: dict[str, Any], patience_s: float) -> dict[str, Any]:
    """Wait for a task that took longer than its request; one that ended badly is an error."""
    waited = time.monotonic() + patience_s
    while task.get("state") in ("queued", "running"):
        if time.monotonic() > waited:
            raise UsageProblem(
                f"{task['id']} has not ended within {patience_s:g} s; it goes on: GET /v1/predictions/{task['id']}."
            )
        at.edge.pause(_ASK_S)
        task = at.client.get(f"/v1/predictions/{task['id']}")
    if task.get("state") in ("failed", "expired"):
        raise TaskFailed(task)
    return task


def _answers(result: dict[str, Any]) -> Any:  # noqa: ANN401 - something that Rich can print
    if result.get("labels") is None:
        return table(
            ("row", "value"), ((place, number(value)) for place, value in enumerate(result["values"], start=1))
        )
    pairs = zip(result["labels"], result.get("probabilities") or [{}] * len(result["labels"]), strict=True)
    return table(
        ("row", "label", "probabilities"),
        ((place, label, _likeliest(found)) for place, (label, found) in enumerate(pairs, start=1)),
    )


def _likeliest(probabilities: dict[str, float]) -> str:
    order = sorted(probabilities.items(), key=lambda pair: -pair[1])[:_SHOWN_CLASSES]
    return ", ".join(f"{label} {number(share)}" for label, share in order)
