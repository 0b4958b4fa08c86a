"""From decoded JSON to a JobSpec, or to all of its problems."""

from pydantic import ValidationError

from app.spec.job import JobSpec
from app.spec.messages import problem_of
from app.spec.problems import InvalidSpec, NotEnabled, SpecProblem

_RESERVED_MODEL = "python"
MOST_PROBLEMS = 100
"""More are not explained: a body of a million wrong keys must not cost a million searches for the nearest."""


def parse_spec(raw: object) -> JobSpec:
    """Read a posted body (decoded JSON) as a job spec; strings that are sugar become objects.

    Raises InvalidSpec with every problem that shows without looking at the data, or NotEnabled for a model type that is
    reserved.
    """
    _refuse_reserved(raw)
    try:
        return JobSpec.model_validate(raw)
    except ValidationError as error:
        problems = [problem_of(detail) for detail in error.errors(include_url=False)[:MOST_PROBLEMS]]
        raise InvalidSpec(_each_once(problems)).within(raw) from None


def _refuse_reserved(raw: object) -> None:
    model = raw.get("model") if isinstance(raw, dict) else None
    kind = model.get("type") if isinstance(model, dict) else model
    if kind == _RESERVED_MODEL:
        where = "/model/type" if isinstance(model, dict) else "/model"
        sentence = "Models written in Python are not enabled here; use linear, mlp, cnn, resnet or sequential."
        raise NotEnabled([SpecProblem(where, sentence, "mlp")])


def _each_once(problems: list[SpecProblem]) -> list[SpecProblem]:
    return list(dict.fromkeys(problems))
