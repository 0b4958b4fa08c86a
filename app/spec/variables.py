"""The environment variables that a client may set for its own code, and those that are the service's."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from app.spec.base import PlainText

MOST_VARIABLES = 64
LONGEST_NAME = 128

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = frozenset({"RANK", "WORLD_SIZE", "GROUP_RANK", "TF_CONFIG", "HOME", "PATH", "TMPDIR", "USER"})
_OUR_PREFIXES = ("TRAINSHED_", "CUDA_", "NVIDIA_", "LD_", "LOCAL_", "MASTER_", "TORCHELASTIC_", "PYTHON")
_HARMLESS = frozenset(
    {
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONFAULTHANDLER",
        "PYTHONHASHSEED",
        "PYTHONIOENCODING",
        "PYTHONOPTIMIZE",
        "PYTHONUTF8",
        "PYTHONWARNINGS",
    }
)


def is_ours(name: str) -> bool:
    """Tell a variable that the service sets itself: the devices, ranks and folders of a job, and what a program loads.

    Some of `PYTHON…` are free: they change neither what is imported nor what is run.
    """
    return name not in _HARMLESS and (name in _OURS or name.startswith(_OUR_PREFIXES))


def _name(name: str) -> str:
    if len(name) > LONGEST_NAME or _NAME.fullmatch(name) is None:
        raise PydanticCustomError(
            "variable",
            "must be letters, digits and _ (at most {most}), with no digit first, for example WANDB_MODE",
            {"most": LONGEST_NAME},
        )
    if name == "PYTHONPATH":
        raise PydanticCustomError(
            "variable",
            "is set by the service itself, to the bundle's folder; bundle the folder with your modules "
            "(trainshed run --folder src), or put it on sys.path in the script",
        )
    if is_ours(name):
        raise PydanticCustomError(
            "variable", "is set by the service itself; choose another name, for example MY_{name}", {"name": name}
        )
    return name


def _few(variables: dict[str, str]) -> dict[str, str]:
    if len(variables) > MOST_VARIABLES:
        raise PydanticCustomError(
            "variables",
            "must have at most {limit} variables, but has {count}",
            {"limit": MOST_VARIABLES, "count": len(variables)},
        )
    return variables


VariableName = Annotated[str, AfterValidator(_name)]
VariableValue = Annotated[PlainText, Field(max_length=4096)]
Variables = Annotated[dict[VariableName, VariableValue], AfterValidator(_few)]
