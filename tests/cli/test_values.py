"""`--set path=value`."""

from typing import Any

import pytest

from app.cli.errors import UsageProblem
from app.cli.values import with_changes

SPEC = {"model": "mlp", "data": "digits", "hyperparameters": {"epochs": 3, "optimizer": "sgd"}}


class TestValues:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("5", 5),
            ("1e-3", 0.001),
            ("true", True),
            ("null", None),
            ("[64, 32]", [64, 32]),
            ('{"name": "adam"}', {"name": "adam"}),
            ("five", "five"),
            ('"5"', "5"),
            ("", ""),
            ("a=b", "a=b"),
        ],
    )
    def test_json_where_it_is_json_and_text_otherwise(self, text: str, value: object) -> None:
        assert with_changes({}, [f"x={text}"]) == {"x": value}


class TestPaths:
    @pytest.mark.parametrize(
        ("change", "path", "value"),
        [
            ("name=trial", ("name",), "trial"),
            ("hyperparameters.epochs=9", ("hyperparameters", "epochs"), 9),
            ("tags.team.name=birds", ("tags", "team", "name"), "birds"),
        ],
    )
    def test_a_path_leads_through_objects_and_makes_them(
        self, change: str, path: tuple[str, ...], value: object
    ) -> None:
        found: Any = with_changes(SPEC, [change])
        for name in path:
            found = found[name]
        assert found == value

    def test_later_changes_see_earlier_ones(self) -> None:
        assert with_changes({}, ['a={"b": 1}', "a.c=2"]) == {"a": {"b": 1, "c": 2}}

    def test_the_spec_itself_stays_as_it_was(self) -> None:
        before = {"a": {"b": 1}}
        with_changes(before, ["a.b=2"])
        assert before == {"a": {"b": 1}}

    @pytest.mark.parametrize(
        ("change", "name", "expected"),
        [
            ("model.hidden=[64]", "model", {"type": "mlp", "hidden": [64]}),
            ("data.target=label", "data", {"source": "digits", "target": "label"}),
        ],
    )
    def test_a_string_that_stands_for_an_object_becomes_one(self, change: str, name: str, expected: object) -> None:
        assert with_changes(SPEC, [change])[name] == expected

    def test_also_deeper(self) -> None:
        changed = with_changes(SPEC, ["hyperparameters.optimizer.momentum=0.9"])
        assert changed["hyperparameters"]["optimizer"] == {"name": "sgd", "momentum": 0.9}


class TestRefusals:
    @pytest.mark.parametrize("change", ["epochs", "=5", "a..b=1", ".a=1", "a.=1", ""])
    def test_what_is_no_path_and_value_is_refused_with_an_example(self, change: str) -> None:
        with pytest.raises(UsageProblem, match=r"hyperparameters\.epochs=5"):
            with_changes({}, [change])

    def test_a_path_through_a_number_names_the_place(self) -> None:
        with pytest.raises(UsageProblem, match=r"hyperparameters\.epochs is 3"):
            with_changes(SPEC, ["hyperparameters.epochs.deep=1"])

    def test_a_spec_that_is_no_object_cannot_be_changed(self) -> None:
        with pytest.raises(UsageProblem, match=r"the spec is \[\]"):
            with_changes([], ["a=1"])
