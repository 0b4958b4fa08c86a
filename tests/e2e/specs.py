"""Specs of the end-to-end tests: one that is over in a moment, and one that is certain to be at work."""

from typing import Any

Spec = dict[str, Any]


def quick(framework: str = "torch", **changes: Any) -> Spec:
    """Iris, three epochs: about a second, nearly all of it the import of the framework."""
    spec: Spec = {
        "framework": framework,
        "model": {"type": "mlp", "hidden": [8]},
        "data": {"source": "iris", "split": {"validation": 0.2, "test": 0.2}},
        "hyperparameters": {"epochs": 3, "batch_size": 16, "learning_rate": 0.01, "seed": 7},
        "device_type": "cpu",
        "device_count": 1,
    }
    return spec | changes


def long(**changes: Any) -> Spec:
    """Digits for hours, unless something stops it."""
    hyperparameters = {"epochs": 100_000, "batch_size": 16}
    return quick(**{"data": "digits", "hyperparameters": hyperparameters, **changes})
