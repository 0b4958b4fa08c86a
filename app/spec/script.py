"""The spec of a script job: a command of the user's, what it needs, and how its end is judged."""

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from app.spec.base import PlainText, ShortText, SpecModel, plain
from app.spec.data import BUILTIN_NAMES, Seed
from app.spec.monitors import direction_of
from app.spec.shared import CommonSpec, DeviceType, Labelled
from app.spec.variables import Variables

ScriptFramework: TypeAlias = Literal["torch", "tensorflow", "python"]
Mode: TypeAlias = Literal["min", "max"]

_DATA_ID = re.compile(r"ds_[0-9A-Za-z]{1,64}")
_DATA_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
MOST_WORDS = 256
MOST_DATA = 16
EXAMPLE_BUNDLE = "bun_01k0000000000000000000000a"
EXAMPLE_DATA = "ds_01k0000000000000000000000a"


def _list_or_file(value: object) -> str:
    return "list" if isinstance(value, list) else "file"


def inside_a_folder(path: str) -> bool:
    """Tell a relative path with plain segments, `train.py` or `lists/gpu.txt`: nothing that could lead out."""
    return bool(path) and "\\" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


def _one_line(path: str) -> str:
    if len(path.splitlines()) > 1:
        raise PydanticCustomError(
            "bundle_path",
            'must be the path of a file in the bundle; what is in such a file is a list, for example ["rich==14.1.0"]',
        )
    return path


def _file_name(path: str) -> str:
    if not inside_a_folder(path):
        raise PydanticCustomError(
            "bundle_path", "must be the path of a file in the bundle without '..', for example requirements.txt"
        )
    return path


def _first_word(command: list[str]) -> list[str]:
    if not command[0].strip():
        raise PydanticCustomError(
            "command", 'must begin with a program, for example ["python", "train.py"]; its first word is empty'
        )
    program, *more = command[0].split()
    if more and "/" not in program:
        raise PydanticCustomError(
            "command", 'must have each word as a text of its own, for example ["python", "train.py"]'
        )
    return command


def _data_name(name: str) -> str:
    if _DATA_NAME.fullmatch(name) is None:
        raise PydanticCustomError(
            "data_name",
            "must be 1 to 32 of a-z, 0-9 and _, with a letter first, for example train: the script finds the file "
            "in TRAINSHED_DATA_TRAIN",
        )
    return name


def _data_id(source: str) -> str:
    if _DATA_ID.fullmatch(source):
        return source
    if source in BUILTIN_NAMES:
        raise PydanticCustomError(
            "data_id",
            "names a table that comes with the service and is no file, but a script reads files: load it in the "
            "script (scikit-learn has it), or upload it and write its id, for example {example}",
            {"example": EXAMPLE_DATA},
        )
    raise PydanticCustomError(
        "data_id", "must be the id of an uploaded data set, for example {example}", {"example": EXAMPLE_DATA}
    )


def _few_data(data: dict[str, str]) -> dict[str, str]:
    if len(data) > MOST_DATA:
        raise PydanticCustomError(
            "data_sets",
            "must have at most {limit} data sets, but has {count}",
            {"limit": MOST_DATA, "count": len(data)},
        )
    return data


BundleId = Annotated[PlainText, Field(min_length=1, max_length=64, pattern=r"^bun_[0-9a-z]+$")]
Word = Annotated[PlainText, Field(max_length=4096)]
Command = Annotated[list[Word], Field(min_length=1, max_length=MOST_WORDS), AfterValidator(_first_word)]
DataName = Annotated[str, AfterValidator(_data_name)]
DataId = Annotated[PlainText, AfterValidator(_data_id)]
RequirementLine = Annotated[PlainText, Field(min_length=1, max_length=1000)]
RequirementFile = Annotated[
    str,
    AfterValidator(_one_line),
    AfterValidator(plain),
    Field(min_length=1, max_length=255),
    AfterValidator(_file_name),
]
Requirements = Annotated[
    Annotated[RequirementFile, Tag("file")] | Annotated[list[RequirementLine], Field(max_length=1000), Tag("list")],
    Discriminator(_list_or_file),
]


class Environment(SpecModel):
    """What the code needs beside the framework: packages, and variables."""

    requirements: Requirements | None = Field(
        default=None,
        description="A requirements file in the bundle, or its lines; null = the worker's own environment.",
        examples=["requirements.txt", ["rich==14.1.0"]],
    )
    variables: Variables = Field(
        default={},
        description="At most 64 environment variables.",
        examples=[{"WANDB_MODE": "offline"}],
    )


