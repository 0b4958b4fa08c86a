"""The examples that the documentation shows: each is valid, and each built-in one trains as it stands."""

import json
from typing import get_args

import pytest

from app.spec import EffectiveSpec, code_of, parse_job, parse_spec, resolve, summarise
from app.spec.catalog import LAYERS, MODELS, OPTIMIZERS, SCHEDULES, entries
from app.spec.data import BUILTIN_NAMES
from app.spec.examples import BUNDLE, CODE_EXAMPLES, EXAMPLES, UPLOADED
from app.spec.job import JobSpec, LossName, MetricName, Task
from app.spec.places import every_field
from app.tables import BUILTIN, builtin_schema
from tests.spec.bodies import body, hyper, integer, number, table, text

PYTHON = {"python_model": CODE_EXAMPLES["python_model"]}
ON_BUILTIN = [name for name, spec in EXAMPLES.items() if UPLOADED not in json.dumps(spec)]


class TestExamples:
    @pytest.mark.parametrize("name", ON_BUILTIN)
    def test_it_parses_and_resolves(self, name: str) -> None:
        spec = parse_job(EXAMPLES[name])
        table = builtin_schema(spec.data.source)
        effective = resolve(spec, table, "cpu")
        assert EffectiveSpec.model_validate_json(effective.model_dump_json()) == effective
        assert summarise(effective, table).steps_per_epoch >= 1

    def test_together_they_use_both_frameworks_and_every_model_layer_optimizer_and_schedule(self) -> None:
        written = json.dumps([parse_job(example).model_dump(mode="json") for example in (EXAMPLES | PYTHON).values()])
        for word in ("torch", "tensorflow", *MODELS, *LAYERS, *OPTIMIZERS, *SCHEDULES):
            assert f'"{word}"' in written

    @pytest.mark.parametrize("name", CODE_EXAMPLES)
    def test_each_with_code_of_the_clients_parses(self, name: str) -> None:
        code = code_of(parse_spec(CODE_EXAMPLES[name]))
        assert code is not None
        assert code.bundle in (None, BUNDLE)

    def test_the_full_script_leaves_nothing_to_defaults(self) -> None:
        full = CODE_EXAMPLES["script_all_settings"]
        assert parse_spec(full).model_dump(mode="json") == full

    def test_the_full_example_leaves_nothing_to_defaults(self) -> None:
        full = EXAMPLES["digits_tensorflow"]
        assert parse_job(full).model_dump(mode="json") == full

    def test_the_one_with_text_and_gaps_resolves(self) -> None:
        # The columns of the Palmer penguins (Horst et al. 2020): 344 rows, three species.
        numbers = [number(name, missing=2) for name in ("bill_length_mm", "bill_depth_mm", "flipper_length_mm")]
        words = [text("island"), text("sex", labels=["female", "male"], missing=11)]
        species = text("species", labels=["Adelie", "Chinstrap", "Gentoo"], distinct=3)
        schema = table(*numbers, *words, integer("year", 3), species, rows=344)
        effective = resolve(parse_job(EXAMPLES["uploaded_penguins"]), schema, "cpu")
        found = summarise(effective, schema)
        assert EffectiveSpec.model_validate_json(effective.model_dump_json()) == effective
        assert found.input_shape == [3 + 2 + 2 + 1]
        assert (found.train_rows, found.validation_rows) == (275, 69)

    @pytest.mark.parametrize("name", ["uploaded_table", "uploaded_penguins"])
    def test_the_uploaded_ones_name_an_id(self, name: str) -> None:
        assert EXAMPLES[name]["data"]["source"] == UPLOADED

    def test_the_spec_and_the_tables_know_the_same_built_in_sets(self) -> None:
        assert tuple(BUILTIN) == BUILTIN_NAMES


class TestCatalog:
    @pytest.mark.parametrize("group", [MODELS, LAYERS, OPTIMIZERS, SCHEDULES])
    def test_each_name_is_the_tag_of_its_model(self, group: dict[str, type]) -> None:
        for name, model in group.items():
            schema = model.model_json_schema()  # type: ignore[attr-defined]
            schema = schema["$defs"][model.__name__] if "$ref" in schema else schema  # a layer in itself
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


class TestEntries:
    """What the API's catalog shows: everything there works as it stands."""

    def test_each_group_is_whole(self) -> None:
        names = {group: {entry.name for entry in found} for group, found in entries().items()}
        assert names == {
            "models": set(MODELS),
            "layers": set(LAYERS),
            "optimizers": set(OPTIMIZERS),
            "schedules": set(SCHEDULES),
            "losses": set(get_args(LossName)),
            "metrics": set(get_args(MetricName)),
        }

    def test_each_has_a_description_and_plain_json(self) -> None:
        for group, found in entries().items():
            for entry in found:
                assert entry.description.endswith("."), (group, entry.name)
                assert json.loads(json.dumps([entry.example, entry.schema])) == [entry.example, entry.schema]

    def test_each_example_is_accepted_where_it_belongs(self) -> None:
        shown = entries()
        for model in shown["models"]:
            assert parse_job(body(model=model.example)).model.type == model.name
        for layer in shown["layers"]:
            parse_job(body(model={"type": "sequential", "layers": [layer.example]}))
        for optimizer in shown["optimizers"]:
            assert parse_job(hyper(optimizer=optimizer.example)).hyperparameters.optimizer.name == optimizer.name
        for schedule in shown["schedules"]:
            assert parse_job(hyper(schedule=schedule.example)).hyperparameters.schedule.name == schedule.name
        for group in ("losses", "metrics"):
            assert {entry.task for entry in shown[group]} == set(get_args(Task))


class TestJsonSchema:
    def test_a_request_may_use_sugar_and_an_answer_never_does(self) -> None:
        asked = JobSpec.model_json_schema(mode="validation")["properties"]["model"]
        answered = JobSpec.model_json_schema(mode="serialization")["properties"]["model"]
        assert {"enum": ["linear", "mlp", "cnn", "resnet"], "type": "string"} in asked["anyOf"]
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
