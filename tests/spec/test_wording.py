"""Plain words for what is wanted and what was found."""

import json
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from app.spec.job import JobSpec
from app.spec.places import every_field, locate, shape_of
from app.spec.script import ScriptSpec
from app.spec.wording import as_suggestion, found, listed, wanted, written


class TestWanted:
    @pytest.mark.parametrize(
        ("annotation", "words"),
        [
            (int, "a whole number"),
            (float, "a number"),
            (bool, "true or false"),
            (float | None, "a number or null"),
            (None, "null"),
            (Annotated[float, Field(gt=0)], "a number greater than 0"),
            (Annotated[int, Field(ge=1, le=9)], "a whole number, at least 1 and at most 9"),
            (Annotated[float, Field(ge=0, lt=1)], "a number, at least 0 and below 1"),
            (Annotated[str, Field(min_length=1, max_length=9)], "text of 1 to 9 characters"),
            (Annotated[str, Field(max_length=9)], "text of at most 9 characters"),
            (Literal["a", "b", "c"], '"a", "b" or "c"'),
            (Annotated[list[int], Field(min_length=1, max_length=4)], "a list of 1 to 4 whole numbers"),
            (list[Literal["a", "b"]], 'a list of names ("a" or "b")'),
            (list[str], "a list of names"),
            (Annotated[list[int], Field(min_length=3, max_length=3)], "a list of 3 whole numbers"),
            (list[list[int]], "a list of lists"),
            (dict[str, str], "an object"),
            (Annotated[dict[str, str], Field(min_length=1, max_length=9)], "an object of 1 to 9 keys"),
        ],
    )
    def test_a_type_and_its_bounds_are_said_in_words(self, annotation: Any, words: str) -> None:
        assert wanted(shape_of(annotation)) == words

    @pytest.mark.parametrize(
        ("path", "words"),
        [
            (("framework",), '"torch" or "tensorflow"'),
            (("model",), '"linear", "mlp", "cnn", "resnet", "sequential" or "python", or an object with that type'),
            (("data",), "a name or an object"),
            (
                ("metrics",),
                '"auto" or a list of names ("accuracy", "top_3", "top_5", "f1", "auc", "mae", "rmse" or "r2")',
            ),
            (("hyperparameters",), "an object"),
            (("not_before",), "a time with its zone or null"),
            (("early_stopping",), "an object or null"),
            (("class_weights",), '"balanced" or an object of 1 to 1000 keys or null'),
            (
                ("initialize_from", "checkpoint"),
                '"best" or "last" or a whole number, at least 0 and at most 9223372036854775807',
            ),
        ],
    )
    def test_places_of_the_spec(self, path: tuple[str, ...], words: str) -> None:
        shape = locate(JobSpec, path).shape or locate(JobSpec, ("hyperparameters", *path)).shape
        assert shape is not None
        assert wanted(shape) == words

    def test_every_place_has_words(self) -> None:
        for path, shape in [*every_field(JobSpec), *every_field(ScriptSpec)]:
            assert wanted(shape).strip(), path


class TestWritten:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (1, "1"),
            (0.5, "0.5"),
            (True, "true"),
            (None, "null"),
            ("é", '"é"'),
            ([], "[]"),
            ({}, "{}"),
            ([1], "a list"),
            ({"a": 1}, "an object"),
            (10**100, "a number of more than 60 digits"),
            (-(10**100), "a number of more than 60 digits"),
            (float("nan"), "NaN"),
            ("\ud800", '"\\ud800"'),
            (b"x", "a value of type bytes"),
        ],
    )
    def test_a_value_is_written_as_json(self, value: object, text: str) -> None:
        assert written(value) == text

    def test_a_long_text_is_cut(self) -> None:
        assert written("x" * 1000) == '"' + "x" * 58 + "…"

    @given(st.text() | st.integers() | st.floats() | st.booleans() | st.none())
    def test_it_can_always_be_sent_and_is_short(self, value: object) -> None:
        assert 0 < len(written(value).encode()) <= 4 * 60


class TestFound:
    @pytest.mark.parametrize("text", ["1", "0.5", "true", "null", "NaN"])
    def test_text_that_looks_like_another_value_is_called_text(self, text: str) -> None:
        assert found(text) == f'"{text}", which is text'

    @pytest.mark.parametrize(("value", "words"), [("torch", '"torch"'), (1, "1"), (None, "null")])
    def test_other_values_stand_alone(self, value: object, words: str) -> None:
        assert found(value) == words


class TestListed:
    @pytest.mark.parametrize(
        ("values", "text"), [(["a"], '"a"'), (["a", "b"], '"a" or "b"'), (["a", "b", "c"], '"a", "b" or "c"')]
    )
    def test_words_are_joined_as_in_a_sentence(self, values: list[str], text: str) -> None:
        assert listed(values) == text


class TestAsSuggestion:
    def test_a_word_stands_as_it_is(self) -> None:
        assert as_suggestion("torch") == "torch"

    @given(st.integers() | st.booleans() | st.lists(st.integers()))
    def test_anything_else_is_json(self, value: object) -> None:
        assert json.loads(as_suggestion(value)) == value
