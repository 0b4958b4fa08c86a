"""The nearest known key or value."""

import difflib
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.spec import nearest
from app.spec.job import JobSpec
from app.spec.nearest import elsewhere, nearest_word, right_place, spelt_like_ours
from app.spec.places import every_field, locate
from app.spec.script import ScriptSpec

PATHS = {".".join(path) for path, _ in every_field(JobSpec)}
OF_SCRIPTS = {".".join(path) for path, _ in every_field(ScriptSpec)}


class TestSpelling:
    @pytest.mark.parametrize(
        ("theirs", "ours"),
        [
            ("batch-size", "batch_size"),
            ("batchSize", "batch_size"),
            ("BatchSize", "batch_size"),
            ("Batch Size", "batch_size"),
            ("batch.size", "batch_size"),
            ("BATCH_SIZE", "batch_size"),
            ("batch_size", "batch_size"),
            ("l2", "l2"),
            ("", ""),
        ],
    )
    def test_other_styles_become_ours(self, theirs: str, ours: str) -> None:
        assert spelt_like_ours(theirs) == ours

    @given(st.text())
    def test_twice_is_the_same_as_once(self, text: str) -> None:
        once = spelt_like_ours(text)
        assert spelt_like_ours(once) == once


class TestNearestWord:
    @pytest.mark.parametrize(
        ("word", "known", "expected"),
        [
            ("digit", ["digits", "iris"], "digits"),
            ("IRIS", ["digits", "iris"], "iris"),
            ("pytorch", ["torch", "tensorflow"], "torch"),
            ("gpu", ["cuda", "cpu"], "cuda"),
            ("gpu", ["torch"], None),
            ("banana", ["digits", "iris"], None),
            ("", ["a"], None),
        ],
    )
    def test_misspelt_words_and_words_of_other_tools(self, word: str, known: list[str], expected: str | None) -> None:
        assert nearest_word(word, known) == expected

    @pytest.mark.parametrize("word", ["colum_1234_end", "column_1243_end", "column_1234_ent", "clmn_1234_end"])
    def test_among_thousands_those_that_begin_and_end_alike_are_compared(self, word: str) -> None:
        known = [f"{group}_{place}_end" for place in range(1000, 3000) for group in ("row", "column", "cell")]
        exact = difflib.get_close_matches(word, known, n=1, cutoff=0.7)
        assert [nearest_word(word, known)] == exact

    @given(st.text(max_size=30), st.lists(st.text(max_size=10), max_size=5))
    def test_it_is_always_one_of_the_known(self, word: str, known: list[str]) -> None:
        assert nearest_word(word, known) in [None, *known]


class TestRightPlace:
    def test_every_alias_leads_to_a_key_of_the_spec(self) -> None:
        targets = {path for path in nearest._ELSEWHERE.values() if path is not None}
        assert targets <= PATHS | OF_SCRIPTS
        assert targets & OF_SCRIPTS - PATHS == {"script.command"}  # what only a script has leads to a script job

    def test_every_alias_of_a_script_job_leads_to_a_key_of_it(self) -> None:
        aliases = elsewhere(ScriptSpec)
        assert {path for path in aliases.values() if path is not None} <= OF_SCRIPTS
        assert {"lr", "epochs"} & set(aliases) == set()
        assert aliases["gpus"] == "device_count"
        assert aliases["env"] == "script.environment.variables"

    def test_no_alias_hides_a_key_of_the_spec(self) -> None:
        # `units` is a key of a dense layer and, elsewhere, another tool's word for `hidden`; so is `network`.
        assert set(nearest._ELSEWHERE) & {path.rsplit(".", 1)[-1] for path in PATHS} == {"network", "units"}
        assert set(elsewhere(ScriptSpec)) & {path.rsplit(".", 1)[-1] for path in OF_SCRIPTS} == {"command"}

    def test_every_synonym_is_a_word_that_some_field_takes(self) -> None:
        words: set[str] = set()
        for _, shape in every_field(JobSpec):
            words |= {*shape.members, *map(str, get_args(shape.annotation))}
            for inner in (shape.items, *(member.items for member in shape.members.values())):
                words |= set(map(str, get_args(inner.annotation))) if inner is not None else set()
        assert set(nearest._SYNONYMS.values()) <= words

    @pytest.mark.parametrize(
        ("location", "trouble", "meant"),
        [
            (("Framework",), "is not a key of {here}", "framework"),
            (("epochs",), "stands in the wrong place", "hyperparameters.epochs"),
            (("data", "split", "fraction"), "is not a key of {here}, which has method, column", None),
            (("retry", "failure"), "is not a key of {here}", "failures"),
            (
                ("hyperparameters", "optimizer", "sgd", "beta_1"),
                "is a key of adam and adamw, not of this kind of {here}",
                None,
            ),
            (("command",), "is not a key of {here}", "script.command"),
            (("image",), "is not a setting here", None),
        ],
    )
    def test_what_is_said_of_an_unknown_key(self, location: tuple[str, ...], trouble: str, meant: str | None) -> None:
        said, suggestion = right_place(locate(JobSpec, location))
        assert said.startswith(trouble)
        assert suggestion == meant

    @given(st.text(max_size=40))
    def test_any_suggestion_is_a_key_here_or_a_path_of_the_spec(self, key: str) -> None:
        place = locate(JobSpec, ("hyperparameters", key))
        if place.shape is None:
            _, suggestion = right_place(place)
            assert suggestion is None or suggestion in PATHS or f"hyperparameters.{suggestion}" in PATHS
