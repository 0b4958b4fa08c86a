"""API objects as tables for a terminal. Everything that came from the server is text, never markup."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich import box
from rich.table import Table
from rich.text import Text

from app.cli.figures import age, duration, harmless, moment, number, on_host, size

Json = Mapping[str, Any]

_WH_J: Final = 3600.0
# Enough to tell files apart; --json has all of it.
_DIGEST_SHOWN: Final = 12
_METRICS_SHOWN: Final = 2

# Columns that people copy from or look for: never broken over lines, whatever room is left for the others.
_WHOLE: Final = frozenset({"id", "dataset", "worker", "device", "file", "framework", "state"})

COLOURS: Final = {
    "succeeded": "green",
    "failed": "red",
    "cancelled": "yellow",
    "running": "cyan",
    "starting": "cyan",
    "free": "green",
    "busy": "cyan",
    "held": "cyan",
    "in_use_elsewhere": "yellow",
    "quarantined": "red",
    "online": "green",
    "unusable": "red",
    "offline": "red",
}


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> Table:
    """A plain table; cells that are the name of a state get its colour."""
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold", no_wrap=column in _WHOLE)
    for row in rows:
        made.add_row(*[_cell(value) for value in row])
    return made


def pairs(rows: Iterable[tuple[str, object]]) -> Table:
    """Names and values below each other; empty values are left out."""
    made = Table(box=None, show_header=False, pad_edge=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        if value not in (None, "", "–"):
            made.add_row(name, _cell(value))
    return made


def jobs_table(jobs: Iterable[Json]) -> Table:
    return table(
        ("id", "name", "framework", "state", "epochs", "devices", "age"),
        (
            (
                job["id"],
                job.get("name"),
                job["framework"],
                job["state"],
                _epochs(job),
                f"{job['device_count']} × {job['device_type']}",
                age(job["created_at"]),
            )
            for job in jobs
        ),
    )


def job_pairs(job: Json) -> Table:
    waiting = job.get("waiting") or {}
    effective = job.get("effective_spec") or {}
    return pairs(
        [
            ("job", job["id"]),
            ("name", job.get("name")),
            ("state", job["state"]),
            ("phase", job.get("phase")),
            ("stop asked", job.get("stop_requested")),
            ("cause", job.get("cause")),
            ("message", job.get("message")),
            ("waiting", waiting.get("message")),
            ("position", waiting.get("position")),
            ("framework", job["framework"]),
            *_about(effective),
            ("devices", f"{job['device_count']} × {job['device_type']}"),
            ("progress", _progress(job)),
            ("run time", duration(job["run_s"]) if job.get("run_s") else None),
            ("device time", _device_time(job)),
            ("energy", _energy(job)),
            ("bounded by", (job.get("usage") or {}).get("message")),
            ("parent", _parent(job)),
            ("owner", job.get("owner")),
            ("created", moment(job["created_at"])),
            ("finished", moment(job.get("finished_at"))),
            *(("warning", warning) for warning in job.get("warnings") or []),
        ]
    )


def metrics_table(job: Json) -> Table | None:
    """The newest values and those of the best epoch (the lowest validation loss); None when there are none."""
    metrics = job.get("metrics") or {}
    last, best = metrics.get("last") or {}, metrics.get("best") or {}
    names = sorted({*last, *best})
    if not names:
        return None
    return table(
        ("metric", "last", "best epoch"), ((name, number(last.get(name)), number(best.get(name))) for name in names)
    )


def attempts_table(attempts: Iterable[Json]) -> Table:
    return table(
        ("attempt", "devices", "started", "ended", "end"),
        (
            (
                attempt["number"],
                ", ".join(on_host(device["id"]) for device in attempt["devices"]),
                moment(attempt.get("started_at")),
                moment(attempt.get("ended_at")),
                _end_of(attempt),
            )
            for attempt in attempts
        ),
        title="Attempts",
    )


def datasets_table(datasets: Iterable[Json]) -> Table:
    return table(
        ("dataset", "name", "format", "state", "rows", "size", "age"),
        (
            (
                dataset["id"],
                dataset["name"],
                dataset["format"],
                dataset["state"],
                number(dataset["rows"]),
                size(dataset["size_bytes"]),
                age(dataset["created_at"]),
            )
            for dataset in datasets
        ),
    )


def columns_table(columns: Iterable[Json]) -> Table:
    return table(
        ("column", "kind", "missing", "distinct", "minimum", "maximum", "labels"),
        (
            (
                column["name"],
                column["kind"],
                column["missing"],
                column["distinct"],
                number(column.get("minimum")),
                number(column.get("maximum")),
                _few(column.get("labels") or []),
            )
            for column in columns
        ),
    )


def notes_table(dataset: Json) -> Table | None:
    """What the check of a data set found; None when that is nothing."""
    notes = dataset.get("problems") or []
    if not notes:
        return None
    return table(
        ("column", "finding", "count", "first row", "what it means"),
        ((note.get("column"), note["code"], note.get("count"), note.get("row"), note["message"]) for note in notes),
        title="Findings",
    )


def artifacts_table(artifacts: Iterable[Json]) -> Table:
    return table(
        ("file", "kind", "size", "attempt", "sha-256"),
        (
            (
                item["name"],
                item["kind"],
                size(item["size_bytes"]),
                item["attempt"],
                f"{item['digest'][:_DIGEST_SHOWN]}…",
            )
            for item in artifacts
        ),
    )


def _value_of(metrics: Json) -> str:
    """The loss; of a script that reports none its first metrics, with their names."""
    loss = metrics.get("val_loss", metrics.get("loss"))
    others = "  ".join(f"{harmless(name)} {number(value)}" for name, value in sorted(metrics.items())[:_METRICS_SHOWN])
    return number(loss) if loss is not None or not others else others


def checkpoints_table(checkpoints: Iterable[Json]) -> Table:
    return table(
        ("step", "epoch", "which", "val_loss or loss", "size", "attempt", "age"),
        (
            (
                item["step"],
                item["epoch"],
                ", ".join(name for name in ("best", "last", "final") if item.get(name)) or item.get("reason"),
                _value_of(item.get("metrics") or {}),
                size(item["size_bytes"]),
                item["attempt"],
                age(item["created_at"]),
            )
            for item in checkpoints
        ),
    )


def _cell(value: object) -> Text:
    text = "–" if value is None else "\n".join(harmless(line) for line in str(value).splitlines())
    return Text(text, style=COLOURS.get(text.partition(",")[0], ""))


def _about(effective: Json) -> list[tuple[str, object]]:
    """What is trained on what, or which command is run."""
    script = effective.get("script")
    if script is None:
        model, data = effective.get("model") or {}, effective.get("data") or {}
        return [("model", model.get("entrypoint") or model.get("type")), ("data", data.get("source"))]
    data = ", ".join(f"{name}={source}" for name, source in (script.get("data") or {}).items())
    return [("command", shlex.join(script["command"])), ("bundle", script.get("bundle")), ("data", data)]


def _epochs(job: Json) -> str:
    progress = job.get("progress") or {}
    if not progress.get("epoch") and not progress.get("epochs"):
        return "–"
    # A script need not say how many there will be.
    return f"{progress['epoch']}/{progress['epochs']}" if progress["epochs"] else str(progress["epoch"])


def _progress(job: Json) -> str:
    progress = job.get("progress")
    if not progress:
        return "–"
    place = f"{_epochs(job)} epochs" if _epochs(job) != "–" else f"step {progress['step']}"
    return f"{place}, {progress['fraction']:.0%}" if progress["fraction"] else place


def _device_time(job: Json) -> str | None:
    used = (job.get("usage") or {}).get("device_s")
    return duration(used) if used else None


def _energy(job: Json) -> str | None:
    joules = (job.get("usage") or {}).get("energy_j")
    return None if joules is None else f"{joules / _WH_J:.1f} Wh"


def _parent(job: Json) -> str | None:
    parent = job.get("parent")
    if not parent:
        return None
    step = parent.get("checkpoint")
    return f"{parent['how']} of {parent['job']}{'' if step is None else f', from step {step}'}"


def _end_of(attempt: Json) -> str:
    if attempt.get("cause"):
        how = ""
        if attempt.get("signal"):
            how = f" (signal {attempt['signal']})"
        elif attempt.get("exit_code") is not None:
            how = f" (exit {attempt['exit_code']})"
        return f"{attempt['cause']}{how}: {attempt.get('detail') or attempt.get('message') or ''}"
    return "ended" if attempt.get("ended_at") else "open"


def _few(labels: Sequence[str], limit: int = 6) -> str:
    shown = ", ".join(labels[:limit])
    return f"{shown}, …" if len(labels) > limit else shown
