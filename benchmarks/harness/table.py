"""One table per benchmark, and its rows as JSON."""

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One comparison. `ratio` is what `bar` speaks of; everything of a peer that did not run is None."""

    work: str
    ours: float | None
    peer: float | None
    peer_name: str
    ratio: float | None
    bar: str
    holds: bool | None


def at_least(work: str, ours: float, peer: float | None, peer_name: str, factor: float) -> Row:
    """More is better: ours must be at least `factor` times the peer's."""
    ratio = None if peer is None else ours / peer
    return Row(work, ours, peer, peer_name, ratio, f">= {factor:g}x", None if ratio is None else ratio >= factor)


def at_most(work: str, ours_s: float, peer_s: float | None, peer_name: str, factor: float) -> Row:
    """Seconds, less is better: the peer must take at least `factor` times as long."""
    ratio = None if peer_s is None else peer_s / ours_s
    return Row(work, ours_s, peer_s, peer_name, ratio, f">= {factor:g}x", None if ratio is None else ratio >= factor)


def at_most_plus(work: str, ours_s: float, peer_s: float | None, peer_name: str, extra_s: float) -> Row:
    """Seconds, less is better: ours may take `extra_s` more than the peer."""
    ratio = None if peer_s is None else ours_s / peer_s
    holds = None if peer_s is None else ours_s <= peer_s + extra_s
    return Row(work, ours_s, peer_s, peer_name, ratio, f"<= peer + {extra_s:g} s", holds)


def arguments(description: str) -> argparse.Namespace:
    """`--json FILE` writes the rows; `--peer-python PATH` is an interpreter that has the peers."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--peer-python", type=Path, default=None)
    return parser.parse_args()


def show(title: str, rows: Sequence[Row], target: Path | None) -> None:
    """Print the table; with a target also write its rows."""
    cells = [("work", "ours", "peer", "peer name", "ratio", "bar", "holds")]
    cells += [
        (row.work, _number(row.ours), _number(row.peer), row.peer_name, _number(row.ratio), row.bar, _yes(row.holds))
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    print(f"\n{title}")
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    if target is not None:
        target.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


def median_of(count: int, measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(count))


def _number(value: float | None) -> str:
    return "not run" if value is None else f"{value:.4g}"


def _yes(holds: bool | None) -> str:  # noqa: FBT001 - a cell of the table
    return "not run" if holds is None else ("yes" if holds else "NO")
