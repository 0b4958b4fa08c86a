"""The shapes of answers, for OpenAPI and for the tests that hold the answers to it; hot paths never build them."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, Strict
from pydantic_core import PydanticCustomError

from app.jobs.states import JobState, StopRequest
from app.spec import EffectiveScriptSpec, EffectiveSpec, LayerShape, TableSchema

Item = TypeVar("Item")


def _text(value: object) -> object:
    # Pydantic takes "0.5" for a number of seconds since 1970.
    if not (isinstance(value, datetime) or (isinstance(value, str) and _YEAR.match(value))):
        raise PydanticCustomError("timestamp", "must be a time with its zone, for example 2030-01-31T00:00:00Z")
    return value


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise PydanticCustomError("timestamp", "must be a time between the years 1 and 9999 in UTC") from None


_YEAR: Final = re.compile(r"\d{4}-", re.ASCII)
Moment = Annotated[
    Annotated[AwareDatetime, Strict(strict=False)],
    BeforeValidator(_text, json_schema_input_type=AwareDatetime),
    AfterValidator(_in_utc),
]
Number = float | Literal["NaN", "Infinity", "-Infinity"]
Framework = Literal["torch", "tensorflow", "python"]
Verdict = Literal["idle", "input_bound", "compute_bound", "unknown"]


class View(BaseModel):
    """An answer; a member that is not listed here is a fault."""

    model_config = ConfigDict(extra="forbid")


class ListView(View, Generic[Item]):
    """A page of a list: `next_after` is the cursor of the next one."""

    object: Literal["list"]
    data: list[Item]
    has_more: bool
    next_after: str | None


class FieldProblem(View):
    """One problem: `pointer` (RFC 6901) says where, in the body unless `place` says query, path or header."""

    pointer: str
    message: str
    suggestion: str | None = None
    place: Literal["body", "query", "path", "header"] = "body"
    row: int | None = Field(default=None, description="Of a table: its row; the header is row 1.")
    column: str | None = Field(default=None, description="Of a table: its column.")


class Problem(BaseModel):
    """An error (RFC 9457). `code` is stable; further members belong to single codes."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="Explains the code; a reference to this server.")
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: list[FieldProblem] = []


class Progress(BaseModel):
    epoch: int
    epochs: int
    step: int
    steps: int
    fraction: float
    eta_s: float | None = None
    samples_per_s: float | None = None


class JobMetrics(View):
    last: dict[str, Any] | None
    best: dict[str, Any] | None


class WaitingView(View):
    """Why a queued job waits; `position` 1 is next."""

    code: str
    message: str
    position: int


class LeasedDevice(BaseModel):
    id: str
    kind: str
    name: str
    pci_bus_id: str | None
    memory_bytes: int | None
    simulated: bool


class AttemptWorker(View):
    worker_id: str
    pid: int | None
    pgid: int | None
    devices: list[LeasedDevice]


class AttemptView(View):
    """One try of a job: where it ran, on what, and how it ended."""

    object: Literal["attempt"]
    number: int
    workers: list[AttemptWorker]
    devices: list[LeasedDevice]
    device_kind: str | None
    simulated: bool | None
    framework_version: str | None
    threads: int | None
    environment: dict[str, str] | None
    placed_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    cause: str | None
    message: str | None
    detail: str | None
    exit_code: int | None
    signal: int | None
    max_rss_bytes: int | None
    resumed_from_step: int | None
    device_s: float | None = Field(description="Devices times seconds, from its claim to when they were freed.")
    energy_j: float | None = Field(description="Joules that its cards took; null where none could be measured.")
    utilization: float | None = Field(description="How busy its cards were, 0 to 1.")
    verdict: Verdict | None


class JobUsage(View):
    """What a job has used so far, all its attempts together."""

    device_s: float
    energy_j: float | None
    utilization: float | None
    verdict: Verdict | None = Field(description="What bounded the newest attempt that was measured.")
    message: str | None


class ParentView(View):
    """What a job was made from; `checkpoint` is the step that a retry goes on from."""

    job: str
    how: Literal["retry", "clone"]
    checkpoint: int | None


