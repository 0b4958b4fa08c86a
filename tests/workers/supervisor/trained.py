"""What a trainer would write: small but real checkpoints, and the message that announces one."""

from pathlib import Path
from typing import Any

import numpy as np

from tests.workers.fake_launcher import FakeRun
from workers.checkpoints import Position, State, write
from workers.protocol import Checkpoint


def state(step: int) -> State:
    position = Position(
        step=step, epoch=step // 10, metrics={"loss": 1 / step}, framework="torch", threads=1, spec_digest="0" * 64
    )
    weights = {"output.kernel": np.full((4, 3), step, np.float32), "output.bias": np.zeros(3, np.float32)}
    return State(weights=weights, optimizer={"step": np.array(step)}, best=None, position=position)


def announce(run: FakeRun, step: int, folder: str = "", **changes: Any) -> Path:
    """Write a checkpoint into the run's work directory and announce it."""
    name = folder or f"checkpoints/{step}"
    path = Path(run.request.assignment.work_dir) / name
    write(path, state(step))
    run.says(checkpoint(step, name, **changes))
    return path


def checkpoint(step: int, path: str, **changes: Any) -> Checkpoint:
    values: dict[str, Any] = {
        "step": step,
        "epoch": step // 10,
        "path": path,
        "metrics": {"loss": 1 / step},
        "reason": "periodic",
        "best": False,
    }
    return Checkpoint(**(values | changes))
