"""The command `demo`."""

import contextlib
import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.live import Live

from app.cli.client import Client
from app.cli.demo.mishap import kill_once
from app.cli.demo.outcome import Outcome, outcomes_table
from app.cli.demo.plan import Trial, penguins_file, trials
from app.cli.demo.questions import answers_table, ask
from app.cli.demo.stage import service
from app.cli.edge import edge_of
from app.cli.errors import NOT_SUCCEEDED, OK
from app.cli.options import AsJson, Session

commands = typer.Typer()

_LOOK_S: Final = 0.2
_QUICK_LOOK_S: Final = 0.03
_NO_PENGUINS: Final = (
    "The package palmerpenguins is not installed, so the demo leaves out the upload of a CSV file, and cannot pass. "
    "Install it with: pip install palmerpenguins"
)


@commands.command("demo")
def demo(
    context: typer.Context,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the demo's home with jobs and models.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start a service of its own, train real jobs on torch and TensorFlow, kill a trainer, predict, show all, stop.

    Exit code 0 only when every job succeeded, its test metric clears its bar, what was killed went on from its
    checkpoint, and every prediction is right.
    """
    edge = edge_of(context)
    began = time.monotonic()
    file = penguins_file()
    if file is None:
        edge.err.print(_NO_PENGUINS)
    with service(edge.environ, keep=keep) as (connection, home):
        ready_s = time.monotonic() - began
        edge.err.print(f"A service is up at {connection.url} ({ready_s:.1f} s); API docs: {connection.url}/docs")
        with Client(connection, edge.transport, edge.pause) as client:
            at = Session(client, edge, as_json)
            outcomes = run_trials(at, file)
            answers = [answer for outcome in outcomes if outcome.passed for answer in ask(client, outcome)]
    seconds = time.monotonic() - began
    passed = file is not None and all(o.passed for o in outcomes) and all(answer.passed for answer in answers)
    kept = str(home) if keep else None
    if as_json:
        summary = {"passed": passed, "seconds": seconds, "ready_s": ready_s, "home": kept}
        content = {
            **summary,
            "jobs": [outcome.as_json() for outcome in outcomes],
            "predictions": [asdict(answer) for answer in answers],
        }
        edge.out.file.write(json.dumps(content, ensure_ascii=False) + "\n")
    else:
        edge.out.print(outcomes_table(outcomes))
        if answers:
            edge.out.print(answers_table(answers))
        _explain(edge.out, outcomes, home if keep else None)
        edge.out.print(f"{'Every bar holds' if passed else 'NOT every bar holds'}; {seconds:.0f} s in all.")
    raise typer.Exit(OK if passed else NOT_SUCCEEDED)


def run_trials(at: Session, penguins: Path | None) -> list[Outcome]:
    """Submit every trial at once; the scheduler runs as many together as there are devices. Returns when all ended."""
    source = None
    if penguins is not None:
        source = str(at.client.upload("/v1/datasets", penguins, {"name": penguins.name})["id"])
    outcomes = [Outcome(trial, _submit(at.client, trial)) for trial in trials(source, pair_of_devices(at.client))]
    with _shown(at) as show:
        outcomes = _kill_some(at, outcomes)
        while not all(outcome.ended for outcome in outcomes):
            at.edge.pause(_LOOK_S)
            outcomes = [outcome if outcome.ended else _look(at.client, outcome) for outcome in outcomes]
            show(outcomes)
    return outcomes


def _kill_some(at: Session, outcomes: list[Outcome]) -> list[Outcome]:
    """Kill the trainers that the plan says to, each once it has left a checkpoint.

    Nothing else is looked at meanwhile: on a fast machine such a job is over within a second.
    """
    spared = {outcome.trial.name for outcome in outcomes if outcome.trial.kill}
    while spared:
        at.edge.pause(_QUICK_LOOK_S)
        outcomes = [_look(at.client, outcome) if outcome.trial.name in spared else outcome for outcome in outcomes]
        met = [o for o in outcomes if o.trial.name in spared and (o.ended or kill_once(at.client, o.job))]
        spared -= {outcome.trial.name for outcome in met}
    return outcomes


def pair_of_devices(client: Client) -> str | None:
    """The type of device of which this service has two or more; None when there is no such type."""
    kinds = Counter(device["kind"] for device in client.get("/v1/devices")["data"] if device["state"] != "unusable")
    return next((kind for kind, count in kinds.items() if count > 1), None)


def _submit(client: Client, trial: Trial) -> dict[str, Any]:
    job: dict[str, Any] = client.post("/v1/jobs", json.dumps(trial.spec).encode(), key=str(uuid.uuid4()))
    return job


def _look(client: Client, outcome: Outcome) -> Outcome:
    path = f"/v1/jobs/{outcome.job['id']}"
    now = Outcome(outcome.trial, client.get(path))
    return Outcome(now.trial, now.job, client.get(f"{path}/artifacts")["data"]) if now.ended else now


@contextlib.contextmanager
def _shown(at: Session) -> Iterator[Callable[[list[Outcome]], None]]:
    """A table that changes, on a terminal; elsewhere a line for each job that has ended."""
    if at.as_json:
        yield lambda _outcomes: None
    elif at.edge.out.is_terminal:
        with Live(console=at.edge.out, transient=True, refresh_per_second=4) as live:
            yield lambda outcomes: live.update(outcomes_table(outcomes))
    else:
        yield _each_once(at.edge.out)


def _each_once(out: Console) -> Callable[[list[Outcome]], None]:
    said: set[str] = set()

    def show(outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.ended and outcome.trial.name not in said:
                said.add(outcome.trial.name)
                out.print(f"{outcome.trial.name}: {outcome.job['state']}")

    return show


def _explain(out: Console, outcomes: list[Outcome], home: Path | None) -> None:
    for outcome in outcomes:
        if outcome.job["state"] != "succeeded":
            out.print(f"{outcome.trial.name}: {outcome.job.get('cause')}: {outcome.job.get('message')}")
    if home is None:
        out.print("The models were stored in the demo's home, which is gone now; --keep keeps it.")
    else:
        out.print(f"The models are stored in {home / 'storage'}.")
        out.print(f"To look around: trainshed up --home {home}")
