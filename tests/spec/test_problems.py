"""Pointers: RFC 6901, valid in the posted body, and free of Pydantic's union tags."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.spec import InvalidSpec, NotEnabled, SpecProblem, parse_spec
from app.spec.examples import CODE_EXAMPLES, EXAMPLES
from app.spec.problems import clip, parts_of, pointer
from tests.spec.bodies import body

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)
TAGS = (
    "linear",
    "mlp",
    "sequential",
    "dense",
    "activation",
    "dropout",
    "sgd",
    "adam",
    "constant",
    "cosine",
    "cnn",
    "residual",
    "layers",
    "shortcut",
    "branches",
    "number",
    "object",
    "step",
    "list",
    "word",
)


def value_at(whole: object, parts: list[str]) -> Any:
    """Follow a pointer strictly; KeyError, IndexError or TypeError when it leads nowhere."""
    here: Any = whole
    for part in parts:
        here = here[int(part)] if isinstance(here, list) else here[part]
    return here


BODIES = EXAMPLES | CODE_EXAMPLES


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner: list[tuple[str | int, ...]] = []
    if isinstance(value, dict):
        inner = [place for key, child in value.items() for place in places(child, (*path, key))]
    elif isinstance(value, list):
        inner = [place for index, child in enumerate(value) for place in places(child, (*path, index))]
    return [path, *inner]


@st.composite
def spoilt_bodies(draw: st.DrawFn) -> object:
    """A valid body in which one place holds any JSON value, and one object any further key, often a union's tag."""
    whole = json.loads(json.dumps(BODIES[draw(st.sampled_from(sorted(BODIES)))]))
    path = draw(st.sampled_from([place for place in places(whole) if place]))
    parent = value_at(whole, [str(part) for part in path[:-1]])
    parent[path[-1]] = draw(JSON)
    objects = [place for place in places(whole) if isinstance(value_at(whole, [str(part) for part in place]), dict)]
    target = value_at(whole, [str(part) for part in draw(st.sampled_from(objects))])
    if draw(st.booleans()):
        target[draw(st.sampled_from(TAGS) | st.text(max_size=8))] = draw(JSON)
    return whole


class TestPointer:
    @pytest.mark.parametrize(
        ("parts", "text"),
        # From RFC 6901, section 5.
        [
            ([], ""),
            (["foo"], "/foo"),
            (["foo", 0], "/foo/0"),
            ([""], "/"),
            (["a/b"], "/a~1b"),
            (["c%d"], "/c%d"),
            (['k"l'], '/k"l'),
            ([" "], "/ "),
            (["m~n"], "/m~0n"),
        ],
    )
    def test_it_is_written_as_the_standard_says(self, parts: list[str | int], text: str) -> None:
        assert pointer(parts) == text

    @given(st.lists(st.text()))
    def test_it_reads_back_to_the_same_keys(self, parts: list[str]) -> None:
        assert parts_of(pointer(parts)) == parts

    def test_half_characters_are_spelt_out(self) -> None:
        assert pointer(["a\ud800"]) == "/a\\ud800"


class TestClip:
    @pytest.mark.parametrize(
        ("raw", "before", "after"),
        [
            ({"data": "digits"}, "/data/target", "/data"),
            ({"data": {"source": "digits"}}, "/data/target", "/data/target"),
            ({"data": {"source": "digits"}}, "/data/split/test", "/data/split"),
            ({"features": ["a"]}, "/features/0", "/features/0"),
            ({"features": ["a"]}, "/features/1", "/features"),
            ([], "/framework", ""),
            (None, "", ""),
        ],
    )
    def test_what_the_body_does_not_have_is_cut_off_after_the_first_missing_key(
        self, raw: object, before: str, after: str
    ) -> None:
        assert clip(before, raw) == after


class TestEveryPointer:
    @given(spoilt_bodies())
    def test_it_leads_into_the_body_or_to_a_key_that_is_missing_there(self, raw: object) -> None:
        try:
            parse_spec(raw)
        except InvalidSpec as error:
            for problem in error.problems:
                parts = parts_of(problem.pointer)
                parent = value_at(raw, parts[:-1])
                if isinstance(parent, list):
                    value_at(raw, parts)
                else:
                    assert not parts or isinstance(parent, dict)

    @given(spoilt_bodies())
    def test_a_missing_key_is_only_pointed_at_when_it_is_a_key_of_the_spec(self, raw: object) -> None:
        try:
            parse_spec(raw)
        except InvalidSpec as error:
            for problem in error.problems:
                parts = parts_of(problem.pointer)
                if parts and parts[-1] not in value_at(raw, parts[:-1]) and isinstance(value_at(raw, parts[:-1]), dict):
                    assert "is missing" in problem.message

    @given(spoilt_bodies())
    def test_problems_can_be_sent_as_json_and_none_is_told_twice(self, raw: object) -> None:
        try:
            parse_spec(raw)
        except InvalidSpec as error:
            told = [(problem.pointer, problem.message, problem.suggestion) for problem in error.problems]
            json.dumps(told, ensure_ascii=False, allow_nan=False).encode()
            assert len(set(told)) == len(told) > 0
            assert all(message.endswith((".", "?")) and message[0].strip() for _, message, _ in told)


class TestWithin:
    def test_pointers_are_cut_back_to_the_posted_sugar(self) -> None:
        error = InvalidSpec([SpecProblem("/data/target", "The target is missing.", "y")])
        assert error.within(body(data="digits")).problems == [SpecProblem("/data", "The target is missing.", "y")]

    def test_the_kind_of_error_stays(self) -> None:
        assert isinstance(NotEnabled([SpecProblem("/model", "Reserved.")]).within({}), NotEnabled)

    def test_a_surrogate_key_is_refused_in_text_that_can_be_sent(self) -> None:
        with pytest.raises(InvalidSpec) as caught:
            parse_spec(body(tags={"\ud800": "x"}, **{"\udfff": 1}))
        for problem in caught.value.problems:
            f"{problem.pointer}{problem.message}{problem.suggestion}".encode()
