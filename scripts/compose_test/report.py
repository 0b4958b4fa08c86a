"""The steps one after the other, each with its outcome on the terminal, and all in a table at the end."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

Outcome = Literal["ok", "FAILED", "left out"]
_DETAIL: Final = 400


@dataclass(frozen=True)
class Row:
    step: str
    outcome: Outcome
    seconds: float
    detail: str


@dataclass
class Report:
    """What was done so far; `say` shows a line."""

    say: Callable[[str], None] = print
    clock: Callable[[], float] = time.monotonic
    rows: list[Row] = field(default_factory=list)

    def step(self, name: str, work: Callable[[], str]) -> bool:
        """Do it and write down how it went; whether it went well. An interruption goes on upwards."""
        self.say(f"… {name}")
        began = self.clock()
        try:
            outcome, detail = "ok", work()
        except Exception as error:  # noqa: BLE001 - whatever a step met belongs into the table, and the rest goes on
            outcome, detail = "FAILED", f"{type(error).__name__}: {error}"
        row = Row(name, "ok" if outcome == "ok" else "FAILED", self.clock() - began, detail.strip())
        self.rows.append(row)
        self.say(f"{mark(row)} {name} ({row.seconds:.1f} s) {row.detail}")
        return row.outcome == "ok"

    def leave_out(self, name: str, reason: str) -> None:
        self.rows.append(Row(name, "left out", 0.0, reason))
        self.say(f"– {name}: {reason}")

    @property
    def passed(self) -> bool:
        return all(row.outcome != "FAILED" for row in self.rows)

    def table(self) -> str:
        """A Markdown table: it reads as well on a terminal as in docs/evidence."""
        lines = ["| step | outcome | seconds | detail |", "|---|---|---|---|"]
        lines += [f"| {row.step} | {row.outcome} | {row.seconds:.1f} | {_one_line(row.detail)} |" for row in self.rows]
        return "\n".join(lines)


def mark(row: Row) -> str:
    return {"ok": "✓", "FAILED": "✗", "left out": "–"}[row.outcome]


def _one_line(text: str) -> str:
    """Bars and new lines would break the table."""
    flat = " ".join(text.split()).replace("|", "/")
    return flat if len(flat) <= _DETAIL else f"{flat[: _DETAIL - 1]}…"
