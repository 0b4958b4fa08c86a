"""What a spec can choose from, by name: for the catalog of the API, its schemas and its examples."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Final, get_args

from app.spec import layer_specs, model, optimizers, schedules
from app.spec.base import SpecModel
from app.spec.job import LossName, MetricName, Task
from app.spec.python_model import PythonModel
from app.spec.tasks import LOSSES, METRICS

MODELS: Final[dict[str, type[SpecModel]]] = {
    "linear": model.Linear,
    "mlp": model.Mlp,
    "cnn": model.Cnn,
    "resnet": model.Resnet,
    "sequential": model.Sequential,
    "python": PythonModel,
}
LAYERS: Final[dict[str, type[SpecModel]]] = {
    "dense": layer_specs.Dense,
    "activation": layer_specs.Activation,
    "dropout": layer_specs.Dropout,
    "batch_norm": layer_specs.BatchNorm,
    "layer_norm": layer_specs.LayerNorm,
    "flatten": layer_specs.Flatten,
    "reshape": layer_specs.Reshape,
    "conv1d": layer_specs.Conv1d,
    "conv2d": layer_specs.Conv2d,
    "max_pool2d": layer_specs.MaxPool2d,
    "avg_pool2d": layer_specs.AvgPool2d,
    "global_avg_pool2d": layer_specs.GlobalAvgPool2d,
    "embedding": layer_specs.Embedding,
    "lstm": layer_specs.Lstm,
    "gru": layer_specs.Gru,
    "residual": layer_specs.Residual,
    "parallel": layer_specs.Parallel,
}
OPTIMIZERS: Final[dict[str, type[SpecModel]]] = {
    "sgd": optimizers.Sgd,
    "adam": optimizers.Adam,
    "adamw": optimizers.AdamW,
    "rmsprop": optimizers.RmsProp,
    "adagrad": optimizers.Adagrad,
}
SCHEDULES: Final[dict[str, type[SpecModel]]] = {
    "constant": schedules.Constant,
    "cosine": schedules.Cosine,
    "step": schedules.Step,
    "exponential": schedules.Exponential,
    "reduce_on_plateau": schedules.ReduceOnPlateau,
}

LOSS_MEANINGS: Final[dict[LossName, str]] = {
    "cross_entropy": "Minus the logarithm of the probability given to the right class (softmax of the outputs).",
    "mse": "The squared difference.",
    "mae": "The absolute difference.",
    "huber": "Half the squared difference up to 1, beyond it the absolute difference minus a half.",
}
METRIC_MEANINGS: Final[dict[MetricName, str]] = {
    "accuracy": "The share of rows whose class got the largest output.",
    "top_3": "The share of rows whose class is among the three largest outputs; needs more than three classes.",
    "top_5": "The share of rows whose class is among the five largest outputs; needs more than five classes.",
    "f1": "The mean over the classes of 2 precision recall / (precision + recall).",
    "auc": "The mean over the classes of the area under the ROC curve, one class against the rest.",
    "mae": "The mean absolute difference, in the target's own unit.",
    "rmse": "The root of the mean squared difference, in the target's own unit.",
    "r2": "The share of the target's variance that is explained; 1 is perfect, 0 as good as the mean.",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One choice: its name, what it means, an example that is valid as it stands, and the JSON Schema of its object.

    `task`: of a loss or metric; those are plain words and have no schema.
    """

    name: str
    description: str
    example: Any
    schema: dict[str, Any] | None = None
    task: Task | None = None


@cache
def entries() -> dict[str, tuple[Entry, ...]]:
    """Return every choice by group: models, layers, optimizers, schedules, losses, metrics; JSON-able throughout."""
    groups = {"models": (MODELS, "type"), "layers": (LAYERS, "type")}
    groups |= {"optimizers": (OPTIMIZERS, "name"), "schedules": (SCHEDULES, "name")}
    found = {
        group: tuple(_entry(name, part, key) for name, part in parts.items()) for group, (parts, key) in groups.items()
    }
    losses = [Entry(name, text, name, task=_task(name)) for name, text in LOSS_MEANINGS.items()]
    metrics = [Entry(name, text, name, task=_task(name)) for name, text in METRIC_MEANINGS.items()]
    return found | {"losses": tuple(losses), "metrics": tuple(metrics)}


def _entry(name: str, part: type[SpecModel], key: str) -> Entry:
    """Describe a part by its class; the example has what must be written, with each field's own example."""
    example: dict[str, Any] = {key: name}
    for field, info in part.model_fields.items():
        if info.is_required() and field != key:
            example[field] = (info.examples or [None])[0]
    text = " ".join((part.__doc__ or "").split())
    return Entry(name, text, example, schema=part.model_json_schema())


def _task(name: str) -> Task:
    """Return the only task that a loss fits; mae, a loss and a metric, belongs to regression as either."""
    return next(task for task in get_args(Task) if name in (*LOSSES[task], *METRICS[task]))
