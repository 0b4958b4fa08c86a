"""What a spec can be made of, for people and for programs that build forms."""

from collections import Counter
from functools import cache
from typing import Any, Final

from fastapi import Response

from app.api.bodies import json_response
from app.api.catalog_views import CatalogView
from app.api.routing import api_router
from app.api.services import ServicesDep
from app.datasets.schemas import describe_builtin
from app.spec.catalog import Entry, entries
from app.tables import BUILTIN

router = api_router(prefix="/v1", tag="Jobs")

FRAMEWORKS: Final = {"torch": ("model", "script"), "tensorflow": ("model", "script"), "python": ("script",)}
"""Each with the kinds of jobs that it is for."""


@router.get("/catalog", summary="List what a spec can choose from", responses={200: {"model": CatalogView}})
def read_catalog(services: ServicesDep) -> Response:
    """Frameworks and whether a worker has them now; models, layers, optimizers, schedules, losses, metrics, data.

    Each has an example that is valid as it stands; those that have settings also their JSON Schema.
    """
    online = [host for host in services.hosts.get() if host.online]
    heard = Counter(name for host in online for name in host.frameworks)
    frameworks = [
        {"name": name, "kinds": kinds, "online": heard[name] > 0, "workers": heard[name]}
        for name, kinds in FRAMEWORKS.items()
    ]
    roots = [{"name": name, "workers": sum(host.reads(name) for host in online)} for name in services.roots.names]
    return json_response({"object": "catalog", "frameworks": frameworks, **_choices(), "data_roots": roots})


@cache
def _choices() -> dict[str, Any]:
    choices: dict[str, Any] = {group: [_entry(entry) for entry in found] for group, found in entries().items()}
    return choices | {"datasets": [_dataset(name) for name in BUILTIN]}


def _entry(entry: Entry) -> dict[str, Any]:
    content: dict[str, Any] = {"name": entry.name, "description": entry.description, "example": entry.example}
    if entry.schema is not None:
        content["schema"] = entry.schema
    if entry.task is not None:
        content["task"] = entry.task
    return content


def _dataset(name: str) -> dict[str, Any]:
    described = describe_builtin(name)
    content = {key: described[key] for key in ("description", "rows", "default_target", "default_task")}
    columns = [column["name"] for column in described["table"]["columns"]]
    return {"name": name, **content, "columns": columns, "example": {"source": name}}
