"""What a worker and its trainer say to each other: JSON lines over a socket, one message a line.

The assignment goes to the trainer once, through a file descriptor; everything after it is a message. Numbers that JSON
cannot hold travel as the strings "NaN", "Infinity" and "-Infinity", so that a diverged loss arrives as what it was.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from app.errors import Cause, TrainshedError
from app.spec import EffectiveSpec

ArtifactKind = Literal["model", "report", "environment", "output"]
CheckpointReason = Literal["periodic", "best", "stop", "final"]

LINE_LIMIT: Final = 1024 * 1024
"""The longest line in bytes, its newline included."""


class ProtocolError(TrainshedError):
    """Something on the channel is not a message.

    `messages` are the good ones of the same `feed`, so a bad line costs nothing but itself.
    """

    code = "protocol_error"

    def __init__(self, reason: str, messages: "list[Message] | None" = None) -> None:
        super().__init__(f'{reason} A valid line looks like {{"type": "stop", "reason": "cancel"}}.')
        self.messages: list[Message] = messages or []


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Device(_Record):
    """One device of an attempt; `id` is opaque (`GPU-…`, `MIG-…`, `cpu-0@…`)."""

    id: str
    kind: Literal["cuda", "cpu", "simulated"]
    name: str
    pci_bus_id: str | None = None
    memory_bytes: int | None = None


class DataSource(_Record):
    """Where the table is: a file and its format, or the name of a built-in. Exactly one of `path`, `builtin` is set.

    `format` is what the file was found to be when it was uploaded, for example `csv`; None: to be found out again.
    With `root`, `path` lies below that folder, which is not ours: it is read there if its SHA-256 is still `digest`,
    and `uri` is what users call it.
    """

    path: str | None = None
    builtin: str | None = None
    format: str | None = None
    root: str | None = None
    uri: str | None = None
    digest: str | None = None


class ArchiveLimits(_Record):
    """What a bundle may unpack to; the fields are those of `app.archives.Limits`."""

    entries: int
    total_bytes: int
    file_bytes: int
    ratio: int


class Assignment(_Record):
    """All that a trainer is told; it has neither a database nor settings to ask.

    `resume` and `initialize` are folders inside `work_dir`, each with a checkpoint: `resume` is this job's own, to go
    on from as if nothing had happened; `initialize` is another job's, of which only the weights are taken. With both,
    `resume` counts. `driver` is the version of the devices' driver, for the record.

    `bundle` is the archive with the code of a python model, inside `work_dir`; the trainer unpacks it, as its own user
    and within `archive`, into the folder `code`. `packages` is the interpreter whose packages it finds besides its own.
    It sets `variables` before it imports anything of theirs. For a model without code of a user's own all are empty.
    """

    job_id: str
    attempt: int
    spec: EffectiveSpec
    table: DataSource
    devices: list[Device]
    threads: int
    work_dir: str
    seed: int
    resume: str | None = None
    initialize: str | None = None
    driver: str | None = None
    bundle: str | None = None
    archive: ArchiveLimits | None = None
    code: str | None = None
    packages: str | None = None
    variables: dict[str, str] = Field(default_factory=dict)


class ScriptLimits(_Record):
    """What a script's bundle may unpack to, and what its output files may be together."""

    archive: ArchiveLimits
    max_output_bytes: int
    max_output_files: int


class ScriptMonitor(_Record):
    """Which metric says what the best checkpoint is."""

    metric: str
    mode: Literal["min", "max"]


class ScriptAssignment(_Record):
    """All that the host of a script is told. It reads it as plain JSON: it has no pydantic.

    `interpreter` is the Python that "python" in `command` means. `bundle` is the archive (None: the command needs
    none), `inputs` are the data files by name, `digests` the SHA-256 that those read in place must have. `resume` is
    the folder of a checkpoint (`files.zip` and its manifest) whose step is `resume_step`. All paths but those of data
    read in place lie inside `work_dir`.
    """

    job_id: str
    attempt: int
    framework: str
    interpreter: str
    command: list[str]
    processes: Literal["one", "per_device"]
    variables: dict[str, str]
    devices: list[Device]
    threads: int
    work_dir: str
    seed: int
    bundle: str | None = None
    bundle_format: str | None = None
    inputs: dict[str, str] = Field(default_factory=dict)
    digests: dict[str, str] = Field(default_factory=dict)
    resume: str | None = None
    resume_step: int | None = None
    monitor: ScriptMonitor | None = None
    success: Literal["files", "exit"] = "files"
    limits: ScriptLimits
    timeout_s: float | None = None


class ModelErrand(_Record):
    """What a process is told that runs the code of a finished python model once more, to answer rows or to export it.

    `model` is the folder with the model's files, inside `work_dir`; the process itself unpacks the code that is among
    them, within `archive`. `packages` is the interpreter whose packages it finds besides its own, `variables` are those
    that the user asked for. It has no devices.
    """

    job_id: str
    framework: str
    work_dir: str
    model: str
    archive: ArchiveLimits
    memory_bytes: int
    threads: int = 1
    devices: list[Device] = Field(default_factory=list, max_length=0)
    packages: str | None = None
    variables: dict[str, str] = Field(default_factory=dict)


