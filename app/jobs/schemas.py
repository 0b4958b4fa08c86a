"""The wire forms of a job and its attempts: dictionaries for orjson, stored JSON spliced in as it stands."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import orjson

from app.clock import to_rfc3339
from app.errors import Cause
from app.jobs.causes import CAUSES
from app.jobs.models import Attempt, AttemptNode
from app.jobs.repository import JobRow

# Of a trainer's environment a reader sees what pins and bounds it; paths of the host are not among that.
_SHOWN: Final = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES")
_SHOWN_PREFIXES: Final = ("TF_", "OMP_", "OPENBLAS_", "MKL_", "POLARS_", "KERAS_")


def _shown(environment: Mapping[str, str] | None) -> dict[str, str] | None:
    if environment is None:
        return None
    return {name: text for name, text in environment.items() if name in _SHOWN or name.startswith(_SHOWN_PREFIXES)}


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else to_rfc3339(moment)


def _raw(text: str | None) -> orjson.Fragment | None:
    return None if text is None else orjson.Fragment(text)


def job_json(
    job: JobRow,
    attempts: Sequence[tuple[Attempt, list[AttemptNode]]] | None = None,
    waiting: Mapping[str, Any] | None = None,
    usage: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The job object; `attempts`, `waiting` and `usage` only where the caller looked them up (one job, not lists)."""
    body: dict[str, Any] = {
        "id": job.id,
        "object": "job",
        "kind": job.kind,
        "name": job.name,
        "tags": _raw(job.tags),
        "framework": job.framework,
        "state": job.state,
        "phase": job.phase,
        "stop_requested": job.stop_requested,
        "cause": job.cause,
        "message": job.cause_detail,
        "spec": _raw(job.spec),
        "effective_spec": _raw(job.effective_spec),
        "warnings": _raw(job.warnings),
        "device_count": job.device_count,
        "device_type": job.device_type,
        "priority": job.priority,
        "progress": _raw(job.progress),
        "metrics": {"last": _raw(job.last_metrics), "best": _raw(job.best_metrics)},
        "attempt": job.attempt,
        "failures": job.failures,
        "losses": job.losses,
        "owner": job.owner,
        "dataset_id": job.dataset_id,
        "parent": _parent(job),
        "run_s": job.run_s,
        "not_before": _time(job.not_before),
        "created_at": _time(job.created_at),
        "queued_at": _time(job.queued_at),
        "started_at": _time(job.started_at),
        "finished_at": _time(job.finished_at),
    }
    if attempts is not None:
        body["attempts"] = [attempt_json(attempt, nodes) for attempt, nodes in attempts]
    if waiting is not None:
        body["waiting"] = dict(waiting)
    if usage is not None:
        body["usage"] = dict(usage)
    return body


def _parent(job: JobRow) -> dict[str, Any] | None:
    if job.parent_job_id is None:
        return None
    return {"job": job.parent_job_id, "how": job.parent_how, "checkpoint": job.parent_step}


def attempt_json(attempt: Attempt, nodes: Sequence[AttemptNode]) -> dict[str, Any]:
    facts = attempt.facts or {}
    return {
        "object": "attempt",
        "number": attempt.number,
        "workers": [
            {"worker_id": node.worker_id, "pid": node.pid, "pgid": node.pgid, "devices": node.devices} for node in nodes
        ],
        "devices": [device for node in nodes for device in node.devices],
        "device_kind": facts.get("device_kind"),
        "simulated": facts.get("simulated"),
        "framework_version": facts.get("framework_version"),
        "threads": facts.get("threads"),
        "environment": _shown(facts.get("environment")),
        "placed_at": _time(attempt.placed_at),
        "claimed_at": _time(attempt.claimed_at),
        "started_at": _time(attempt.started_at),
        "ended_at": _time(attempt.ended_at),
        "cause": attempt.cause,
        "message": CAUSES[Cause(attempt.cause)].sentence if attempt.cause else None,
        "detail": attempt.detail,
        "exit_code": attempt.exit_code,
        "signal": attempt.signal,
        "max_rss_bytes": attempt.max_rss_bytes,
        "resumed_from_step": attempt.resumed_from_step,
        "device_s": attempt.device_s,
        "energy_j": attempt.energy_j,
        "utilization": attempt.utilization,
        "verdict": attempt.verdict,
    }
