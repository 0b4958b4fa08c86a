"""Plain text, and the strictness that all parts of a spec share."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from app.spec.base import SpecModel, not_plain
from app.spec.job import JobSpec
from app.spec.places import every_field, models_in
from app.spec.script import ScriptSpec


class TestNotPlain:
    @pytest.mark.parametrize("text", ["", "a", "Größe", "测试", "🙂", "שלום", "a b", "a\u00a0b", "<b>", "e\u0301"])
    def test_text_of_any_script_is_plain(self, text: str) -> None:
        assert not_plain(text) is None

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("a\x00", "character 2 is U+0000, which cannot be shown"),
            ("\n", "character 1 is U+000A, which cannot be shown"),
            ("ab\x7f", "character 3 is U+007F, which cannot be shown"),
            ("\u202eevil", "character 1 is U+202E, which cannot be shown"),
            ("x\ud800", "character 2 is U+D800, which cannot be shown"),
        ],
    )
    def test_the_first_character_that_is_not_is_named(self, text: str, reason: str) -> None:
        assert not_plain(text) == reason

    @given(st.text(st.characters(exclude_categories=[])))
    def test_plain_text_can_be_stored_and_sent(self, text: str) -> None:
        if not_plain(text) is None:
            text.encode()
            assert "Cc" not in {unicodedata.category(character) for character in text}


class TestSpecModel:
    def test_every_part_of_the_spec_is_strict(self) -> None:
        kinds: list[type[BaseModel]] = [JobSpec, ScriptSpec]
        parts = {model for kind in kinds for _, shape in every_field(kind) for model in models_in(shape)}
        assert len(parts) >= 14
        parts.update(kinds)
        for part in parts:
            assert issubclass(part, SpecModel)
            assert part.model_config["frozen"]
            assert part.model_config["strict"]
            assert part.model_config["extra"] == "forbid"
            assert part.model_config["allow_inf_nan"] is False
