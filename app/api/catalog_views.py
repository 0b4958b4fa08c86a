"""The shapes of the catalog, for OpenAPI and the tests."""

from typing import Any, Literal

from pydantic import Field

from app.api.views import Framework, View

Task = Literal["classification", "regression"]


class FrameworkChoice(View):
    name: Framework
    kinds: list[Literal["model", "script"]] = Field(description="The kinds of jobs that it is for.")
    online: bool = Field(description="Whether a worker that has it is heard now.")
    workers: int


class PartChoice(View):
    """A part with settings. `schema` is the JSON Schema of its object, `example` one that is valid as it stands."""

    name: str
    description: str
    example: dict[str, Any]
    settings: dict[str, Any] = Field(alias="schema")


class WordChoice(View):
    """A choice that is one word."""

    name: str
    description: str
    example: str
    task: Task


class DatasetChoice(View):
    """A table that comes with the service; `GET /v1/datasets/{name}` has its columns in full."""

    name: str
    description: str
    rows: int
    default_target: str
    default_task: Task
    columns: list[str]
    example: dict[str, Any]


class RootChoice(View):
    """A folder whose tables are read where they lie: `POST /v1/datasets` with `root://name/path`."""

    name: str
    workers: int = Field(description="How many that are heard now can read it.")


class CatalogView(View):
    object: Literal["catalog"]
    frameworks: list[FrameworkChoice]
    models: list[PartChoice]
    layers: list[PartChoice]
    optimizers: list[PartChoice]
    schedules: list[PartChoice]
    losses: list[WordChoice]
    metrics: list[WordChoice]
    datasets: list[DatasetChoice]
    data_roots: list[RootChoice]
