"""The jobs that are put in danger, and how they must come out: every epoch once, by the attempts that were expected."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from scripts.compose_test.service import Json, Service, UnexpectedAnswer
from scripts.compose_test.stack import Stack, until

FRAMEWORKS: Final = ("torch", "tensorflow")
ACCURACY: Final = 0.93
# Long enough for a fault in the midst of it, on a slow machine as on a fast one: see `epochs_for`.
LONG_S: Final = 40.0
_CHECKPOINTS: Final = 10
_LEAST_EPOCHS: Final = 40


@dataclass
class Drill:
    """What the steps share. `rates` are samples per second by framework, as the first jobs showed them."""

    stack: Stack
    service: Service
    scratch: Path
    key: str
    rates: dict[str, float] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)


def digits(framework: str, epochs: int, **changes: Any) -> Json:  # noqa: ANN401 - any part of a spec
    """scikit-learn's digits and a small network, which reaches its bar within 20 epochs (docs/evidence)."""
    spec = {
        "name": f"digits on {framework}",
        "framework": framework,
        "model": {"type": "mlp", "hidden": [64]},
        "data": {"source": "digits", "split": {"validation": 0.2, "test": 0.2}},
        "hyperparameters": {"epochs": epochs, "batch_size": 32, "learning_rate": 0.003, "seed": 7},
        "device_type": "cpu",
        "device_count": 1,
    }
    return spec | changes


def train_whole(drill: Drill, spec: Json, metric: str, bar: float) -> Json:
    """Train `spec` to its end; raises unless its metric clears the bar at the first attempt."""
    job = drill.service.wait(drill.service.submit(spec))
    value = job["metrics"]["last"].get(metric)
    if not isinstance(value, float) or value < bar:
        raise UnexpectedAnswer(f"{metric} is {value}, and must be at least {bar}")
    expect_attempts(job, [None])
    drill.rates.setdefault(job["framework"], float(job["metrics"]["last"].get("samples_per_s") or 0))
    return job


def epochs_for(seconds: float, rate: float, rows: int) -> int:
    """How many epochs of `rows` take about `seconds` at `rate` samples a second."""
    return max(_LEAST_EPOCHS, round(seconds * rate / rows))


def begin(drill: Drill, framework: str) -> str:
    """A job that has left a checkpoint and has most of its way to go."""
    rows = 1078  # three fifths of the 1797 digits
    epochs = epochs_for(LONG_S, drill.rates[framework], rows)
    hyperparameters = digits(framework, epochs)["hyperparameters"]
    often = {**hyperparameters, "checkpoint_every_epochs": max(1, epochs // _CHECKPOINTS)}
    job_id = drill.service.submit(digits(framework, epochs, hyperparameters=often, exports=[]))
    until(lambda: bool(drill.service.checkpoints(job_id)) or None, f"{job_id} has left a checkpoint", 120)
    return job_id


def came_through(drill: Drill, job_id: str, causes: Sequence[str | None]) -> Json:
    """The job, once it has succeeded with exactly these attempts, every epoch told once, and a journal without gaps."""
    job = drill.service.wait(job_id)
    expect_attempts(job, causes)
    epochs = job["effective_spec"]["hyperparameters"]["epochs"]
    told = drill.service.trained(job_id)["epoch"]
    if told != list(range(1, epochs + 1)):
        raise UnexpectedAnswer(f"{job_id} told {len(told)} epochs of {epochs}, {len(set(told))} of them different")
    numbers = [event["seq"] for event in drill.service.events(job_id)]
    if numbers != list(range(1, len(numbers) + 1)):
        raise UnexpectedAnswer(f"the journal of {job_id} has gaps or repeats: {len(numbers)} events")
    return job


def expect_attempts(job: Json, causes: Sequence[str | None]) -> None:
    found = [attempt["cause"] for attempt in job["attempts"]]
    if found != list(causes):
        raise UnexpectedAnswer(f"the attempts of {job['id']} ended by {found}, and should have by {list(causes)}")


def went_on_without_loss(drill: Drill, job: Json) -> int:
    """The step at which the second attempt went on, which is where the first stopped: no step was trained twice.

    Raises:
        UnexpectedAnswer: the first had come further than the checkpoint, or the second did not use it.
    """
    resumed = job["attempts"][1]["resumed_from_step"]
    series = drill.service.trained(job["id"])
    rows = list(zip(series["step"], series["attempt"], strict=True))
    first = max((step for step, attempt in rows if attempt == 1), default=0)
    second = min((step for step, attempt in rows if attempt == job["attempts"][1]["number"]), default=None)
    if resumed is None or first > resumed or (second is not None and second <= resumed):
        raise UnexpectedAnswer(f"attempt 1 told step {first}, attempt 2 went on at {resumed} and told {second}")
    reasons = {point["step"]: point["reason"] for point in drill.service.checkpoints(job["id"])}
    if resumed in reasons and reasons[resumed] not in {"stop", "periodic", "best"}:
        raise UnexpectedAnswer(f"the checkpoint of step {resumed} was written for '{reasons[resumed]}'")
    return int(resumed)
