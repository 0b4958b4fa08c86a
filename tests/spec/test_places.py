"""Finding the place of a Pydantic location in the spec's models."""

import pytest
from pydantic import BaseModel, ValidationError

from app.spec.job import JobSpec
from app.spec.layer_specs import Dense
from app.spec.model import Mlp
from app.spec.places import every_field, locate
from app.spec.script import ScriptSpec
from app.spec.training import Hyperparameters, Sgd
from tests.spec.bodies import body

KINDS: list[type[BaseModel]] = [JobSpec, ScriptSpec]


class TestLocate:
    @pytest.mark.parametrize(
        ("location", "parts"),
        [
            ((), ()),
            (("framework",), ("framework",)),
            (("model", "mlp", "hidden", 0), ("model", "hidden", 0)),
            (("model", "mlp", "mlp"), ("model", "mlp")),
            (("model", "sequential", "layers", 2, "dense", "units"), ("model", "layers", 2, "units")),
            (("model", "sequential", "layers", 2, "dense", "dense"), ("model", "layers", 2, "dense")),
            (("hyperparameters", "optimizer", "sgd", "momentum"), ("hyperparameters", "optimizer", "momentum")),
            (("metrics", "list", 1), ("metrics", 1)),
            (("data", "features", "word"), ("data", "features")),
            (("tags", "list", "[key]"), ("tags", "list")),
            (("tags", "[key]"), ("tags", "[key]")),
            (("nothing", "here", 3), ("nothing", "here", 3)),
        ],
    )
    def test_tags_are_left_out_and_keys_are_kept(
        self, location: tuple[str | int, ...], parts: tuple[str | int, ...]
    ) -> None:
        assert locate(JobSpec, location).parts == parts

    def test_the_owner_is_the_model_with_the_last_key(self) -> None:
        assert locate(JobSpec, ("model", "mlp", "hidden")).owner is Mlp
        assert locate(JobSpec, ("model", "sequential", "layers", 0, "dense", "x")).owner is Dense
        assert locate(JobSpec, ("hyperparameters", "epochs")).owner is Hyperparameters

    def test_an_unknown_key_has_no_shape_but_knows_the_other_kinds(self) -> None:
        place = locate(JobSpec, ("hyperparameters", "optimizer", "adam", "momentum"))
        assert place.shape is None
        assert place.siblings["sgd"].model is Sgd

    def test_a_key_of_a_mapping_has_the_keys_shape(self) -> None:
        place = locate(JobSpec, ("tags", "x", "[key]"))
        assert place.is_key
        assert place.shape is not None
        assert place.shape.annotation is str

    def test_it_agrees_with_the_locations_that_pydantic_really_gives(self) -> None:
        raw = body(model={"type": "sequential", "layers": [{"type": "dense", "units": 0}]}, metrics=["x"])
        with pytest.raises(ValidationError) as caught:
            JobSpec.model_validate(raw)
        found = [locate(JobSpec, error["loc"]).parts for error in caught.value.errors()]
        assert found == [("model", "layers", 0, "units"), ("metrics", 0)]


class TestEveryField:
    def test_it_walks_into_unions_lists_and_objects(self) -> None:
        paths = {".".join(path) for path, _ in every_field(JobSpec)}
        assert {
            "framework",
            "model.hidden",
            "model.layers.units",
            "model.layers.function",
            "data.split.validation",
            "hyperparameters.optimizer.momentum",
            "hyperparameters.schedule.final_learning_rate",
            "retry.losses",
        } <= paths

    @pytest.mark.parametrize("root", KINDS)
    def test_every_field_has_a_description_for_the_documentation(self, root: type[BaseModel]) -> None:
        for path, _ in every_field(root):
            owner: type[BaseModel] | None = locate_owner(root, path)
            assert owner is not None
            assert owner.model_fields[path[-1]].description, path

    @pytest.mark.parametrize("root", KINDS)
    def test_every_plain_value_of_the_body_has_an_example_or_is_a_word(self, root: type[BaseModel]) -> None:
        for path, shape in every_field(root):
            if shape.annotation in (int, float, str):
                assert shape.examples, path


def locate_owner(root: type[BaseModel], path: tuple[str, ...]) -> type[BaseModel] | None:
    """The model that declares the last key of a dotted path, whichever union member that is."""
    candidates: list[type[BaseModel]] = [root]
    for part in path[:-1]:
        candidates = [
            model
            for candidate in candidates
            if part in candidate.model_fields
            for inner_path, _ in every_field(candidate)
            if inner_path == (part,)
            for model in _inner(candidate, part)
        ]
    return next((model for model in candidates if path[-1] in model.model_fields), None)


def _inner(model: type[BaseModel], key: str) -> list[type[BaseModel]]:
    from_shape = [shape for path, shape in every_field(model) if path == (key,)]
    found: list[type[BaseModel]] = []
    for shape in from_shape:
        stack = [shape]
        while stack:
            here = stack.pop()
            if here.model is not None:
                found.append(here.model)
            stack += [inner for inner in (*here.members.values(), here.items, here.values) if inner is not None]
    return found
