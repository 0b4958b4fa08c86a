"""From Pydantic's errors to problems in plain words, each with a pointer into the posted body."""

import json
import math
import shlex
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from app.spec.data import BUILTIN_NAMES
from app.spec.job import JobSpec
from app.spec.nearest import nearest_word, right_place
from app.spec.places import Place, Shape, locate
from app.spec.problems import SpecProblem, pointer
from app.spec.python_model import PythonModel, entrypoint_meant
from app.spec.script import MOST_WORDS, Script
from app.spec.wording import as_suggestion, found, listed, wanted, written

# Names that the spec keeps for what is not there yet, by the key they stand at.
_LATER = {
    "model": {"lstm", "gru", "transformer"},
    "layers": {"multi_head_attention", "depthwise_conv2d", "conv3d", "group_norm", "bidirectional"},
    "optimizer": {"adamax", "nadam", "adadelta", "lion"},
    "schedule": {"linear", "polynomial", "one_cycle"},
}
# Errors that our own validators write; their text goes on from the field's name.
_OURS = frozenset(
    {
        "bundle_path",
        "command",
        "data_id",
        "data_name",
        "data_sets",
        "entrypoint",
        "float32",
        "job_name",
        "layers",
        "nesterov",
        "nesting",
        "parameters",
        "plain_text",
        "repeated",
        "split",
        "split_column",
        "strides",
        "tags",
        "timestamp",
        "unknown_source",
        "variable",
        "variables",
        "weight_decay",
    }
)
_LONGEST_MEANT = 1000  # characters of a command that is suggested
_READABLE = 10**15  # numbers above are not repeated as text
_KEY_ERRORS = frozenset({"invalid_key", "string_unicode"})
_TAG_ERRORS = frozenset({"union_tag_invalid", "union_tag_not_found"})


def problem_of(error: ErrorDetails, root: type[BaseModel] = JobSpec) -> SpecProblem:
    """Turn one Pydantic error of a `root` into a problem; the pointer has no union tags."""
    place = locate(root, error["loc"])
    kind, shape, value = error["type"], place.shape, error["input"]
    if kind == "extra_forbidden":
        return _unknown_key(place)
    if shape is None or kind in _KEY_ERRORS:
        return SpecProblem(pointer(place.parts), "A key here is not text that UTF-8 can carry.")
    if kind in _OURS:
        return _our_sentence(place, shape, error)
    if kind in _TAG_ERRORS and shape.key is not None and isinstance(value, dict):
        return _unknown_tag(place, shape, shape.key, value)
    return _missing(place, shape) if kind == "missing" else _wrong_value(place, shape, value)


def _our_sentence(place: Place, shape: Shape, error: ErrorDetails) -> SpecProblem:
    value = error["input"]
    meant = nearest_word(value, BUILTIN_NAMES) if error["type"] == "unknown_source" else None
    if error["type"] == "entrypoint":
        meant = entrypoint_meant(value)
    return SpecProblem(pointer(place.parts), f"{_name(place)} {error['msg']}.", meant or _example(shape))


def _missing(place: Place, shape: Shape) -> SpecProblem:
    must = f"a list of 1 to {MOST_WORDS} words" if place.parts == ("script", "command") else wanted(shape)
    sentence = f"{_name(place)} is missing; it must be {must}{_for_example(shape)}."
    return SpecProblem(pointer(place.parts), sentence, _example(shape))


def _wrong_value(place: Place, shape: Shape, value: Any) -> SpecProblem:  # noqa: ANN401 - any JSON value
    where, name = pointer(place.parts), _name(place)
    if wanted(shape) == "null":
        return SpecProblem(where, f"{name} comes later; leave it out or write null.", "null")
    if _is_for_later(place, value):
        sentence = f"{name}: {written(value)} comes later; for now it must be {wanted(shape)}."
        return SpecProblem(where, sentence, _example(shape))
    if place.parts == ("device_count",) and value == 0 and not isinstance(value, bool):
        sentence = 'device_count must be at least 1; to train without a GPU set device_type to "cpu" and keep 1.'
        return SpecProblem(where, sentence, "device_type: cpu")
    if place.parts == ("framework",) and value == "python":
        sentence = 'framework "python" is for scripts; what trains a model here is "torch" or "tensorflow".'
        return SpecProblem(where, sentence, "torch")
    if shape.annotation is Script or place.parts == ("script", "command"):
        return _no_command(place, shape, value)
    is_bundle = place.parts in (("script", "bundle"), ("model", "bundle"))
    must = "the id of uploaded code or null" if is_bundle else wanted(shape)
    sentence = f"{name} must be {must}{_for_example(shape)}; it is {found(value)}."
    meant = None if is_bundle else _meant(shape, value)
    return SpecProblem(where, sentence, meant or _example(shape))


