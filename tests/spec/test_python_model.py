"""Models that a function of the client's builds: what may be written, and what is known before it runs."""

import json
from typing import Any

import pytest

from app.spec import (
    EffectiveSpec,
    PythonModel,
    code_of,
    layers_of,
    parse_job,
    resolve,
    summarise,
)
from tests.spec.bodies import BIRDS, only, only_problem, problem_at, resolved, spec_of

HALVES = {**spec_of()["data"], "split": {"method": "random", "validation": 0.5, "test": 0.4}}
BUNDLE = "bun_01k0000000000000000000000a"


def python(**changes: Any) -> dict[str, Any]:
    """A job with a model of the client's own; `changes` are of the model."""
    model = {"type": "python", "bundle": BUNDLE, "entrypoint": "package.module:build", **changes}
    return spec_of(model=model)


class TestEntrypoint:
    @pytest.mark.parametrize("entrypoint", ["a:b", "package.module:build", "_x.y1:Net.build", "nets.small:Build_2"])
    def test_a_module_and_a_function(self, entrypoint: str) -> None:
        model = parse_job(python(entrypoint=entrypoint)).model
        assert isinstance(model, PythonModel)
        assert model.entrypoint == entrypoint

    @pytest.mark.parametrize(
        "entrypoint",
        [
            *("a;id", "../../x", "__import__('os')", "os", "py:build.py:x"),
            *(":build", "module:", "a b:c", "a:b:c", "a.:b", ".a:b", "1a:b", "ä:b", "a:b\n", "x" * 513 + ":b"),
        ],
    )
    def test_anything_else_is_refused(self, entrypoint: str) -> None:
        problem = problem_at(python(entrypoint=entrypoint), "/model/entrypoint")
        assert problem.suggestion == "package.module:build"

    @pytest.mark.parametrize(
        ("slip", "meant"),
        [
            ("package/module:build", "package.module:build"),
            ("module.py:build", "module:build"),
            ("./nets/small.py:build", "nets.small:build"),
            ("nets.small.build", "nets.small:build"),
            (" a:b() ", "a:b"),
            ("net.py", "net:build"),
        ],
    )
    def test_what_was_probably_meant_is_suggested(self, slip: str, meant: str) -> None:
        assert problem_at(python(entrypoint=slip), "/model/entrypoint").suggestion == meant
        model = parse_job(python(entrypoint=meant)).model
        assert isinstance(model, PythonModel)
        assert model.entrypoint == meant

    def test_one_in_place_of_the_model_becomes_one(self) -> None:
        problem = only_problem(spec_of(model="nets/small.py:build"))
        assert problem.suggestion == '{"type": "python", "entrypoint": "nets.small:build"}'

    def test_its_keys_tell_the_kind_of_model_that_was_not_named(self) -> None:
        assert problem_at(spec_of(model={"entrypoint": "a:b"}), "/model/type").suggestion == "python"
        assert problem_at(spec_of(model={"hidden": [3]}), "/model/type").suggestion == "mlp"

    @pytest.mark.parametrize("wrong", ["digits.zip", 5, "", "ds_01k0000000000000000000000a"])
    def test_a_bundle_is_named_by_its_id(self, wrong: object) -> None:
        problem = problem_at(python(bundle=wrong), "/model/bundle")
        assert "must be the id of uploaded code or null, for example" in problem.message
        assert problem.suggestion == BUNDLE

    def test_it_has_no_default(self) -> None:
        assert "model.entrypoint is missing" in only_problem(spec_of(model="python")).message

    def test_code_in_the_spec_is_no_key(self) -> None:
        assert problem_at(python(code="import os"), "/model/code").suggestion is None