class Monitor(SpecModel):
    """The metric that says which checkpoint is the best."""

    metric: ShortText = Field(description="A metric that the script prints.", examples=["val_loss"])
    mode: Mode | None = Field(
        default=None,
        description="Which way is better; null = by the name: max for accuracy, f1, auc and the like, else min.",
        examples=["min"],
    )


class EffectiveMonitor(Monitor):
    """The monitor with its direction filled in."""

    mode: Mode = Field(description="Which way is better.", examples=["min"])


class Script(SpecModel):
    """A command, the code and the files that it needs, and what counts as success."""

    bundle: BundleId | None = Field(
        default=None,
        description="The uploaded code, unpacked into the command's working folder; null = the command runs what is "
        "in the worker's environment.",
        examples=[EXAMPLE_BUNDLE],
    )
    command: Command = Field(
        description="Program and arguments, each a text of its own; no shell reads them. `python` is the job's own "
        "interpreter.",
        examples=[["python", "train.py", "--lr", "0.1"]],
    )
    processes: Literal["one", "per_device"] = Field(
        default="one",
        description="`per_device`: the command is run once for each device, with the variables that torchrun sets, or "
        "`TF_CONFIG`.",
        examples=["per_device"],
    )
    data: Annotated[dict[DataName, DataId], AfterValidator(_few_data)] = Field(
        default={},
        description="At most 16 uploaded data sets by a name of yours; the script gets each file's path.",
        examples=[{"train": EXAMPLE_DATA}],
    )
    environment: Environment = Field(
        default=Environment(),
        description="Packages and variables.",
        examples=[{"requirements": "requirements.txt", "variables": {"WANDB_MODE": "offline"}}],
    )
    network: bool = Field(
        default=False, description="Let the command reach the network; only where the service allows it."
    )
    success: Literal["files", "exit"] = Field(
        default="files",
        description="`files`: exit code 0 and at least one output file; `exit`: exit code 0 is enough.",
        examples=["exit"],
    )
    monitor: Monitor | None = Field(
        default=None,
        description="Which checkpoint is the best; null = none is.",
        examples=[{"metric": "val_loss", "mode": "min"}],
    )
    seed: Seed = Field(default=0, description="Given to the script in TRAINSHED_SEED.", examples=[7])


class EffectiveScript(Script):
    """The script with nothing left open."""

    monitor: EffectiveMonitor | None = Field(
        default=None, description="Which checkpoint is the best.", examples=[{"metric": "val_loss", "mode": "min"}]
    )


class Commanded(Labelled):
    """What a script job is about."""

    framework: ScriptFramework = Field(
        default="python",
        description="What the command needs: a worker with torch or with tensorflow, or any worker (`python`).",
        examples=["torch"],
    )
    script: Script = Field(
        description="What is run.",
        examples=[{"bundle": EXAMPLE_BUNDLE, "command": ["python", "train.py"]}],
    )


class ScriptSpec(CommonSpec, Commanded):
    """A script job: a command of yours, on the devices and under the promises of every other job.

    The shortest is `{"script": {"command": ["python", "-m", "package"]}}`.
    """


class EffectiveScriptSpec(ScriptSpec):
    """The spec with every default filled in and nothing left `auto`; posting it again runs the same job."""

    script: EffectiveScript = Field(
        description="What is run.",
        examples=[{"bundle": EXAMPLE_BUNDLE, "command": ["python", "train.py"]}],
    )
    device_type: DeviceType = Field(description="The kind of device that the job runs on.", examples=["cuda"])


def resolve_script(spec: ScriptSpec, device_type: DeviceType) -> EffectiveScriptSpec:
    """Fill in what the spec left open; `device_type` is what `auto` means now. An effective spec resolves to itself."""
    values = {name: getattr(spec, name) for name in ScriptSpec.model_fields}
    parts = {name: getattr(spec.script, name) for name in Script.model_fields}
    if spec.script.monitor is not None:
        metric, mode = spec.script.monitor.metric, spec.script.monitor.mode
        parts["monitor"] = EffectiveMonitor(metric=metric, mode=mode or direction_of(metric))
    values["script"] = EffectiveScript(**parts)
    if spec.device_type == "auto":
        values["device_type"] = device_type
    return EffectiveScriptSpec(**values)
