"""A key on the wire. There is no field for its secret or digest: creating one adds `secret` to the answer, once."""

from typing import Any

from app.accounts.models import ApiKey
from app.clock import to_rfc3339


def key_json(key: ApiKey, project: str) -> dict[str, Any]:
    return {
        "id": key.id,
        "object": "key",
        "project": project,
        "user": key.user,
        "name": key.name,
        "role": key.role,
        "permissions": list(key.permissions),
        "hint": f"{key.hint}…",
        "created_at": to_rfc3339(key.created_at),
        "expires_at": None if key.expires_at is None else to_rfc3339(key.expires_at),
        "revoked_at": None if key.revoked_at is None else to_rfc3339(key.revoked_at),
    }
