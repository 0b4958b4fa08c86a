"""The examples that the documentation shows: each is valid, and each built-in one trains as it stands."""

import json

import pytest

from app.spec import EffectiveSpec, parse_spec, resolve, summarise
from app.spec.catalog import LAYERS, MODELS, OPTIMIZERS, SCHEDULES
from app.spec.data import BUILTIN_NAMES
from app.spec.examples import EXAMPLES, UPLOADED
from app.spec.job import JobSpec
from app.spec.places import every_field
from app.tables import BUILTIN, builtin_schema

ON_BUILTIN = [name for name in EXAMPLES if name != "uploaded_table"]


class TestExamples:
    @pytest.mark.parametrize("name", ON_BUILTIN)
    def test_it_parses_and_resolves(self, name: str) -> None:
        spec = parse_spec(EXAMPLES[name])
        table = builtin_schema(spec.data.source)
        effective = resolve(spec, table, "cpu")
        assert EffectiveSpec.model_validate_json(effective.model_dump_json()) == effective
        assert summarise(effective, table).steps_per_epoch >= 1

    def test_together_they_use_both_frameworks_and_every_model_layer_optimizer_and_schedule(self) -> None:
        written = json.dumps([parse_spec(example).model_dump(mode="json") for example in EXAMPLES.values()])
        for word in ("torch", "tensorflow", *MODELS, *LAYERS, *OPTIMIZERS, *SCHEDULES):
            assert f'"{word}"' in written

    def test_the_full_example_leaves_nothing_to_defaults(self) -> None:
        full = EXAMPLES["digits_tensorflow"]
        assert parse_spec(full).model_dump(mode="json") == full

    def test_the_uploaded_one_names_an_id(self) -> None:
        assert EXAMPLES["uploaded_table"]["data"]["source"] == UPLOADED

    def test_the_spec_and_the_tables_know_the_same_built_in_sets(self) -> None:
        assert tuple(BUILTIN) == BUILTIN_NAMES


class TestCatalog:
    @pytest.mark.parametrize("group", [MODELS, LAYERS, OPTIMIZERS, SCHEDULES])
    def test_each_name_is_the_tag_of_its_model(self, group: dict[str, type]) -> None:
        for name, model in group.items():
            schema = model.model_json_schema()  # type: ignore[attr-defined]
            assert name in {value.get("const") for value in schema["properties"].values()}
            assert schema["description"]

    def test_it_holds_all_that_the_spec_accepts(self) -> None:
        tags = {
            tag
            for _, shape in every_field(JobSpec)
            for union in (shape, shape.items)
            if union is not None and union.key is not None
            for tag in union.members
        }
        assert tags == {*MODELS, *LAYERS, *OPTIMIZERS, *SCHEDULES}


class TestJsonSchema:
    def test_a_request_may_use_sugar_and_an_answer_never_does(self) -> None:
        asked = JobSpec.model_json_schema(mode="validation")["properties"]["model"]
        answered = JobSpec.model_json_schema(mode="serialization")["properties"]["model"]
        assert {"enum": ["linear", "mlp"], "type": "string"} in asked["anyOf"]
        assert "anyOf" not in answered
        assert set(answered["discriminator"]["mapping"]) == set(MODELS)

    def test_objects_take_no_other_keys(self) -> None:
        schema = JobSpec.model_json_schema()
        assert schema["additionalProperties"] is False
        assert all(part["additionalProperties"] is False for part in schema["$defs"].values())

    @pytest.mark.parametrize(("path", "shape"), [found for found in every_field(JobSpec) if found[1].examples])
    def test_every_example_of_a_field_is_plain_json(self, path: tuple[str, ...], shape: object) -> None:
        examples = shape.examples  # type: ignore[attr-defined]
        assert json.loads(json.dumps(examples)) == list(examples), path
