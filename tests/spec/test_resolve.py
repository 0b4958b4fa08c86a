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
    InvalidSpec,
    SpecProblem,
    TableSchema,
    parse_spec,
    resolve,
)
from app.spec.examples import EXAMPLES
from tests.spec.bodies import UPLOADED, integer, number, table, text

BIRDS = table(number("bill"), number("wing"), integer("year", 3), text("species"))


def spec_of(data: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    return {
        "framework": "torch",
        "model": "linear",
        "data": {"source": UPLOADED, "target": "species", **(data or {})},
        "device_count": 1,
        **changes,
    }


def resolved(raw: dict[str, Any], schema: TableSchema = BIRDS) -> EffectiveSpec:
    return resolve(parse_spec(raw), schema, "cpu")


def refused(raw: dict[str, Any], schema: TableSchema = BIRDS) -> list[SpecProblem]:
    with pytest.raises(InvalidSpec) as caught:
        resolved(raw, schema)
    return caught.value.problems


def only(raw: dict[str, Any], schema: TableSchema = BIRDS) -> SpecProblem:
    problems = refused(raw, schema)
    assert len(problems) == 1, problems
    return problems[0]


class TestFilledIn:
    def test_nothing_is_left_open(self) -> None:
        dumped = resolved(spec_of()).model_dump(mode="json")
        assert dumped["data"]["features"] == ["bill", "wing", "year"]
        assert dumped["data"]["split"] == {"method": "stratified", "validation": 0.2, "test": 0.0, "seed": 0}
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
        assert resolve(parse_spec(spec_of()), BIRDS, device_type).device_type == device_type

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
        again = parse_spec(found.model_dump(mode="json"))
        assert resolve(again, BIRDS, "cuda") == found

    def test_it_has_the_same_keys_as_the_spec(self) -> None:
        raw = spec_of()
        assert list(resolved(raw).model_dump()) == list(parse_spec(raw).model_dump())


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


class TestTarget:
    def test_a_missing_target_lists_the_columns(self) -> None:
        problem = only(spec_of({"target": None}))
        assert problem.pointer == "/data/target"
        assert "'bill', 'wing', 'year', 'species'" in problem.message
        assert problem.suggestion == "species"

    @pytest.mark.parametrize("wrong", ["Species", "speces", " species", "SPECIES"])
    def test_an_unknown_target_names_the_nearest_column(self, wrong: str) -> None:
        problem = only(spec_of({"target": wrong}))
        assert problem == SpecProblem(
            "/data/target", f"There is no column '{wrong}'; did you mean 'species'?", "species"
        )

    def test_a_target_like_no_column_lists_some(self) -> None:
        problem = only(spec_of({"target": "zzzz"}), table(*(number(f"f{i}") for i in range(20))))
        assert "the columns are 'f0'" in problem.message
        assert "and 12 more" in problem.message
        assert problem.suggestion is None

    def test_wrong_features_are_told_beside_a_wrong_target(self) -> None:
        problems = refused(spec_of({"target": "speces", "features": ["bil", "species"]}))
        assert [problem.pointer for problem in problems] == [
            "/data/target",
            "/data/features/0",
            "/data/features/1",
        ]


class TestFeatures:
    def test_the_target_cannot_be_a_feature(self) -> None:
        problem = only(spec_of({"features": ["bill", "species"]}))
        assert problem == SpecProblem("/data/features/1", "Column 'species' is the target; it cannot be a feature too.")

    def test_an_unknown_feature_names_the_nearest_column(self) -> None:
        problem = only(spec_of({"features": ["bill", "wings"]}))
        assert (problem.pointer, problem.suggestion) == ("/data/features/1", "wing")

    def test_a_text_feature_names_column_row_and_what_to_use_instead(self) -> None:
        schema = table(number("bill"), text("island"), number("wing"), text("species"))
        problem = only(spec_of({"features": ["bill", "island"]}), schema)
        assert problem.pointer == "/data/features/1"
        assert problem.message.startswith("Row 2, column 'island': 'oak' is not a number (100 of its cells are not).")
        assert json.loads(problem.suggestion or "") == ["bill", "wing"]

    def test_every_text_column_among_all_is_told(self) -> None:
        f2 = text("f2", texts=1, first_text=CellAt(row=59, value="unknown"))
        f3 = text("f3", texts=1, first_text=CellAt(row=95, value="1 234"))
        problems = refused(spec_of({"target": "y"}), table(number("f1"), f2, f3, integer("y", 2)))
        assert [(problem.pointer, problem.suggestion) for problem in problems] == [("/data/features", '["f1"]')] * 2
        assert "Row 59, column 'f2': 'unknown' is not a number." in problems[0].message
        assert "Row 95, column 'f3': '1 234' is not a number." in problems[1].message

    def test_a_table_of_hundreds_of_text_columns_gets_twenty_messages(self) -> None:
        schema = table(*(text(f"t{index}") for index in range(300)), number("x"), integer("y", 2))
        problems = refused(spec_of({"target": "y"}), schema)
        assert len(problems) == 20
        assert {problem.suggestion for problem in problems} == {'["x"]'}

    def test_a_column_whose_bad_cell_is_not_known_is_named_all_the_same(self) -> None:
        schema = table(number("x"), text("island", texts=0, first_text=None), integer("y", 2))
        problem = only(spec_of({"target": "y"}), schema)
        assert problem.message.startswith("Column 'island' is text. Features must be numbers")

    def test_a_table_of_text_has_no_features_to_suggest(self) -> None:
        problem = only(spec_of(), table(text("a"), text("species")))
        assert problem.suggestion is None

    def test_a_table_with_the_target_alone_is_refused(self) -> None:
        assert only(spec_of(), table(text("species"))).pointer == "/data/features"

    def test_true_and_false_are_features(self) -> None:
        flag = Column(name="flag", kind="boolean", missing=0, distinct=2, labels=["false", "true"])
        assert resolved(spec_of(), table(flag, text("species"))).data.features == ["flag"]


class TestGaps:
    HOLED = table(
        number("f1", missing=9),
        number("f2", infinite=1, first_infinite=CellAt(row=42, value="inf")),
        number("f3"),
        integer("label", 2, missing=2),
        rows=80,
    )

    def test_error_names_every_used_column_with_its_gaps(self) -> None:
        problems = refused(spec_of({"target": "label"}), self.HOLED)
        assert [(problem.pointer, problem.suggestion) for problem in problems] == [("/data/missing", "drop")] * 3
        assert "Column 'f1' has 9 missing values" in problems[0].message
        assert "Column 'f2' has 1 infinite value, the first in row 42" in problems[1].message
        assert "Column 'label' has 2 missing values" in problems[2].message

    def test_drop_accepts_them(self) -> None:
        assert resolved(spec_of({"target": "label", "missing": "drop"}), self.HOLED).data.missing == "drop"

    def test_gaps_in_columns_that_are_not_used_do_not_matter(self) -> None:
        schema = table(number("f1", missing=9), number("f3"), integer("label", 2), rows=80)
        assert resolved(spec_of({"target": "label", "features": ["f3"]}), schema).data.features == ["f3"]

    def test_drop_that_leaves_no_row_is_refused(self) -> None:
        schema = table(number("f1", missing=80, distinct=0), integer("label", 2), rows=80)
        problem = only(spec_of({"target": "label", "missing": "drop"}), schema)
        assert problem.pointer == "/data/split"
        assert "0 usable rows" in problem.message


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
        model = {"type": "mlp", "hidden": [8192, 8192], "activation": "relu", "dropout": 0.0}
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
