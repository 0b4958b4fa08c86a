"""Unknown keys: refused at every level, with the key that was meant and its right place."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from app.spec import parse_job
from app.spec.examples import EXAMPLES
from tests.spec.bodies import UPLOADED, body, hyper, load, problem_at, problems_of

_OBJECTS = ("digits_tensorflow", "iris_layers", "diabetes_regression", "digits_branches", "digits_lstm")


def objects(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """Every object of a whole spec, with where it stands; tags hold a client's own keys."""
    if isinstance(value, dict):
        yield path, value
        for key, inner in value.items():
            if key != "tags":
                yield from objects(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from objects(inner, (*path, index))


def keys() -> Iterator[tuple[str, tuple[str | int, ...], str]]:
    for name in _OBJECTS:
        whole = parse_job(EXAMPLES[name]).model_dump(mode="json")
        for path, found in objects(whole):
            for key in found:
                yield name, path, key


def with_key(name: str, path: tuple[str | int, ...], old: str, new: str) -> dict[str, Any]:
    """The whole example with one key spelt differently; the right one stays too when it is required."""
    whole = deepcopy(parse_job(EXAMPLES[name]).model_dump(mode="json"))
    here: Any = whole
    for part in path:
        here = here[part]
    value = (
        here[old]
        if old in ("framework", "model", "data", "type", "name", "source", "units", "rate", "function", "layers")
        else here.pop(old)
    )
    here[new] = value
    return dict(whole)


ALL_KEYS = sorted(set(keys()), key=str)


class TestEveryLevel:
    def test_the_walk_reaches_every_part(self) -> None:
        paths = {path for _, path, _ in ALL_KEYS}
        assert {(), ("data", "split"), ("model", "layers", 1), ("hyperparameters", "optimizer"), ("retry",)} <= paths

    @pytest.mark.parametrize(("name", "path", "key"), ALL_KEYS)
    def test_a_doubled_last_letter_finds_the_key(self, name: str, path: tuple[str | int, ...], key: str) -> None:
        wrong = key + key[-1]
        pointer = "".join(f"/{part}" for part in (*path, wrong))
        problem = problem_at(with_key(name, path, key, wrong), pointer)
        assert problem.suggestion == key
        assert problem.message.startswith(f'"{wrong}" is not a key of ')

    @pytest.mark.parametrize(("name", "path", "key"), [found for found in ALL_KEYS if found[2].upper() != found[2]])
    def test_another_case_finds_the_key(self, name: str, path: tuple[str | int, ...], key: str) -> None:
        wrong = key.capitalize()
        pointer = "".join(f"/{part}" for part in (*path, wrong))
        assert problem_at(with_key(name, path, key, wrong), pointer).suggestion == key

    @pytest.mark.parametrize(("name", "path", "key"), [found for found in ALL_KEYS if "_" in found[2]])
    def test_hyphens_and_camel_case_find_the_key(self, name: str, path: tuple[str | int, ...], key: str) -> None:
        first, *rest = key.split("_")
        for wrong in (
            key.replace("_", "-"),
            key.replace("_", " "),
            first + "".join(word.capitalize() for word in rest),
        ):
            pointer = "".join(f"/{part}" for part in (*path, wrong))
            assert problem_at(with_key(name, path, key, wrong), pointer).suggestion == key

    @pytest.mark.parametrize("path", sorted({(name, path) for name, path, _ in ALL_KEYS}, key=str))
    def test_a_key_like_no_other_lists_what_is_there(self, path: tuple[str, tuple[str | int, ...]]) -> None:
        name, where = path
        whole = parse_job(EXAMPLES[name]).model_dump(mode="json")
        here: Any = whole
        for part in where:
            here = here[part]
        expected = list(here)
        here["qqqqqqqq"] = 1
        problem = problem_at(whole, "".join(f"/{part}" for part in (*where, "qqqqqqqq")))
        assert problem.suggestion is None
        assert all(key in problem.message for key in expected)


class TestReportedTypos:
    """Bodies that other tools accepted and then trained with defaults."""

    RIGHT = ("learning_rate", "hyperparameters.learning_rate", "batch_size", None, "framework")
    POINTERS = (
        "/hyperparameters/lerning_rate",
        "/learning_rate",
        "/hyperparameters/batch-size",
        "/hyperparameters/num_workers",
        "/Framework",
    )

    @pytest.mark.parametrize("index", range(5))
    def test_each_patch_is_refused_with_the_right_key(self, index: int) -> None:
        toy = load("typo_spec.json")
        toy["data"]["source"] = UPLOADED
        del toy["hyperparameters"]["lerning_rate"], toy["hyperparameters"]["batchsize"]
        parse_job(toy)
        for key, value in load("wrong_keys.json")[index]["patch"].items():
            toy[key] = {**toy[key], **value} if isinstance(value, dict) else value
        problem = problem_at(toy, self.POINTERS[index])
        assert problem.suggestion == self.RIGHT[index]
        assert self.POINTERS[index].rsplit("/", 1)[1] in problem.message

    def test_two_typos_are_both_told(self) -> None:
        toy = load("typo_spec.json")
        toy["data"]["source"] = UPLOADED
        assert [(problem.pointer, problem.suggestion) for problem in problems_of(toy)] == [
            ("/hyperparameters/lerning_rate", "learning_rate"),
            ("/hyperparameters/batchsize", "batch_size"),
        ]


class TestOtherPlaces:
    @pytest.mark.parametrize(
        ("raw", "pointer", "suggestion"),
        [
            (body(epochs=3), "/epochs", "hyperparameters.epochs"),
            (body(optimizer="adam"), "/optimizer", "hyperparameters.optimizer"),
            (body(target="y"), "/target", "data.target"),
            (body(validation=0.2), "/validation", "data.split.validation"),
            (body(data={"source": "digits", "validation": 0.2}), "/data/validation", "data.split.validation"),
            (body(data={"source": "digits", "seed": 3}), "/data/seed", "data.split.seed"),
            (body(seed=3), "/seed", "hyperparameters.seed"),
            (hyper(priority=1), "/hyperparameters/priority", "priority"),
            (hyper(hidden=[3]), "/hyperparameters/hidden", "model.hidden"),
            (body(learning_rat=0.1), "/learning_rat", "hyperparameters.learning_rate"),
        ],
    )
    def test_a_key_of_another_level_is_sent_there(self, raw: dict[str, Any], pointer: str, suggestion: str) -> None:
        problem = problem_at(raw, pointer)
        assert problem.suggestion == suggestion
        assert problem.message.endswith(f"did you mean {suggestion}?")

    def test_a_key_of_another_kind_says_whose_it_is(self) -> None:
        problem = problem_at(hyper(optimizer={"name": "adam", "momentum": 0.9}), "/hyperparameters/optimizer/momentum")
        assert (
            problem.message == '"momentum" is a key of sgd and rmsprop, not of this kind of hyperparameters.optimizer.'
        )

    def test_a_key_spelt_like_a_type_is_still_pointed_at(self) -> None:
        # Pydantic's location is (model, mlp, mlp): the first is the union's tag, the second the key.
        assert problem_at(body(model={"type": "mlp", "mlp": 1}), "/model/mlp").message.startswith('"mlp" is not a key')


class TestOtherTools:
    @pytest.mark.parametrize(
        ("raw", "pointer", "suggestion"),
        [
            (body(lr=1), "/lr", "hyperparameters.learning_rate"),
            (hyper(lr=1), "/hyperparameters/lr", "learning_rate"),
            (hyper(n_epochs=1), "/hyperparameters/n_epochs", "epochs"),
            (body(gpus=1), "/gpus", "device_count"),
            (body(devices=1), "/devices", "device_count"),
            (body(dataset="iris"), "/dataset", "data"),
            (body(model={"type": "mlp", "hidden_layers": [3]}), "/model/hidden_layers", "hidden"),
            (body(metadata={}), "/metadata", "tags"),
            (hyper(random_state=1), "/hyperparameters/random_state", "seed"),
        ],
    )
    def test_our_name_for_it_is_given(self, raw: dict[str, Any], pointer: str, suggestion: str) -> None:
        assert problem_at(raw, pointer).suggestion == suggestion

    @pytest.mark.parametrize("key", ["num_workers", "image", "pin_memory"])
    def test_what_no_spec_has_is_called_no_setting(self, key: str) -> None:
        problem = problem_at(body(**{key: 1}), f"/{key}")
        assert problem.message == f'"{key}" is not a setting here.'
        assert problem.suggestion is None
