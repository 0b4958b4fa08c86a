"""What became of a trial, for people and for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.table import Table

from app.cli.demo.plan import Trial
from app.cli.figures import duration, number
from app.cli.tables import table
from app.jobs.states import FINAL

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """A trial with the newest state of its job, and the files that the job left."""

    trial: Trial
    job: Json
    artifacts: Sequence[Json] = ()

    @property
    def ended(self) -> bool:
        return self.job["state"] in FINAL

    @property
    def value(self) -> float | None:
        """The metric; None while it is not there, or when it is not a finite number."""
        value = ((self.job.get("metrics") or {}).get("last") or {}).get(self.trial.metric)
        return float(value) if isinstance(value, int | float) else None

    @property
    def passed(self) -> bool:
        good = self.job["state"] == "succeeded" and self.value is not None and self.value >= self.trial.bar
        return good and (self.resumed_from is not None or not self.trial.kill)

    @property
    def resumed_from(self) -> int | None:
        """The step from which the last attempt went on; None when it began anew."""
        attempts = self.job.get("attempts") or []
        step = attempts[-1].get("resumed_from_step") if len(attempts) > 1 else None
        return None if step is None else int(step)

    @property
    def device(self) -> str:
        attempts = self.job.get("attempts") or []
        devices = attempts[-1]["devices"] if attempts else []
        return ", ".join(str(device["name"]) for device in devices) or "–"

    @property
    def wall_s(self) -> float | None:
        """From its placement on a device to its end: the start of interpreter and framework are part of it."""
        attempt = (self.job.get("attempts") or [{}])[-1]
        if not attempt.get("placed_at") or not attempt.get("ended_at"):
            return None
        began, ended = (datetime.fromisoformat(attempt[name]) for name in ("placed_at", "ended_at"))
        return (ended - began).total_seconds()

    @property
    def samples_per_s(self) -> Any:  # noqa: ANN401 - a metric out of JSON
        return ((self.job.get("metrics") or {}).get("last") or {}).get("samples_per_s")

    def as_json(self) -> dict[str, Any]:
        return {
            "job_id": self.job["id"],
            "name": self.trial.name,
            "framework": self.job["framework"],
            "data": self.job["effective_spec"]["data"]["source"],
            "state": self.job["state"],
            "cause": self.job.get("cause"),
            "message": self.job.get("message"),
            "wall_s": self.wall_s,
            "device": self.device,
            "samples_per_s": self.samples_per_s,
            "metric": self.trial.metric,
            "value": self.value,
            "bar": self.trial.bar,
            "resumed_from_step": self.resumed_from,
            "passed": self.passed,
            "artifacts": [item["name"] for item in self.artifacts],
        }


def outcomes_table(outcomes: Sequence[Outcome]) -> Table:
    return table(
        ("job", "framework", "data", "state", "time", "device", "samples/s", "metric", "value", "bar", "resumed at"),
        (
            (
                outcome.job["id"],
                outcome.job["framework"],
                outcome.trial.name.partition(" ")[0],
                outcome.job["state"],
                duration(outcome.wall_s),
                outcome.device,
                number(outcome.samples_per_s),
                outcome.trial.metric,
                f"{number(outcome.value)}{_mark(outcome)}",
                f"≥ {outcome.trial.bar:g}",
                None if outcome.resumed_from is None else f"step {outcome.resumed_from}",
            )
            for outcome in outcomes
        ),
    )


def _mark(outcome: Outcome) -> str:
    return "" if not outcome.ended else " ✓" if outcome.passed else " ✗"
