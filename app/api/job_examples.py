"""What Swagger UI offers to fill the form of a job with: whole specs, then one for each model, layer and optimizer.

Every one is accepted as it stands, those with code of one's own from a key that has the permission `code`; a test posts
them all.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from app.spec.catalog import Entry, entries
from app.spec.examples import BUNDLE, CODE_EXAMPLES, EXAMPLES, UPLOADED

# Digits are pictures of eight by eight, flat in the table: what stands before a layer gives it the axes that it needs.
_PICTURE: Final[dict[str, Any]] = {"type": "reshape", "shape": [8, 8, 1]}
_SEQUENCE: Final[dict[str, Any]] = {"type": "reshape", "shape": [8, 8]}
_ON_PICTURES: Final = frozenset({"conv2d", "max_pool2d", "avg_pool2d", "global_avg_pool2d", "flatten"})
_ON_SEQUENCES: Final = frozenset({"conv1d", "lstm", "gru"})
# Where the catalog's own example does not fit digits: 64 values, each a whole number from 0 to 16, and ten classes. A
# python model that needs no upload first is a layer of the framework itself.
_INSTEAD: Final[Mapping[str, dict[str, Any]]] = {
    "embedding": {"type": "embedding", "input_dim": 17, "output_dim": 4},
    "python": {
        "type": "python",
        "entrypoint": "torch.nn:Linear",
        "parameters": {"in_features": 64, "out_features": 10},
    },
}
_TENSORFLOW: Final = frozenset({"cnn", "adamw", "lstm"})  # so that either framework is seen


@cache
def job_examples() -> dict[str, dict[str, Any]]:
    """OpenAPI's named examples of a posted spec, in the order in which they are shown."""
    shown = {
        name: {"summary": str(spec.get("name", name)), "value": spec}
        for name, spec in (EXAMPLES | CODE_EXAMPLES).items()
        # One that needs an upload first would fail when it is tried out as it stands.
        if not any(upload in json.dumps(spec) for upload in (BUNDLE, UPLOADED))
    }
    known = entries()
    for entry in known["models"]:
        shown |= _example("Model", entry, {"model": _INSTEAD.get(entry.name, entry.example)})
    for entry in known["layers"]:
        shown |= _example("Layer", entry, _layer(entry))
    for entry in known["optimizers"]:
        shown |= _example("Optimizer", entry, {"model": "mlp", "hyperparameters": {"optimizer": entry.example}})
    for entry in known["schedules"]:
        shown |= _example("Schedule", entry, {"model": "mlp", "hyperparameters": {"schedule": entry.example}})
    return shown


def _example(group: str, entry: Entry, part: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    framework = "tensorflow" if entry.name in _TENSORFLOW else "torch"
    value = {"framework": framework, "data": "digits", "device_count": 1, **part}
    name = f"{group.lower()}_{entry.name}"
    return {name: {"summary": f"{group}: {entry.name}", "description": entry.description, "value": value}}


def _layer(entry: Entry) -> dict[str, Any]:
    before = [_PICTURE] if entry.name in _ON_PICTURES else [_SEQUENCE] if entry.name in _ON_SEQUENCES else []
    layers = [*before, _INSTEAD.get(entry.name, entry.example)]
    part: dict[str, Any] = {"model": {"type": "sequential", "layers": layers}}
    if entry.name == "embedding":
        part["data"] = {"source": "digits", "preprocess": {"numeric": "none"}}
    return part
