"""An artifact on the wire; where its bytes lie stays inside."""

from typing import Any

from app.artifacts.models import Artifact
from app.clock import to_rfc3339


def artifact_json(artifact: Artifact) -> dict[str, Any]:
    return {
        "object": "artifact",
        "name": artifact.name,
        "job_id": artifact.job_id,
        "attempt": artifact.attempt,
        "kind": artifact.kind,
        "media_type": artifact.media_type,
        "size_bytes": artifact.size_bytes,
        "digest": artifact.digest,
        "created_at": to_rfc3339(artifact.created_at),
    }