class Point(_Record):
    """One value of one series. Not finite is a value too."""

    name: str
    step: int
    epoch: int
    value: float


class Progress(_Record):
    """How far the training is; `eta_s` and `samples_per_s` are None until something was timed."""

    epoch: int
    epochs: int
    step: int
    steps: int
    fraction: float
    eta_s: float | None = None
    samples_per_s: float | None = None


class Started(_Record):
    """The trainer is up, has verified its devices, and says what it really runs on.

    `environment` was read from `/proc/self/environ`: it is what the interpreter was exec'ed with, not what Python
    changed later.
    """

    type: Literal["started"] = "started"
    framework: str
    framework_version: str
    device_kind: Literal["cuda", "cpu"]
    devices: list[str]
    simulated: bool
    environment: dict[str, str]
    pid: int
    pgid: int
    threads: int


class Report(_Record):
    """Points since the last report, and the progress; one report becomes one row of the journal."""

    type: Literal["report"] = "report"
    epoch: int
    step: int
    points: list[Point]
    progress: Progress


class Notice(_Record):
    """A sentence for the user that is not an error."""

    type: Literal["notice"] = "notice"
    message: str
    code: str


class Artifact(_Record):
    """A complete file at `path` inside the work directory, to be stored under `name`."""

    type: Literal["artifact"] = "artifact"
    name: str
    path: str
    media_type: str
    kind: ArtifactKind


class Checkpoint(_Record):
    """A complete checkpoint in the folder `path` inside the work directory; whoever stores it removes the folder.

    `best`: its weights are the best so far, by the metric that early stopping watches, else by the validation loss,
    else by the loss. `metrics` are those of the last complete epoch.
    """

    type: Literal["checkpoint"] = "checkpoint"
    step: int
    epoch: int
    path: str
    metrics: dict[str, float]
    reason: CheckpointReason
    best: bool


class Done(_Record):
    """The last message of a training that ended well; `stopped` when a stop message or TERM ended it early.

    With early stopping that restores the best weights, `metrics` and the saved model are those of `best_epoch`; without
    it those of the last epoch, and `best_epoch` only tells. `checkpoint_step` is the step of the newest checkpoint that
    was announced. `modules` names the frameworks and server libraries that the trainer had loaded: one framework,
    nothing else. `remark` is what makes a script's end doubtful, for example that it printed an error and left with 0.
    """

    type: Literal["done"] = "done"
    metrics: dict[str, float]
    samples_per_s: float | None = None
    stopped: Literal["stop"] | None = None
    best_epoch: int | None = None
    best_step: int | None = None
    checkpoint_step: int | None = None
    modules: list[str] = Field(default_factory=list)
    remark: str | None = None


class Failed(_Record):
    """The last message of a training that did not end well; `message` is for the user, `detail` a traceback."""

    type: Literal["failed"] = "failed"
    cause: Cause
    message: str
    detail: str = ""
    modules: list[str] = Field(default_factory=list)


class Stop(_Record):
    """From the worker: leave at the next safe point.

    Before it leaves, the trainer writes a checkpoint, unless the reason is `cancel`.
    """

    type: Literal["stop"] = "stop"
    reason: str


Message = Started | Report | Notice | Artifact | Checkpoint | Done | Failed | Stop

_MESSAGE: Final[TypeAdapter[Message]] = TypeAdapter(Annotated[Message, Field(discriminator="type")])


def encode(message: Message) -> bytes:
    """Write a message as one line.

    Raises:
        ProtocolError: when the line would be longer than `LINE_LIMIT`.
    """
    line = message.model_dump_json().encode() + b"\n"
    if len(line) > LINE_LIMIT:
        raise ProtocolError(f"A '{message.type}' message of {len(line)} bytes is over the limit of {LINE_LIMIT} bytes.")
    return line


class Decoder:
    """Cuts a stream of bytes into messages, however the bytes were split on the way."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[Message]:
        """Take bytes in and give the messages they complete.

        Raises:
            ProtocolError: when a line is no message or too long. The line is dropped, the next feed goes on behind it,
                and the error carries the good messages.
        """
        messages: list[Message] = []
        problem: str | None = None
        for line in self._lines(data):
            try:
                messages.append(_MESSAGE.validate_json(line))
            except ValidationError as error:
                problem = problem or f"A line is no message: {error.errors()[0]['msg']}: {bytes(line[:80])!r}."
        if len(self._rest) >= LINE_LIMIT:
            self._rest.clear()
            if not self._skipping:
                problem = problem or f"A line is over the limit of {LINE_LIMIT} bytes."
            self._skipping = True
        if problem is not None:
            raise ProtocolError(problem, messages)
        return messages

    def _lines(self, data: bytes) -> list[bytes]:
        self._rest += data
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        if lines and self._skipping:
            self._skipping = False
            lines = lines[1:]
        return [line for line in lines if line.strip()]
