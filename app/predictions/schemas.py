"""The wire forms of predictions and exports: dictionaries for orjson."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from app.artifacts.models import Artifact
from app.artifacts.schemas import artifact_json
from app.clock import to_rfc3339
from app.predictions.models import ModelTask
from app.predictions.states import TaskState


def prediction_json(task: ModelTask, framework: str) -> dict[str, Any]:
    """A prediction: `labels` and `probabilities`, or `values`, once it has succeeded."""
    answer: Mapping[str, Any] = {} if task.result is None else orjson.loads(task.result)
    return {
        "id": task.id,
        "object": "prediction",
        "job_id": task.job_id,
        "state": task.state,
        "labels": answer.get("labels"),
        "probabilities": answer.get("probabilities"),
        "values": answer.get("values"),
        "warnings": answer.get("warnings", []),
        "model": {"job": task.job_id, "framework": framework},
        **_ends(task),
    }


def export_json(task: ModelTask, artifacts: Sequence[Artifact]) -> dict[str, Any]:
    """An export: its `artifacts` once it has succeeded."""
    return {
        "id": task.id,
        "object": "export",
        "job_id": task.job_id,
        "format": orjson.loads(task.request)["format"],
        "state": task.state,
        "artifacts": [artifact_json(artifact) for artifact in artifacts],
        **_ends(task),
    }


def made_export_json(job_id: str, form: str, artifacts: Sequence[Artifact]) -> dict[str, Any]:
    """An export whose files are there already; nobody has to make it, so it has no id and no times."""
    return {
        "id": None,
        "object": "export",
        "job_id": job_id,
        "format": form,
        "state": TaskState.SUCCEEDED.value,
        "artifacts": [artifact_json(artifact) for artifact in artifacts],
        "error": None,
        "created_at": None,
        "deadline": None,
        "finished_at": None,
    }


def _ends(task: ModelTask) -> dict[str, Any]:
    return {
        "error": task.error,
        "created_at": to_rfc3339(task.created_at),
        "deadline": to_rfc3339(task.deadline),
        "finished_at": _time(task.finished_at),
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else to_rfc3339(moment)