def _no_command(place: Place, shape: Shape, value: Any) -> SpecProblem:  # noqa: ANN401 - any JSON value
    """Say how a command is written; no shell would read one that is a single text, or begin one that is a list."""
    must = "an object with a command" if shape.annotation is Script else f"a list of 1 to {MOST_WORDS} words"
    words = _words_of(value)
    meant = "" if words is None else as_suggestion(_script_of(words) if shape.annotation is Script else words)
    is_list = isinstance(value, list) and len(value) > 0
    there = f"a list of {len(value)}" if is_list else found(value)
    sentence = f"{_name(place)} must be {must}{_for_example(shape)}; it is {there}."
    return SpecProblem(pointer(place.parts), sentence, meant if 0 < len(meant) <= _LONGEST_MEANT else _example(shape))


def _script_of(words: list[str]) -> dict[str, Any]:
    """Return the script that words alone mean: a file that Python is to run, uploaded code, or a command."""
    if len(words) == 1 and words[0].startswith("bun_"):
        return {"bundle": words[0], "command": ["python", "train.py"]}
    return {"command": ["python", *words] if words[0].endswith(".py") else words}


def _words_of(command: object) -> list[str] | None:
    if isinstance(command, str):
        try:
            return shlex.split(command) or None
        except ValueError:
            return None
    if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
        return [str(word) for word in command] if len(command) <= MOST_WORDS else None
    return None


def _unknown_key(place: Place) -> SpecProblem:
    trouble, meant = right_place(place)
    inside = _name(replace(place, parts=place.parts[:-1])) if place.parts[:-1] else "the spec"
    sentence = f"{written(place.parts[-1])} {trouble.format(here=inside)}"
    return SpecProblem(pointer(place.parts), f"{sentence}; did you mean {meant}?" if meant else f"{sentence}.", meant)


def _unknown_tag(place: Place, shape: Shape, key: str, value: dict[str, Any]) -> SpecProblem:
    name, known = _name(place), listed(shape.members)
    if key not in value:
        is_code = "python" in shape.members and not value.keys().isdisjoint(PythonModel.model_fields)
        meant = "python" if is_code else _example(shape)
        return SpecProblem(pointer((*place.parts, key)), f"{name}.{key} is missing; it must be {known}.", meant)
    tag = value[key]
    found_there = f"{written(tag)} comes later" if _is_for_later(place, tag) else f"it is {found(tag)}"
    meant = nearest_word(tag, shape.members) if isinstance(tag, str) else None
    if "python" in shape.members and isinstance(tag, str) and ":" in tag and (entrypoint := entrypoint_meant(tag)):
        meant = as_suggestion({"type": "python", "entrypoint": entrypoint})
    return SpecProblem(pointer((*place.parts, key)), f"{name}.{key} must be {known}; {found_there}.", meant)


def _is_for_later(place: Place, value: object) -> bool:
    """Tell a name that the spec keeps for later; the last key on the way says what it would be the name of."""
    group = next((part for part in reversed(place.parts) if isinstance(part, str)), "")
    return isinstance(value, str) and value in _LATER.get(group, ())


def _name(place: Place) -> str:
    """Name the field as people do: `hyperparameters.learning_rate`, `model.hidden[0]`, `The body`."""
    if place.is_key:
        return f"The key {written(place.parts[-1])} of {_name(replace(place, parts=place.parts[:-1], is_key=False))}"
    text = ""
    for part in place.parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return _printable(text) or "The body"


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()[:200]


def _for_example(shape: Shape) -> str:
    """Write `, for example 0.001`; a list of all possible values needs no example."""
    if not shape.examples or shape.examples[0] is None or get_origin(shape.annotation) is Literal:
        return ""
    return f", for example {json.dumps(shape.examples[0], ensure_ascii=False)}"


def _example(shape: Shape) -> str | None:
    return as_suggestion(shape.examples[0]) if shape.examples and shape.examples[0] is not None else None


def _meant(shape: Shape, value: Any) -> str | None:  # noqa: ANN401 - any JSON value
    """Return the valid value that was probably meant: `0.1` for `"0.1"`, `2` for `2.0`, `torch` for `pytorch`."""
    if get_origin(shape.annotation) is Literal and isinstance(value, str):
        return nearest_word(value, get_args(shape.annotation))
    if shape.annotation is str and isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(str(value)) if abs(value) < _READABLE else None
    if isinstance(value, str) and shape.members and value in _words(shape):
        return as_suggestion([value])
    if shape.annotation is bool and value in (0, 1):
        return as_suggestion(bool(value))
    if shape.annotation in (int, float) and isinstance(value, str | float):
        return _number_meant(shape, value)
    return None


def _words(shape: Shape) -> set[str]:
    """Return the words that a list at this place may hold."""
    lists = [member.items for member in shape.members.values() if member.items is not None]
    return {word for items in lists for word in get_args(items.annotation)}


def _number_meant(shape: Shape, value: str | float) -> str | None:
    try:
        number = float(value)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    if shape.annotation is int:
        return str(int(number)) if number.is_integer() and abs(number) < 2**53 else None
    return as_suggestion(number)
