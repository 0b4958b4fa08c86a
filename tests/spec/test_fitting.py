"""Whether a model fits its data and its batches: told before anything runs."""

from typing import Any, ClassVar

import pytest

from app.spec import Column, EffectiveSpec, InvalidSpec, SpecProblem, TableSchema, parse_job, resolve, summarise
from app.spec.layers import BatchNormLayer, DenseLayer, Layer, ResidualLayer
from app.spec.summary import steps_per_epoch
from tests.spec.bodies import UPLOADED, integer, number, table, text

PLAIN = table(*(number(f"f{place}") for place in range(4)), integer("y", 2))
WORDS = table(*(integer(f"w{place}", 50, minimum=0.0, maximum=49.0) for place in range(6)), integer("y", 2))


def raw(model: Any, data: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    if isinstance(model, list):
        model = {"type": "sequential", "layers": model}
    source = {"source": UPLOADED, "target": "y", **(data or {})}
    top = {key: changes.pop(key) for key in list(changes) if key == "device_count"}
    return {"framework": "torch", "model": model, "data": source, "hyperparameters": changes, **top}


def resolved(model: Any, schema: TableSchema = PLAIN, **more: Any) -> EffectiveSpec:
    return resolve(parse_job(raw(model, **more)), schema, "cpu")


def refused(model: Any, schema: TableSchema = PLAIN, **more: Any) -> SpecProblem:
    with pytest.raises(InvalidSpec) as caught:
        resolved(model, schema, **more)
    (problem,) = caught.value.problems
    return problem


def convolution(**more: Any) -> dict[str, Any]:
    return {"type": "conv2d", "filters": 2, "kernel_size": 3, **more}


class TestShapes:
    def test_a_problem_points_at_the_layer_in_the_spec(self) -> None:
        problem = refused([{"type": "dense", "units": 8}, {"type": "dropout", "rate": 0.1}, convolution()])
        assert problem == SpecProblem(
            "/model/layers/2",
            "Layer conv2d_1 needs a picture of shape [height, width, channels], but gets [8]; put a reshape before it, "
            'for example {"type": "reshape", "shape": [2, 4, 1]}.',
            '{"type": "reshape", "shape": [2, 4, 1]}',
        )

    def test_at_any_depth(self) -> None:
        inner = {"type": "parallel", "branches": [[], [{"type": "flatten"}, {"type": "lstm", "units": 3}]]}
        problem = refused([{"type": "residual", "layers": [inner]}])
        assert problem.pointer == "/model/layers/0/layers/0/branches/1/1"
        assert problem.message.startswith("Layer lstm_1 needs a sequence of shape [steps, features], but gets [4]")

    def test_one_hot_columns_count_each_category(self) -> None:
        schema = table(number("x"), text("wood"), integer("y", 2))
        problem = refused([{"type": "reshape", "shape": [2]}], schema)
        assert problem.message == "Layer reshape_1 makes shape [2], which has 2 values, but gets [3], which has 3."

    def test_what_is_not_flat_is_flattened_before_the_output(self) -> None:
        found = summarise(resolved([{"type": "reshape", "shape": [2, 2]}]), PLAIN)
        assert [layer.name for layer in found.layers] == ["reshape_1", "flatten_output", "output"]
        assert found.layers[-1].parameters == (4 + 1) * 2

    def test_an_array_enters_a_sequential_model_as_it_is(self) -> None:
        schema = table(number("x", shape=[7, 3]), integer("y", 2))
        found = summarise(resolved([{"type": "lstm", "units": 5}], schema), schema)
        assert found.input_shape == [7, 3]
        assert found.layers[0].output_shape == [5]
        assert found.layers[0].parameters == 4 * 5 * (3 + 5 + 1)


class TestBatchNorm:
    @pytest.mark.parametrize("model", [{"type": "mlp", "batch_norm": True}, [{"type": "batch_norm"}]])
    def test_a_batch_of_one_row_is_refused(self, model: Any) -> None:
        problem = refused(model, batch_size=1)
        assert problem == SpecProblem(
            "/hyperparameters/batch_size",
            "Layer batch_norm_1 normalises over the rows of a batch, so hyperparameters.batch_size must be at least 2, "
            "for example 32; layer_norm works with single rows.",
            "32",
        )

    def test_one_row_to_train_on_is_refused(self) -> None:
        schema = PLAIN.model_copy(update={"rows": 2})
        problem = refused([{"type": "batch_norm"}], schema, data={"split": {"method": "random", "validation": 0.5}})
        assert problem.pointer == "/data/split"
        assert problem.message.endswith("but there is only 1 row to train on.")

    def test_layer_norm_takes_single_rows(self) -> None:
        assert resolved([{"type": "layer_norm"}], batch_size=1).hyperparameters.batch_size == 1

    def test_it_is_found_inside_of_other_layers(self) -> None:
        nested = [{"type": "residual", "layers": [{"type": "parallel", "branches": [[{"type": "batch_norm"}]]}]}]
        assert refused(nested, batch_size=1).message.startswith("Layer batch_norm_1")


class TestSteps:
    # 17 rows: 16 + 1, 4 x 4 + 1, and all at once; a last batch of one row joins the one before.
    @pytest.mark.parametrize(("batch", "with_norm", "without"), [(16, 1, 2), (4, 4, 5), (64, 1, 1), (5, 4, 4)])
    def test_a_last_batch_of_one_row_is_no_step_of_its_own_with_batch_norm(
        self, batch: int, with_norm: int, without: int
    ) -> None:
        dense = DenseLayer("dense_1", 4)
        nested: list[Layer] = [ResidualLayer("residual_1", (dense, BatchNormLayer("batch_norm_1")))]
        assert steps_per_epoch(nested, 17, batch) == with_norm
        assert steps_per_epoch([dense], 17, batch) == without

    def test_the_summary_says_so(self) -> None:
        schema = PLAIN.model_copy(update={"rows": 17})
        data = {"split": {"validation": 0.0}}
        found = summarise(resolved({"type": "mlp", "batch_norm": True}, schema, data=data, batch_size=16), schema)
        assert (found.train_rows, found.steps_per_epoch) == (17, 1)


AS_THEY_ARE: dict[str, Any] = {"preprocess": {"numeric": "none"}}
EMBEDDING: dict[str, Any] = {"type": "embedding", "input_dim": 50, "output_dim": 3}


class TestEmbedding:
    def test_whole_numbers_of_the_table_are_looked_up(self) -> None:
        found = summarise(resolved([EMBEDDING], WORDS, data=AS_THEY_ARE), WORDS)
        assert found.layers[0].output_shape == [6, 3]
        assert found.layers[0].parameters == 50 * 3

    def test_reshaping_before_is_fine(self) -> None:
        layers = [{"type": "reshape", "shape": [2, 3]}, EMBEDDING]
        assert summarise(resolved(layers, WORDS, data=AS_THEY_ARE), WORDS).layers[1].output_shape == [2, 3, 3]

    def test_and_so_is_a_branch(self) -> None:
        layers = [{"type": "parallel", "branches": [[EMBEDDING], [{**EMBEDDING, "output_dim": 5}]]}]
        assert summarise(resolved(layers, WORDS, data=AS_THEY_ARE), WORDS).layers[0].output_shape == [6, 8]

    def test_scaled_numbers_cannot_be_looked_up(self) -> None:
        problem = refused([EMBEDDING], WORDS)
        assert problem == SpecProblem(
            "/data/preprocess/numeric",
            "Layer embedding_1 looks up whole numbers, so numbers must stay as they are: set numeric to none.",
            "none",
        )

    @pytest.mark.parametrize("before", [{"type": "dense", "units": 3}, {"type": "activation", "function": "relu"}])
    def test_computed_numbers_cannot_either(self, before: Any) -> None:
        problem = refused([before, EMBEDDING], WORDS, data=AS_THEY_ARE)
        assert problem == SpecProblem(
            "/model/layers/1",
            "Layer embedding_1 looks up whole numbers of the table: put it first, or right after reshape.",
        )

    @pytest.mark.parametrize(
        ("column", "said", "suggestion"),
        [
            (number("f"), "but column 'f' holds fractions.", None),
            (text("f"), "but column 'f' holds text.", None),
            (Column(name="f", kind="boolean", missing=0, distinct=2), "but column 'f' holds true and false.", None),
            (integer("f", 3, minimum=-1.0, maximum=9.0), "but column 'f' holds -1.", None),
            (
                integer("f", 60, minimum=0.0, maximum=1200.0),
                "but column 'f' holds 1,200; use an input_dim of at least 1,201.",
                "1201",
            ),
        ],
    )
    def test_the_column_that_does_not_fit_is_named(self, column: Column, said: str, suggestion: str | None) -> None:
        problem = refused([EMBEDDING], table(column, integer("y", 2)), data=AS_THEY_ARE)
        assert problem == SpecProblem(
            "/model/layers/0", f"Layer embedding_1 takes whole numbers from 0 to 49, {said}", suggestion
        )

    def test_the_largest_number_is_just_below_input_dim(self) -> None:
        schema = table(integer("f", 50, minimum=0.0, maximum=49.0), integer("y", 2))
        assert resolved([EMBEDDING], schema, data=AS_THEY_ARE).model.type == "sequential"
        assert refused([{**EMBEDDING, "input_dim": 49}], schema, data=AS_THEY_ARE).suggestion == "50"

    def test_gaps_cannot_be_filled_with_a_mean(self) -> None:
        schema = table(integer("f", 9, minimum=0.0, maximum=8.0, missing=2), integer("y", 2))
        problem = refused([EMBEDDING], schema, data={**AS_THEY_ARE, "missing": "impute"})
        assert (problem.pointer, problem.suggestion) == ("/data/missing", "drop")
        assert resolved([EMBEDDING], schema, data={**AS_THEY_ARE, "missing": "drop"}).data.missing == "drop"


class TestDevices:
    def test_more_devices_than_rows_of_a_batch_are_refused(self) -> None:
        problem = refused("linear", batch_size=2, device_count=4)
        assert (problem.pointer, problem.suggestion) == ("/device_count", "2")
        assert problem.message.startswith(
            "device_count 4 is more than hyperparameters.batch_size 2, the rows of a step"
        )

    def test_as_many_are_accepted(self) -> None:
        assert resolved("linear", batch_size=4, device_count=4).device_count == 4


class TestWarmup:
    def test_a_warmup_that_does_not_end_is_refused_with_the_number_of_steps(self) -> None:
        problem = refused("linear", epochs=10, batch_size=20, schedule={"name": "cosine", "warmup_steps": 40})
        assert problem == SpecProblem(
            "/hyperparameters/schedule/warmup_steps",
            "A warm-up of 40 steps does not end: the job has 40 (epochs 10, steps per epoch 4).",
            "4",
        )

    def test_a_job_of_one_step_has_no_room_for_any(self) -> None:
        problem = refused("linear", epochs=1, batch_size=80, schedule={"name": "cosine", "warmup_steps": 1})
        assert problem.message.endswith("the job has 1 (epochs 1, steps per epoch 1).")
        assert problem.suggestion == "0"

    def test_one_step_less_is_accepted(self) -> None:
        found = resolved("linear", epochs=10, batch_size=20, schedule={"name": "cosine", "warmup_steps": 39})
        assert found.hyperparameters.schedule.warmup_steps == 39


class TestTooLarge:
    PICTURE: ClassVar[list[Any]] = [{"type": "parallel", "branches": [[]] * 64}] * 5
    """Five times 64 copies side by side: 4 numbers become 2**32."""

    def test_a_layer_that_no_memory_holds_for_a_single_row_is_refused(self) -> None:
        reshape = {"type": "reshape", "shape": [2**16, 2**16, 1]}
        problem = refused([*self.PICTURE, reshape, {"type": "global_avg_pool2d"}])
        assert problem == SpecProblem(
            "/model/layers/4",
            "Layer parallel_5 gives [4294967296] for each row, which is more than 2,147,483,648 values; use fewer.",
        )

    def test_one_that_just_fits_is_estimated(self) -> None:
        layers = [*self.PICTURE[:4], {"type": "parallel", "branches": [[]] * 32}]
        layers += [{"type": "reshape", "shape": [2**16, 2**15, 1]}, {"type": "global_avg_pool2d"}]
        spec = resolved(layers, batch_size=1)
        assert (summarise(spec, PLAIN).memory_bytes or 0) > 2 * 4 * 2**31

    def test_a_number_of_parameters_beyond_all_measure_is_not_written_out(self) -> None:
        problem = refused([{"type": "parallel", "branches": [[]] * 64}] * 256)
        assert problem == SpecProblem(
            "/model",
            "The model has more than 1,000,000,000,000,000 parameters; at most 2,147,483,648 are accepted. "
            "Use fewer units.",
        )

    def test_a_billion_parameters_are_a_number_like_any_other(self) -> None:
        # (4 + 1) 20,000 + (20,000 + 1) 50,000 + (50,000 + 1) 2; nothing of it is allocated here.
        found = summarise(resolved({"type": "mlp", "hidden": [20_000, 50_000]}), PLAIN)
        assert found.parameter_count == 1_000_250_002


class TestTinyClasses:
    TINY = table(*(number(f"f{place}") for place in range(4)), integer("y", 8), rows=10)
    """Ten rows of eight classes: each keeps one for training, so two rows are left to share out."""

    @pytest.mark.parametrize(
        ("shares", "parts"),
        [({}, (8, 2, 0)), ({"validation": 0.5}, (8, 2, 0)), ({"validation": 0.1, "test": 0.4}, (8, 0, 2))],
    )
    def test_each_class_keeps_a_row_to_train_on(self, shares: Any, parts: tuple[int, int, int]) -> None:
        found = summarise(resolved("linear", self.TINY, data={"split": shares}), self.TINY)
        assert (found.train_rows, found.validation_rows, found.test_rows) == parts

    def test_nothing_left_for_validation_means_nothing_to_monitor(self) -> None:
        split = {"validation": 0.1, "test": 0.4}
        problem = refused("linear", self.TINY, data={"split": split}, early_stopping={})
        assert problem.pointer == "/hyperparameters/early_stopping/monitor"
        assert "the classes of 8 rows are too small to share out, so set data.split.method to random" in problem.message
        at_random = resolved("linear", self.TINY, data={"split": {**split, "method": "random"}}, early_stopping={})
        assert summarise(at_random, self.TINY).validation_rows == 1


class TestImpute:
    def test_gaps_are_accepted_and_cost_no_row(self) -> None:
        schema = table(number("f", missing=30), text("wood", missing=5), integer("y", 2, missing=10), rows=110)
        found = summarise(resolved("linear", schema, data={"missing": "impute"}), schema)
        assert (found.train_rows, found.validation_rows) == (80, 20)

    def test_a_column_without_any_value_cannot_be_filled(self) -> None:
        schema = table(number("f"), number("g", missing=100, distinct=0), integer("y", 2))
        problem = refused("linear", schema, data={"missing": "impute"})
        assert problem == SpecProblem(
            "/data/features", "Column 'g' has no value in any row; leave it out of the features."
        )


class TestTarget:
    @pytest.mark.parametrize(
        ("column", "said"),
        [
            (Column(name="y", kind="time", missing=0, distinct=9), "holds dates or times, which cannot be predicted"),
            (number("y", shape=[3]), "holds arrays of shape [3]; a target is one value per row"),
        ],
    )
    def test_dates_and_arrays_cannot_be_predicted(self, column: Column, said: str) -> None:
        assert said in refused("linear", table(number("x"), column)).message


class TestTogether:
    def test_all_that_does_not_fit_is_told_at_once(self) -> None:
        layers = [{"type": "batch_norm"}, convolution(), {"type": "embedding", "input_dim": 5, "output_dim": 2}]
        with pytest.raises(InvalidSpec) as caught:
            resolved(layers, batch_size=1, device_count=2, data={"preprocess": {"numeric": "none"}})
        assert [problem.pointer for problem in caught.value.problems] == [
            "/device_count",
            "/hyperparameters/batch_size",
            "/model/layers/2",
            "/model/layers/1",
        ]
