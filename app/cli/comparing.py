"""`trainshed compare A B`: what two jobs were told differently, and what came of it."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from app.cli.figures import duration, number
from app.cli.identity import resolve_job
from app.cli.options import AsJson, Key, Url, session
from app.cli.tables import Json, table

commands = typer.Typer()

# Says where a job ran or how it is called, not what was trained.
_NOT_COMPARED = frozenset({"name", "tags"})


@commands.command()
def compare(
    context: typer.Context,
    first: Annotated[str, typer.Argument(metavar="A", help="A job's id, its last characters, or `latest`.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Compare two jobs: the settings that differ, the metrics side by side, and the difference."""
    with session(context, url, key, as_json=as_json) as at:
        pair = [at.client.get(f"/v1/jobs/{resolve_job(at.client, name)}") for name in (first, second)]
        left, right = pair
        settings = list(differences(left.get("effective_spec") or {}, right.get("effective_spec") or {}))
        metrics = list(measured(left, right))
        content = {
            "jobs": [job["id"] for job in pair],
            "settings": [{"path": path, "values": [left, right]} for path, left, right in settings],
            "metrics": [{"name": name, "last": last, "best": best} for name, last, best in metrics],
        }
        titles = [_title(job) for job in pair]
        shown = [(path, _shown(left), _shown(right)) for path, left, right in settings]
        at.show(
            content,
            _facts(pair, titles),
            table(("setting", *titles), shown) if shown else "Both were told the same.",
            _metrics_table(metrics, [_short(job) for job in pair]) if metrics else "Neither has metrics yet.",
        )


def differences(left: Any, right: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401 - JSON
    """Every place where two specs differ, as `hyperparameters.epochs`; a member that one lacks is None there."""
    if not (isinstance(left, dict) and isinstance(right, dict)):
        if left != right:
            yield path, left, right
        return
    for name in [*left, *(name for name in right if name not in left)]:
        if path or name not in _NOT_COMPARED:
            yield from differences(left.get(name), right.get(name), f"{path}.{name}" if path else name)


def measured(left: Json, right: Json) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Name, the newest values, the values of the best epoch, for every metric of either job."""
    found = [job.get("metrics") or {} for job in (left, right)]
    names = {name for metrics in found for part in ("last", "best") for name in metrics.get(part) or {}}
    for name in sorted(names):
        yield name, *([(metrics.get(part) or {}).get(name) for metrics in found] for part in ("last", "best"))


def _title(job: Json) -> str:
    return f"{job.get('name') or job['framework']} {_short(job)}"


def _short(job: Json) -> str:
    return f"…{job['id'][-6:]}"


def _facts(pair: list[Json], titles: list[str]) -> Any:  # noqa: ANN401 - something that Rich can print
    rows = [
        ("state", *(job["state"] for job in pair)),
        ("run time", *(duration(job["run_s"]) if job.get("run_s") else "–" for job in pair)),
        ("attempts", *(job.get("attempt") for job in pair)),
    ]
    return table(("job", *titles), rows)


def _metrics_table(metrics: list[tuple[str, list[Any], list[Any]]], titles: list[str]) -> Any:  # noqa: ANN401 - as above
    rows = [
        (name, *(number(value) for value in last), _gap(last), *(number(value) for value in best))
        for name, last, best in metrics
    ]
    return table(("metric", *titles, "difference", *(f"best {title}" for title in titles)), rows)


def _gap(values: list[Any]) -> str:
    left, right = values
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    return f"{right - left:+.4g}" if numbers else "–"


def _shown(value: Any) -> str:  # noqa: ANN401 - JSON
    return "–" if value is None else str(value)
