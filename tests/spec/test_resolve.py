"""The checks that need the table, and what is filled in from it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.spec import (
    CellAt,
    Column,
    EffectiveSpec,
    SpecProblem,
    TableSchema,
    parse_job,
    resolve,
)
from app.spec.examples import EXAMPLES
from tests.spec.bodies import BIRDS, integer, number, only, refused, resolved, spec_of, table, text


class TestFilledIn:
    def test_nothing_is_left_open(self) -> None:
        dumped = resolved(spec_of()).model_dump(mode="json")
        assert dumped["data"]["features"] == ["bill", "wing", "year"]
        assert dumped["data"]["split"] == {
            "method": "stratified",
            "column": None,
            "validation": 0.2,
            "test": 0.0,
            "seed": 0,
        }
        assert (dumped["task"], dumped["loss"], dumped["metrics"]) == ("classification", "cross_entropy", ["accuracy"])
        assert dumped["device_type"] == "cpu"
        assert '"auto"' not in json.dumps(dumped)

    def test_what_the_client_wrote_is_kept(self) -> None:
        raw = spec_of(
            {"target": "bill", "features": ["year", "wing"], "split": {"method": "random", "seed": 5}},
            loss="huber",
            metrics=["r2"],
            device_type="cuda",
            name="n",
            tags={"a": "b"},
            priority=3,
        )
        found = resolved(raw)
        assert found.data.features == ["year", "wing"]
        assert found.data.split.seed == 5
        assert (found.loss, found.metrics, found.device_type) == ("huber", ["r2"], "cuda")
        assert (found.name, found.tags, found.priority) == ("n", {"a": "b"}, 3)

    def test_the_split_has_the_jobs_seed_unless_it_has_its_own(self) -> None:
        assert resolved(spec_of(hyperparameters={"seed": 9})).data.split.seed == 9
        assert resolved(spec_of({"split": {"seed": 0}}, hyperparameters={"seed": 9})).data.split.seed == 0

    @pytest.mark.parametrize("device_type", ["cuda", "cpu"])
    def test_auto_is_the_device_type_that_the_caller_found(self, device_type: Any) -> None:
        assert resolve(parse_job(spec_of()), BIRDS, device_type).device_type == device_type

    def test_a_batch_larger_than_the_table_is_one_step(self) -> None:
        assert resolved(spec_of(hyperparameters={"batch_size": 100_000})).hyperparameters.batch_size == 100_000


class TestEffectiveSpec:
    @given(
        st.sampled_from(["species", "bill"]),
        st.fixed_dictionaries({"epochs": st.integers(1, 99), "learning_rate": st.floats(1e-6, 1e3)}),
        st.sampled_from([None, "2030-01-31T08:00:00.123456Z"]),
    )
    def test_json_and_back_is_the_same(self, target: str, hyperparameters: dict[str, Any], when: str | None) -> None:
        raw = spec_of({"target": target, "features": ["wing"]}, hyperparameters=hyperparameters, not_before=when)
        found = resolved(raw)
        assert EffectiveSpec.model_validate_json(found.model_dump_json()) == found
        assert EffectiveSpec.model_validate(found.model_dump()) == found

    def test_it_resolves_to_itself_on_any_host(self) -> None:
        found = resolved(spec_of())
        again = parse_job(found.model_dump(mode="json"))
        assert resolve(again, BIRDS, "cuda") == found

    def test_it_has_the_same_keys_as_the_spec(self) -> None:
        raw = spec_of()
        assert list(resolved(raw).model_dump()) == list(parse_job(raw).model_dump())


class TestTask:
    @pytest.mark.parametrize(
        ("target", "task"),
        [
            (text("y"), "classification"),
            (Column(name="y", kind="boolean", missing=0, distinct=2, labels=["false", "true"]), "classification"),
            (integer("y", 2), "classification"),
            (integer("y", 20), "classification"),
            (integer("y", 21), "regression"),
            (number("y", distinct=2), "regression"),
        ],
    )
    def test_auto_looks_at_the_target(self, target: Column, task: str) -> None:
        assert resolved(spec_of({"target": "y"}), table(number("x"), target)).task == task

    def test_a_written_task_wins_over_the_rule(self) -> None:
        schema = table(number("x"), integer("y", 3))
        assert resolved(spec_of({"target": "y"}, task="regression"), schema).task == "regression"

    def test_a_built_in_set_knows_its_task_for_its_own_target(self) -> None:
        columns = [number("x"), integer("z", 3), integer("target", 3)]
        schema = TableSchema(
            source_kind="builtin", rows=50, columns=columns, default_target="target", default_task="regression"
        )
        assert resolved(spec_of({"target": None}), schema).task == "regression"
        assert resolved(spec_of({"target": "z"}), schema).task == "classification"

    def test_fractions_are_no_classes(self) -> None:
        problem = only(spec_of({"target": "y"}, task="classification"), table(number("x"), number("y")))
        assert (problem.pointer, problem.suggestion) == ("/task", "regression")
        assert "holds fractions" in problem.message

    def test_more_than_a_thousand_values_are_no_classes(self) -> None:
        schema = table(number("x"), integer("y", 1001), rows=5000)
        problem = only(spec_of({"target": "y"}, task="classification"), schema)
        assert problem.message == "Column 'y' has more than 1000 different values, too many for classes."

    def test_more_than_a_thousand_names_are_no_classes_either(self) -> None:
        schema = table(number("x"), text("species", distinct=1001, labels=None, texts=5000), rows=5000)
        assert "too many for classes" in only(spec_of(), schema).message

    def test_one_class_is_not_enough(self) -> None:
        problem = only(spec_of(), table(number("x"), text("species", distinct=1, labels=["oak"])))
        assert problem.pointer == "/data/target"
        assert "one class only ('oak')" in problem.message

    def test_regression_on_names_points_at_the_first_of_them(self) -> None:
        problem = only(spec_of(task="regression"))
        assert problem.pointer == "/data/target"
        assert "row 2, column 'species': 'oak' is not a number (100 cells are not)" in problem.message

    def test_regression_on_true_and_false_is_refused(self) -> None:
        target = Column(name="y", kind="boolean", missing=0, distinct=2, labels=["false", "true"])
        problem = only(spec_of({"target": "y"}, task="regression"), table(number("x"), target))
        assert (problem.pointer, problem.suggestion) == ("/task", "classification")

    def test_numbers_with_a_bad_cell_are_not_taken_for_names(self) -> None:
        spoilt = text("price", distinct=90, labels=None, texts=1, first_text=CellAt(row=17, value="n/a"))
        problem = only(spec_of({"target": "price"}), table(number("x"), spoilt))
        assert problem.pointer == "/data/target"
        assert "row 17, column 'price': 'n/a' is not a number. Correct the file" in problem.message

    def test_such_a_column_can_be_classes_when_the_client_says_so(self) -> None:
        spoilt = text("code", distinct=90, texts=1, first_text=CellAt(row=17, value="n/a"))
        schema = table(number("x"), spoilt)
        assert resolved(spec_of({"target": "code"}, task="classification"), schema).task == "classification"

    def test_a_target_without_any_value_is_refused(self) -> None:
        problem = refused(
            spec_of({"target": "y", "missing": "drop"}), table(number("x"), number("y", missing=100, distinct=0))
        )
        assert problem[0] == SpecProblem("/data/target", "Column 'y' has no value in any row.")


class TestLossAndMetrics:
    @pytest.mark.parametrize(("target", "loss"), [("species", "cross_entropy"), ("bill", "mse")])
    def test_auto_fits_the_task(self, target: str, loss: str) -> None:
        assert resolved(spec_of({"target": target, "features": ["wing"]})).loss == loss

    @pytest.mark.parametrize("loss", ["mse", "mae", "huber"])
    def test_losses_of_regression_do_not_fit_classes(self, loss: str) -> None:
        problem = only(spec_of(loss=loss))
        assert problem == SpecProblem(
            "/loss", f"Loss {loss} does not fit classification; use cross_entropy or auto.", "cross_entropy"
        )

    def test_cross_entropy_does_not_fit_regression(self) -> None:
        problem = only(spec_of({"target": "bill", "features": ["wing"]}, loss="cross_entropy"))
        assert problem.message == "Loss cross_entropy does not fit regression; use mse, mae, huber or auto."

    def test_each_metric_that_does_not_fit_is_pointed_at(self) -> None:
        problems = refused(spec_of(metrics=["r2", "accuracy", "mae"]))
        assert [problem.pointer for problem in problems] == ["/metrics/0", "/metrics/2"]

    def test_all_metrics_of_regression_are_reported_by_default(self) -> None:
        assert resolved(spec_of({"target": "bill", "features": ["wing"]})).metrics == ["mae", "rmse", "r2"]


class TestSplit:
    def test_stratified_needs_classes(self) -> None:
        problem = only(spec_of({"target": "bill", "features": ["wing"], "split": {"method": "stratified"}}))
        assert (problem.pointer, problem.suggestion) == ("/data/split/method", "random")

    def test_auto_is_random_for_regression(self) -> None:
        assert resolved(spec_of({"target": "bill", "features": ["wing"]})).data.split.method == "random"

    def test_random_is_allowed_for_classes(self) -> None:
        assert resolved(spec_of({"split": {"method": "random"}})).data.split.method == "random"

    @pytest.mark.parametrize(("rows", "test"), [(1, 0.0), (2, 0.1)])
    def test_a_split_that_leaves_nothing_to_train_on_is_refused(self, rows: int, test: float) -> None:
        schema = table(number("x"), integer("y", 2), rows=rows)
        problem = only(spec_of({"target": "y", "split": {"validation": 0.1, "test": test}}), schema)
        assert problem.pointer == "/data/split"
        assert "leave none for training" in problem.message

    def test_three_rows_are_enough_for_three_parts(self) -> None:
        schema = table(number("x"), integer("y", 2), rows=3)
        found = resolved(spec_of({"target": "y", "split": {"validation": 0.1, "test": 0.1}}), schema)
        assert (found.data.split.validation, found.data.split.test) == (0.1, 0.1)


class TestSize:
    def test_a_model_of_billions_of_parameters_is_refused_with_its_number(self) -> None:
        raw = spec_of(model={"type": "mlp", "hidden": [65536, 65536]})
        problem = only(raw)
        expected = (3 + 1) * 65536 + (65536 + 1) * 65536 + (65536 + 1) * 2
        assert problem.message.startswith(f"The model has {expected:,} parameters;")
        assert problem.pointer == "/model"

    def test_a_large_model_that_can_be_meant_is_accepted(self) -> None:
        model = {"type": "mlp", "hidden": [8192, 8192], "activation": "relu", "dropout": 0.0, "batch_norm": False}
        assert resolved(spec_of(model=model)).model.model_dump() == model


class TestExamples:
    def test_the_uploaded_table_of_the_examples_resolves(self) -> None:
        wanted = EXAMPLES["uploaded_table"]["data"]["features"]
        schema = table(*(number(name, missing=2) for name in wanted), text("species"), rows=344)
        assert resolved(EXAMPLES["uploaded_table"], schema).data.features == wanted

    def test_all_problems_of_the_data_are_told_at_once(self) -> None:
        raw = spec_of({"features": ["bil", "species"], "split": {"method": "stratified"}}, loss="mse", metrics=["r2"])
        assert [problem.pointer for problem in refused(raw)] == [
            "/data/features/0",
            "/data/features/1",
            "/loss",
            "/metrics/0",
        ]
