"""`--set path=value`: changes to a spec from the command line."""

import json
from collections.abc import Iterable
from copy import deepcopy
from typing import Any, Final

from app.cli.errors import UsageProblem

# Where the spec takes a string for an object, the member that the string stands for.
_SUGAR: Final = {"model": "type", "data": "source", "optimizer": "name", "schedule": "name"}


def with_changes(spec: Any, changes: Iterable[str]) -> Any:  # noqa: ANN401 - JSON
    """A copy of `spec` with each `a.b.c=value` written into it; objects on the way are made.

    A string that stands for an object becomes one: `model.hidden=[64]` works on `"model": "mlp"` too.

    A value is JSON if it can be read as such, else text: `epochs=5` is a number, `name=five` and `name="5"` are text.

    Raises:
        UsageProblem: there is no `=`, or the path leads through something that is not an object.
    """
    changed = deepcopy(spec)
    for change in changes:
        path, equals, text = change.partition("=")
        names = path.strip().split(".")
        if not equals or not all(names):
            raise UsageProblem(f"'{change}' is not path=value, for example --set hyperparameters.epochs=5")
        _write(changed, names, _value(text))
    return changed


def _write(target: Any, names: list[str], value: Any) -> None:  # noqa: ANN401 - JSON
    *way, last = names
    _require_object(target, "the spec", names)
    for depth, name in enumerate(way):
        inner = target.setdefault(name, {})
        if isinstance(inner, str) and name in _SUGAR:
            inner = target[name] = {_SUGAR[name]: inner}
        _require_object(inner, ".".join(way[: depth + 1]), names)
        target = inner
    target[last] = value


def _require_object(value: Any, where: str, names: list[str]) -> None:  # noqa: ANN401 - JSON
    if not isinstance(value, dict):
        raise UsageProblem(f"--set {'.'.join(names)}: {where} is {json.dumps(value)}, which has no members.")


def _value(text: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(text)
    except ValueError:
        return text
