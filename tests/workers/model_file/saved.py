"""Trained models on disk, for the tests of reading and using them."""

from importlib.resources import files
from pathlib import Path

from tests.workers.backends.fake import NumpyBackend
from tests.workers.training_jobs import Listener
from workers.backends.base import load_backend
from workers.loop import train
from workers.protocol import Assignment

ROOT = Path(__file__).parents[3]


def trained(assignment: Assignment, framework: str | None = None) -> tuple[Path, dict[str, float]]:
    """Train, by default with the backend in NumPy; returns the model's folder and the final metrics."""
    backend = NumpyBackend() if framework is None else load_backend(framework)
    backend.prepare(assignment.devices, 1)
    listener = Listener()
    done = train(assignment, backend, listener)
    return listener.artifacts["model.json"][0].parent, done.metrics


def penguins() -> Path:
    """Text features, numbers with gaps, and three species."""
    return Path(str(files("palmerpenguins"))) / "data" / "penguins.csv"