class TestParameters:
    @pytest.mark.parametrize(
        "parameters",
        [{}, {"width": 64, "layers": [1, 2.5, None, True, {"a": "ä"}]}, {"text": "\x00\n"}, {"": {}}, {"n": 2**70}],
    )
    def test_any_object_is_taken_as_it_is(self, parameters: dict[str, Any]) -> None:
        model = parse_job(python(parameters=parameters)).model
        assert isinstance(model, PythonModel)
        assert model.parameters == parameters

    def test_their_size_is_that_of_their_json(self) -> None:
        fits = "x" * (64 * 1024 - len('{"a": ""}'))
        assert isinstance(parse_job(python(parameters={"a": fits})).model, PythonModel)
        message = only_problem(python(parameters={"a": fits + "x"})).message
        assert "must be at most 65536 bytes of JSON, but has 65537" in message

    def test_they_nest_so_deep_and_no_deeper(self) -> None:
        def nested(levels: int) -> Any:
            inner: Any = 1
            for _ in range(levels - 1):
                inner = [inner]
            return {"a": inner}

        assert isinstance(parse_job(python(parameters=nested(32))).model, PythonModel)
        assert "at most 32 deep" in only_problem(python(parameters=nested(33))).message
        assert "at most 32 deep" in only_problem(python(parameters=nested(900))).message

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
    def test_what_json_cannot_carry_is_refused(self, value: object) -> None:
        assert "without NaN or infinities" in only_problem(python(parameters={"a": value})).message

    def test_a_list_is_no_object(self) -> None:
        assert problem_at(python(parameters=[]), "/model/parameters").suggestion == '{"width": 64}'


class TestKnownBefore:
    def test_no_layers_no_parameters_and_no_memory(self) -> None:
        spec = resolved(python())
        assert layers_of(spec, 2) == []
        found = summarise(spec, BIRDS)
        assert (found.layers, found.parameter_count, found.memory_bytes) == ([], None, None)
        # Rows and steps are those of any model: 80 of 100 rows in batches of 64.
        assert (found.train_rows, found.validation_rows, found.steps_per_epoch) == (80, 20, 2)
        assert found.input_shape == [3]

    def test_it_resolves_to_itself_and_survives_json(self) -> None:
        spec = resolved(python(parameters={"width": 3}))
        assert EffectiveSpec.model_validate_json(spec.model_dump_json()) == spec
        assert resolve(parse_job(json.loads(spec.model_dump_json())), BIRDS, "cpu") == spec

    @pytest.mark.parametrize(
        ("framework", "wrong", "right"), [("torch", "keras", "onnx"), ("tensorflow", "onnx", "keras")]
    )
    def test_each_framework_has_its_export(self, framework: str, wrong: str, right: str) -> None:
        problem = only(python() | {"framework": framework, "exports": ["report", wrong]})
        assert (problem.pointer, problem.suggestion) == ("/exports/1", right)
        assert resolved(python() | {"framework": framework, "exports": [right]}).exports == [right]

    def test_a_last_row_alone_joins_the_batch_before_since_the_model_may_have_batch_norm(self) -> None:
        # 80 training rows in batches of 79: one and a rest of one row.
        settings = {"hyperparameters": {"batch_size": 79}}
        assert summarise(resolved(python() | settings), BIRDS).steps_per_epoch == 1
        assert summarise(resolved(spec_of() | settings), BIRDS).steps_per_epoch == 2

    def test_of_tensorflow_it_trains_on_one_device(self) -> None:
        problem = only(python() | {"framework": "tensorflow", "device_count": 2})
        assert (problem.pointer, problem.suggestion) == ("/device_count", "1")
        assert resolved(python() | {"framework": "torch", "device_count": 2}).device_count == 2

    def test_several_devices_are_for_torch(self) -> None:
        assert resolved(python() | {"device_count": 2}).device_count == 2
        problem = only(python() | {"device_count": 2, "framework": "tensorflow"})
        assert (problem.pointer, problem.suggestion) == ("/device_count", "1")
        assert "trains on one device" in problem.message

    def test_what_needs_no_layers_is_checked_all_the_same(self) -> None:
        assert only(python() | {"device_count": 65}).pointer == "/device_count"
        few = BIRDS.model_copy(update={"rows": 1})
        assert "leave none for training" in only(python() | {"data": HALVES}, few).message

    def test_what_the_code_needs(self) -> None:
        code = code_of(parse_job(python(environment={"requirements": ["rich==14.1.0"]}, network=True)))
        assert code is not None
        assert (code.bundle, code.network, code.place) == (BUNDLE, True, "model")
        assert code.environment.requirements == ["rich==14.1.0"]
        assert code_of(parse_job(spec_of())) is None