class JobView(View):
    """A job. `spec` is the body as it was sent, `effective_spec` the same with everything filled in."""

    id: str
    object: Literal["job"]
    kind: Literal["model", "script"] = Field(description="What its spec is: of a model, or of a script of yours.")
    name: str
    tags: dict[str, str]
    framework: Framework
    state: JobState
    phase: str | None
    stop_requested: StopRequest | None
    cause: str | None
    message: str | None
    spec: dict[str, Any]
    effective_spec: EffectiveSpec | EffectiveScriptSpec
    warnings: list[str]
    device_count: int
    device_type: Literal["cpu", "cuda"]
    priority: int
    progress: Progress | None
    metrics: JobMetrics
    attempt: int
    failures: int
    losses: int
    owner: str
    dataset_id: str | None
    parent: ParentView | None
    run_s: float
    not_before: datetime | None
    created_at: datetime
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class JobDetailView(JobView):
    """A job with its attempts, and, while it is queued, the reason why it waits."""

    attempts: list[AttemptView]
    waiting: WaitingView | None = None
    usage: JobUsage | None = None


class ValidationView(View):
    """What a spec would become, and what would happen to it now.

    Of a script job all from `input_shape` to `memory_bytes` is null, and there are no layers; of a model that is built
    by code of yours there are no layers either, and no number of parameters and bytes.
    """

    object: Literal["validation"]
    kind: Literal["model", "script"]
    effective_spec: EffectiveSpec | EffectiveScriptSpec
    warnings: list[str]
    input_shape: list[int] | None = Field(description="Of one row as the model gets it: encoded, without the batch.")
    layers: list[LayerShape]
    parameter_count: int | None
    train_rows: int | None
    validation_rows: int | None
    test_rows: int | None
    steps_per_epoch: int | None
    memory_bytes: int | None
    now: WaitingView


class EventView(BaseModel):
    """One entry of a job's journal; further members belong to its kind."""

    model_config = ConfigDict(extra="allow")

    seq: int
    at: datetime
    attempt: int
    kind: Literal["state", "metric", "log", "checkpoint", "telemetry", "notice"]


class EventPage(View):
    object: Literal["list"]
    data: list[EventView]
    has_more: bool
    next_after: int | None


class SeriesView(View):
    """Points of one name, four arrays of one length; `total` counts the points before thinning."""

    object: Literal["series"]
    name: str
    step: list[int]
    epoch: list[int]
    value: list[Number]
    attempt: list[int]
    total: int


class ArtifactView(View):
    object: Literal["artifact"]
    name: str
    job_id: str
    attempt: int
    kind: str
    media_type: str
    size_bytes: int
    digest: str = Field(description="SHA-256 of the content, in hex.")
    created_at: datetime


class DataProblem(View):
    """What a user should know about a table; `row` is the first one it is about."""

    column: str | None = Field(description="null: it is about whole rows.")
    code: str = Field(description="What kind it is, one of those in docs/data.md.", examples=["missing"])
    count: int
    row: int | None
    message: str
    suggestion: str | None


class DatasetLine(View):
    """An uploaded table in a list."""

    id: str
    object: Literal["dataset"]
    name: str
    format: str
    state: str
    rows: int
    size_bytes: int
    digest: str = Field(description="SHA-256 of the file as it was sent or registered, in hex.")
    uri: str | None = Field(description="Where it is read in place, `root://name/path`; null for an upload.")
    modified_at: datetime | None = Field(description="When a file that is read in place was last written.")
    created_by: str
    created_at: datetime


class DatasetView(DatasetLine):
    """An uploaded table with its columns."""

    table: TableSchema
    problems: list[DataProblem] = Field(description="What a spec that uses these columns will meet.")


class BuiltinView(View):
    """A table that comes with the service; its `id` is what `data.source` takes."""

    id: str
    object: Literal["dataset"]
    name: str
    format: Literal["builtin"]
    description: str
    rows: int
    default_target: str
    default_task: Literal["classification", "regression"]
    table: TableSchema


class PreviewView(View):
    object: Literal["preview"]
    columns: list[str]
    rows: list[list[Any]]


class CheckView(View):
    status: Literal["ok", "degraded", "down"]
    message: str


class HealthView(View):
    status: Literal["ok", "degraded", "down"]
    checks: dict[str, CheckView] = {}
