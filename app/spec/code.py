"""Jobs of either kind: reading a stored spec, and what it says of the user's own code."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from app.spec.job import EffectiveSpec, JobSpec
from app.spec.python_model import PythonModel
from app.spec.script import EffectiveScriptSpec, Environment, ScriptSpec

Kind: TypeAlias = Literal["model", "script"]
AnySpec: TypeAlias = JobSpec | ScriptSpec
AnyEffective: TypeAlias = EffectiveSpec | EffectiveScriptSpec


@dataclass(frozen=True, slots=True)
class Code:
    """What a job's own code needs.

    `bundle`: the id of the uploaded code, None when it is in the worker's environment; `place`: where in the spec all
    this stands (`script` or `model`).
    """

    bundle: str | None
    environment: Environment
    network: bool
    place: Literal["script", "model"]


def kind_of(spec: AnySpec) -> Kind:
    """Tell a script job from a model job."""
    return "script" if isinstance(spec, ScriptSpec) else "model"


def code_of(spec: AnySpec) -> Code | None:
    """Return what the spec says of the user's own code, or None when there is none of it in the job."""
    if isinstance(spec, ScriptSpec):
        return Code(spec.script.bundle, spec.script.environment, spec.script.network, "script")
    if isinstance(spec.model, PythonModel):
        return Code(spec.model.bundle, spec.model.environment, spec.model.network, "model")
    return None


def read_effective(stored: str | bytes | Mapping[str, Any]) -> AnyEffective:
    """Read a stored effective spec, as JSON or decoded; the key `script` tells the two kinds apart.

    Raises pydantic.ValidationError: it was written by something else.
    """
    found = json.loads(stored) if isinstance(stored, str | bytes) else stored
    model: type[EffectiveSpec | EffectiveScriptSpec] = EffectiveScriptSpec if "script" in found else EffectiveSpec
    return model.model_validate(found)
