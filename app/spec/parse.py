"""From decoded JSON to the spec of either kind of job, or to all of its problems."""

from typing import Final, TypeVar

from pydantic import ValidationError

from app.spec.code import AnySpec
from app.spec.job import JobSpec
from app.spec.messages import problem_of
from app.spec.nearest import spelt_like_ours
from app.spec.problems import InvalidSpec, SpecProblem, pointer
from app.spec.script import ScriptSpec

Spec = TypeVar("Spec", JobSpec, ScriptSpec)

MOST_PROBLEMS = 100
"""More are not explained: a body of a million wrong keys must not cost a million searches for the nearest."""

_MEANT_AS_SCRIPT: Final = frozenset({"script", "scripts", "command", "cmd"})
_OF_MODEL_JOBS: Final = [name for name in JobSpec.model_fields if name not in ScriptSpec.model_fields]


def parse_spec(raw: object) -> AnySpec:
    """Read a posted body (decoded JSON) as a spec: with the key `script` of a script job, else of a model job.

    Raises InvalidSpec with every problem that shows without looking at data, bundles or the fleet. A body with neither
    `script` nor `model`, but a key that is surely meant as a script's, is told what a script job lacks.
    """
    if isinstance(raw, dict) and "script" in raw:
        return parse_script(raw)
    if isinstance(raw, dict) and "model" not in raw and _MEANT_AS_SCRIPT & {spelt_like_ours(str(key)) for key in raw}:
        return _read(raw, ScriptSpec)
    return parse_job(raw)


def parse_job(raw: object) -> JobSpec:
    """Read a posted body as a model job's spec; strings that are sugar become objects.

    Raises InvalidSpec with every problem that shows without looking at the data.
    """
    return _read(raw, JobSpec)


def parse_script(raw: object) -> ScriptSpec:
    """Read a posted body as a script job's spec.

    Raises InvalidSpec with every problem; a key of model jobs is one each.
    """
    both = [name for name in _OF_MODEL_JOBS if isinstance(raw, dict) and name in raw]
    if both:
        raise InvalidSpec([_belongs_to_model_jobs(name) for name in both])
    return _read(raw, ScriptSpec)


def _belongs_to_model_jobs(name: str) -> SpecProblem:
    sentence = (
        f"script and {name} exclude each other: a script job runs your command and brings its own model, data and "
        f"training; leave out {name}, or leave out script."
    )
    return SpecProblem(pointer((name,)), sentence)


def _read(raw: object, model: type[Spec]) -> Spec:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        found = error.errors(include_url=False)[:MOST_PROBLEMS]
        problems = [problem_of(detail, model) for detail in found]
        raise InvalidSpec(list(dict.fromkeys(problems))).within(raw) from None
