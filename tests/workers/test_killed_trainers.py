"""Trainers that are killed go on from their last complete checkpoint and end as if they had not been. Real processes.

Final metrics, best epoch, the saved model and every value of every epoch are those of the unbroken run, to the bit, at
the same number of threads. The cases are C35 (killed while saving), C36 (schedules go on) and C53 (a checkpoint can be
read again).
"""

import functools
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workers.trainer_runs import Run, next_attempt, run_trainer
from tests.workers.training_jobs import builtin_job
from workers.protocol import Artifact, Assignment, Device

SEED = secrets.randbits(32)
"""Printed by every test with random moments; set it here to meet the same moments again."""

POINTS = (
    "checkpoint.begin:4",
    "checkpoint.half_written:12",
    "checkpoint.before_manifest:3",
    "checkpoint.after_manifest:3",
    "checkpoint.announced:3",
)
FRAMEWORKS = ("torch", "tensorflow")

Unbroken = Callable[[str, int], Run]


def job(work_dir: Path, framework: str, devices: int) -> Assignment:
    """Batch norm, dropout, momentum, a warmed-up cosine, early stopping; 14 epochs, a checkpoint after each."""
    assignment = builtin_job(
        work_dir,
        {"source": "breast_cancer", "split": {"validation": 0.2, "test": 0.1}},
        framework,
        model={"type": "mlp", "hidden": [32, 16], "dropout": 0.3, "batch_norm": True},
        hyperparameters={
            "epochs": 14,
            "batch_size": 32,
            "learning_rate": 0.01,
            "schedule": {"name": "cosine", "warmup_steps": 20},
            "early_stopping": {"patience": 12},
            "checkpoint_every_epochs": 1,
        },
    )
    slots = [Device(id=f"cpu-{place}@host", kind="cpu", name="CPU") for place in range(devices)]
    return assignment.model_copy(update={"devices": slots, "threads": devices})


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Unbroken:
    """Run a job from end to end, each once."""

    @functools.cache
    def run(framework: str, devices: int) -> Run:
        run = run_trainer(job(tmp_path_factory.mktemp("whole") / "run", framework, devices))
        assert run.status == 0, run.output
        return run

    return run


def values(*runs: Run) -> dict[tuple[str, int], float]:
    """Each value by name and step, an attempt's only up to where the next one took over, and each once."""
    found: dict[tuple[str, int], float] = {}
    for place, run in enumerate(runs):
        last = min((later.resumed_from for later in runs[place + 1 :]), default=1 << 62)
        for point in run.points:
            if point.name in {"samples_per_s", "step_loss"} or point.step > last:
                continue
            assert (point.name, point.step) not in found, f"{point} was told twice"
            found[point.name, point.step] = point.value
    return found


def outcome(run: Run) -> dict[str, Any]:
    folder = Path(run.assignment.work_dir)
    files = {message.name: folder / message.path for message in run.messages if isinstance(message, Artifact)}
    assert not [name for name in files if ".tmp" in name]
    return {
        "metrics": {name: value for name, value in run.done.metrics.items() if name != "samples_per_s"},
        "best": (run.done.best_epoch, run.done.best_step),
        "model": files["model.safetensors"].read_bytes(),
    }


def require_same(whole: Run, *runs: Run) -> None:
    assert runs[-1].status == 0, runs[-1].output
    assert outcome(runs[-1]) == outcome(whole)
    assert values(*runs) == values(whole)


def random_moments(*key: int) -> np.random.Generator:
    sys.stdout.write(f"SEED = {SEED}, key {key}\n")
    return np.random.default_rng([SEED, *key])


def killed_at_a_random_moment(assignment: Assignment, moments: np.random.Generator, seconds: float) -> Run:
    run = run_trainer(assignment, kill_after_s=float(moments.uniform(0, seconds)))
    assert run.status in {-9, 0}
    return run


def check_point(tmp_path: Path, whole: Run, framework: str, devices: int, point: str) -> None:
    first = run_trainer(job(tmp_path / "1", framework, devices), fault=point)
    assert first.status == -9
    # Everything that was announced can be read, whatever was being written when it was killed.
    assert len(first.stored) == 3 if point.endswith("announced:3") or "begin" in point else 2

    second = run_trainer(next_attempt(first, tmp_path / "2"))

    assert second.resumed_from == first.stored[-1][0].step
    require_same(whole, first, second)


def check_random_moment(tmp_path: Path, whole: Run, framework: str, devices: int, turn: int) -> None:
    moments = random_moments(FRAMEWORKS.index(framework), devices, turn)
    runs = [killed_at_a_random_moment(job(tmp_path / "1", framework, devices), moments, whole.seconds)]
    if runs[0].status != 0:  # it was not quicker than the kill
        runs.append(run_trainer(next_attempt(runs[0], tmp_path / "2")))

    require_same(whole, *runs)


class TestOneKill:
    """A short choice of what `TestEveryKill` does in full."""

    @pytest.mark.parametrize(
        ("framework", "devices", "point"),
        [
            ("torch", 1, "checkpoint.half_written:12"),
            ("torch", 2, "checkpoint.before_manifest:3"),
            ("tensorflow", 1, "checkpoint.announced:3"),
            ("tensorflow", 2, "checkpoint.after_manifest:3"),
        ],
    )
    def test_at_a_named_point(
        self, tmp_path: Path, unbroken: Unbroken, framework: str, devices: int, point: str
    ) -> None:
        check_point(tmp_path, unbroken(framework, devices), framework, devices, point)

    def test_at_a_random_moment(self, tmp_path: Path, unbroken: Unbroken) -> None:
        check_random_moment(tmp_path, unbroken("torch", 1), "torch", 1, 0)


@pytest.mark.full
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("framework", FRAMEWORKS)
class TestEveryKill:
    @pytest.mark.parametrize("point", POINTS)
    def test_at_a_named_point(
        self, tmp_path: Path, unbroken: Unbroken, framework: str, devices: int, point: str
    ) -> None:
        check_point(tmp_path, unbroken(framework, devices), framework, devices, point)

    @pytest.mark.parametrize("turn", [1, 2, 3])
    def test_at_a_random_moment(
        self, tmp_path: Path, unbroken: Unbroken, framework: str, devices: int, turn: int
    ) -> None:
        check_random_moment(tmp_path, unbroken(framework, devices), framework, devices, turn)


class TestManyKills:
    """Case C35: one training, killed again and again at random moments, always goes on from what was complete."""

    @pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.full)])
    def test_cost_nothing_but_time(self, tmp_path: Path, unbroken: Unbroken, kills: int) -> None:
        moments = random_moments(kills)
        whole = unbroken("torch", 1)
        runs: list[Run] = []
        assignment = job(tmp_path / "0", "torch", 1)
        for turn in range(1, kills + 1):
            # Short lives, so that the training is still not over after the last kill.
            run = killed_at_a_random_moment(assignment, moments, 2 * whole.seconds / kills)
            runs.append(run)
            if run.status == 0:
                break
            assignment = next_attempt(run, tmp_path / str(turn))
        if runs[-1].status != 0:
            runs.append(run_trainer(assignment))

        steps = [run.resumed_from for run in runs]
        assert steps == sorted(steps)  # never back behind what was stored
        require_same(whole, *runs)
