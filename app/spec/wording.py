"""Plain words for what a place wants and what was found there."""

import json
import types
from collections.abc import Iterable
from typing import Any, Literal, get_args, get_origin

import annotated_types

from app.spec.places import Shape

_SHOWN = 60  # characters of a client's value that a message repeats
_NOUNS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    None: "null",
    types.NoneType: "null",
}


def wanted(shape: Shape) -> str:
    """Say what may stand at a place: `a number greater than 0`."""
    text = _kind(shape)
    return f"{text} or null" if shape.optional else text


def _kind(shape: Shape) -> str:
    if shape.members:
        return _member(shape)
    if shape.items is not None:
        return f"a list of {_counted(_plural(shape.items), shape)}"
    if shape.values is not None:
        keys = _counted("keys", shape)
        return "an object" if keys == "keys" else f"an object of {keys}"
    if shape.model is not None:
        return "a name or an object" if _has_short_form(shape) else "an object"
    if get_origin(shape.annotation) is Literal:
        return listed(get_args(shape.annotation))
    noun = _NOUNS.get(shape.annotation, "a time with its zone")
    return f"text of {_counted('characters', shape)}" if shape.annotation is str else _bounded(noun, shape)


def _member(shape: Shape) -> str:
    if shape.key is None:
        return " or ".join(wanted(member) for member in shape.members.values())
    if _has_short_form(shape):
        return f"{listed(shape.members)}, or an object with that {shape.key}"
    return f"an object whose {shape.key} is {listed(shape.members)}"


def _has_short_form(shape: Shape) -> bool:
    """Tell whether a string may stand for the object: then an example of the field is a string."""
    return any(isinstance(example, str) for example in shape.examples)


def _plural(items: Shape) -> str:
    if get_origin(items.annotation) is Literal:
        return f"names ({listed(get_args(items.annotation))})"
    if items.items is not None:
        return "lists"
    return {int: "whole numbers", str: "names"}.get(items.annotation, "objects")


def _bounded(noun: str, shape: Shape) -> str:
    bounds = []
    for item in shape.metadata:
        match item:
            case annotated_types.Gt():
                bounds.append(f"greater than {item.gt}")
            case annotated_types.Ge():
                bounds.append(f"at least {item.ge}")
            case annotated_types.Lt():
                bounds.append(f"below {item.lt}")
            case annotated_types.Le():
                bounds.append(f"at most {item.le}")
    return f"{noun}, {' and '.join(bounds)}" if len(bounds) > 1 else " ".join([noun, *bounds])


def _counted(unit: str, shape: Shape) -> str:
    low = next((item.min_length for item in shape.metadata if isinstance(item, annotated_types.MinLen)), 0)
    high = next((item.max_length for item in shape.metadata if isinstance(item, annotated_types.MaxLen)), None)
    if high is None:
        return unit
    if low == high:
        return f"{low} {unit}"
    return f"{low} to {high} {unit}" if low else f"at most {high} {unit}"


def listed(values: Iterable[Any]) -> str:
    """Write `"a", "b" or "c"`."""
    words = [written(value) for value in values]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def written(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Write a value as JSON that UTF-8 can carry, shortened to what a message can bear."""
    if isinstance(value, dict | list) and value:
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and abs(value) >= 10**_SHOWN:
        return f"a number of more than {_SHOWN} digits"
    try:
        text = json.dumps(value, ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value)
    except TypeError:
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def found(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Say what stands there, and that it is text where its looks could deceive: `"0.1", which is text`."""
    deceiving = isinstance(value, str) and (_is_number(value) or value in ("true", "false", "null"))
    return f"{written(value)}, which is text" if deceiving else written(value)


def as_suggestion(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Write a value as a suggestion: a word as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
