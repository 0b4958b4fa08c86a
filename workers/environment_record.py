"""What a training ran on, for whoever must repeat it: versions, devices, threads, the data's digest, the seed."""

import hashlib
import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np

import app
from app.spec import EffectiveSpec, PythonModel
from workers.backends.base import Backend
from workers.data.dataset import Dataset
from workers.data.split import PART_NAMES
from workers.protocol import Assignment, DataSource

ENVIRONMENT_NAME: Final = "environment.json"

_DECIDES: Final = ("framework", "model", "data", "task", "loss", "metrics", "hyperparameters")
"""What of a spec decides how a training goes; its name, its priority and the like do not."""


def environment_record(assignment: Assignment, backend: Backend, data: Dataset) -> dict[str, Any]:
    """Collect the record; `driver` is None on the CPU."""
    source, spec = assignment.table, assignment.spec
    return {
        "trainshed": app.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "numpy": np.__version__,
        **{name: version for name, version in backend.versions().items() if name != "numpy"},
        "driver": assignment.driver,
        "devices": [device.model_dump(mode="json") for device in assignment.devices],
        "threads": assignment.threads,
        "dataset": {
            "source": spec.data.source,
            **({} if source.uri is None else {"uri": source.uri}),
            "format": source.format,
            "sha256": _digest_of(source, data),
            "rows": {name: len(data.parts[name]) for name in PART_NAMES},
        },
        "seed": spec.hyperparameters.seed,
        "spec_sha256": spec_digest(spec),
        **_code_record(assignment),
    }


def _code_record(assignment: Assignment) -> dict[str, Any]:
    """Name the user's own code, and every package that it could import: any of them may decide what comes out."""
    model = assignment.spec.model
    if not isinstance(model, PythonModel):
        return {}
    archive = None if assignment.bundle is None else Path(assignment.work_dir) / assignment.bundle
    code = {
        "bundle": model.bundle,
        "sha256": None if archive is None else _sha256(archive),
        "entrypoint": model.entrypoint,
    }
    packages = {found.name: found.version for found in metadata.distributions()}
    return {"code": code, "packages": dict(sorted(packages.items()))}


def spec_digest(spec: EffectiveSpec) -> str:
    """SHA-256 of what decides how a training goes: two specs with the same one can share checkpoints.

    Defaults are left out, so that a setting which comes with a later version does not make older checkpoints useless.
    """
    decisive = spec.model_dump(mode="json", include=set(_DECIDES), exclude_defaults=True)
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def _digest_of(source: DataSource, data: Dataset) -> str:
    """SHA-256 of the file's bytes; of a built-in set, which has no file, that of the arrays made of it.

    Of a file that is read in place, the one that it was checked by: by now another may lie there.
    """
    if source.digest is not None:
        return source.digest
    if source.path is not None:
        return _sha256(Path(source.path))
    digest = hashlib.sha256()
    for name in PART_NAMES:
        part = data.parts[name]
        digest.update(np.array(part.x, order="C").tobytes())
        digest.update(np.array(part.y, order="C").tobytes())
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
