"""The shape of pictures: from the data when it says so, from the spec, or asked for."""

from typing import Any

import pytest

from app.spec import EffectiveSpec, InvalidSpec, SpecProblem, TableSchema, parse_job, resolve, summarise
from app.tables import builtin_schema
from tests.spec.bodies import UPLOADED, integer, number, table

PIXELS = [f"p{place}" for place in range(12)]


def pixels(**more: Any) -> TableSchema:
    schema = table(*(number(name) for name in PIXELS), integer("y", 2))
    return schema.model_copy(update=more)


def resolved(model: Any, schema: TableSchema, **data: Any) -> EffectiveSpec:
    raw = {"framework": "torch", "model": model, "data": {"source": UPLOADED, "target": "y", **data}}
    return resolve(parse_job(raw), schema, "cpu")


def refused(model: Any, schema: TableSchema, **data: Any) -> SpecProblem:
    with pytest.raises(InvalidSpec) as caught:
        resolved(model, schema, **data)
    (problem,) = caught.value.problems
    return problem


def small(name: str) -> dict[str, Any]:
    """A model that has room in a picture of 3 by 4."""
    return {"type": name, "filters": [2]}


def shape_of(spec: EffectiveSpec) -> Any:
    return spec.model.model_dump()["input_shape"]


@pytest.mark.parametrize("name", ["cnn", "resnet"])
class TestFilledIn:
    def test_the_table_may_know_it(self, name: str) -> None:
        assert shape_of(resolved(small(name), pixels(image_shape=[3, 4, 1]))) == [3, 4, 1]

    def test_an_array_has_it(self, name: str) -> None:
        assert shape_of(resolved(name, table(number("x", shape=[6, 5, 3]), integer("y", 2)))) == [6, 5, 3]
        assert shape_of(resolved(name, table(number("x", shape=[6, 5]), integer("y", 2)))) == [6, 5, 1]

    def test_the_spec_may_say_it(self, name: str) -> None:
        assert shape_of(resolved({**small(name), "input_shape": [6, 2, 1]}, pixels())) == [6, 2, 1]

    def test_what_the_spec_says_wins(self, name: str) -> None:
        schema = pixels(image_shape=[3, 4, 1])
        assert shape_of(resolved({**small(name), "input_shape": [4, 3, 1]}, schema)) == [4, 3, 1]

    def test_the_result_resolves_to_itself(self, name: str) -> None:
        schema = pixels(image_shape=[3, 4, 1])
        found = resolved(small(name), schema)
        assert resolve(parse_job(found.model_dump(mode="json")), schema, "cpu") == found


class TestRefused:
    def test_a_table_that_does_not_say_it(self) -> None:
        problem = refused("cnn", pixels())
        assert problem == SpecProblem(
            "/model/input_shape",
            "Model cnn needs pictures, and the data does not say their shape: set model.input_shape to [height, width, "
            "channels] with 12 values in all, for example [3, 4, 1].",
            "[3, 4, 1]",
        )

    @pytest.mark.parametrize("features", [PIXELS[:-1], PIXELS[::-1]])
    def test_some_pixels_or_another_order_are_no_picture(self, features: list[str]) -> None:
        problem = refused("cnn", pixels(image_shape=[3, 4, 1]), features=features)
        assert "does not say their shape" in problem.message

    def test_a_shape_of_another_size_names_both_numbers(self) -> None:
        problem = refused({"type": "resnet", "input_shape": [3, 4, 3]}, pixels(image_shape=[3, 4, 1]))
        assert problem == SpecProblem(
            "/model/input_shape",
            "model.input_shape [3, 4, 3] has 36 values, but the features give 12 for each row; it could be [3, 4, 1].",
            "[3, 4, 1]",
        )

    def test_a_picture_that_is_pooled_away_names_the_setting(self) -> None:
        problem = refused("cnn", pixels(image_shape=[3, 4, 1]))
        assert problem == SpecProblem(
            "/model/pool",
            "Layer max_pool2d_2 looks at windows of [2, 2], but gets the smaller shape [1, 2, 32]; set model.pool to "
            "1, or make model.filters shorter.",
            "1",
        )

    def test_the_pointer_is_cut_back_to_sugar(self) -> None:
        raw = {"framework": "torch", "model": "cnn", "data": "iris"}
        with pytest.raises(InvalidSpec) as caught:
            resolve(parse_job(raw), builtin_schema("iris"), "cpu")
        assert [problem.pointer for problem in caught.value.within(raw).problems] == ["/model"]


class TestDigits:
    @pytest.mark.parametrize("name", ["cnn", "resnet"])
    def test_a_preset_alone_is_enough(self, name: str) -> None:
        schema = builtin_schema("digits")
        raw = {"framework": "torch", "model": name, "data": "digits"}
        found = resolve(parse_job(raw), schema, "cpu")
        assert shape_of(found) == [8, 8, 1]
        assert summarise(found, schema).layers[0].output_shape == [8, 8, 1]
