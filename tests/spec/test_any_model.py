"""Whatever layers are written: a model either fits, and then everything about it agrees, or it is refused in words."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.spec import (
    EffectiveSpec,
    InvalidSpec,
    TableSchema,
    layers_of,
    parse_job,
    resolve,
    summarise,
    walk,
    weight_facts,
)
from app.spec.layers import DenseLayer
from app.spec.problems import parts_of
from app.spec.shapes import trace
from tests.spec.bodies import UPLOADED, body, integer, number, problem_at, table, text

SIZE = st.integers(1, 4)
SIDES = SIZE | st.lists(SIZE, min_size=2, max_size=2)
PADDING = st.sampled_from(["same", "valid"])
FLAG = st.booleans()


def written(kind: str, **values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(kind), **values})


PLAIN = st.one_of(
    written("dense", units=SIZE, use_bias=FLAG, activation=st.sampled_from(["linear", "relu"])),
    written("activation", function=st.just("gelu")),
    written("dropout", rate=st.just(0.2)),
    written("batch_norm"),
    written("layer_norm"),
    written("flatten"),
    written("reshape", shape=st.sampled_from([[16], [4, 4], [2, 8], [4, 4, 1], [2, 2, 4], [16, 1]])),
    written("conv1d", filters=SIZE, kernel_size=SIZE, strides=SIZE, padding=PADDING),
    written("conv2d", filters=SIZE, kernel_size=SIDES, dilation=SIDES, padding=PADDING, use_bias=FLAG),
    written("max_pool2d", pool_size=SIDES, padding=PADDING),
    written("avg_pool2d", pool_size=SIDES, strides=SIDES, padding=PADDING),
    written("global_avg_pool2d"),
    written("embedding", input_dim=st.just(9), output_dim=SIZE),
    written("lstm", units=SIZE, return_sequences=FLAG),
    written("gru", units=SIZE, return_sequences=FLAG),
)


def nesting(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, min_size=1, max_size=2)
    return st.one_of(
        written("residual", layers=lists, shortcut=st.lists(inner, max_size=1)),
        written("parallel", branches=st.lists(lists, min_size=1, max_size=2), merge=st.sampled_from(["concat", "add"])),
    )


MODELS = st.lists(st.recursive(PLAIN, nesting, max_leaves=4), min_size=1, max_size=5)
TABLES = st.sampled_from(
    [
        table(*(integer(f"f{place}", 9, minimum=0.0, maximum=8.0) for place in range(16)), integer("y", 3)),
        table(number("x", shape=[4, 4, 1]), integer("y", 3)),
        table(*(number(f"f{place}") for place in range(14)), text("wood"), integer("y", 3)),
    ]
)


def spec_of(layers: list[Any]) -> dict[str, Any]:
    data = {"source": UPLOADED, "target": "y", "preprocess": {"numeric": "none"}}
    return body(model={"type": "sequential", "layers": layers}, data=data)


def resolved(layers: list[Any], schema: TableSchema) -> EffectiveSpec | None:
    """The effective spec, or None when the model does not fit the table."""
    try:
        return resolve(parse_job(spec_of(layers)), schema, "cpu")
    except InvalidSpec:
        return None


class TestAnyModel:
    @given(MODELS, TABLES)
    def test_a_refusal_points_into_the_body_and_says_which_layer(self, layers: list[Any], schema: TableSchema) -> None:
        raw = spec_of(layers)
        try:
            resolve(parse_job(raw), schema, "cpu")
        except InvalidSpec as error:
            for problem in error.problems:
                here: Any = raw
                for part in parts_of(problem.pointer):
                    here = here[int(part)] if isinstance(here, list) else here[part]
                assert problem.message.startswith("Layer ")
                if "type" in here:
                    assert problem.message.split()[1].startswith((here["type"], "activation"))

    @given(MODELS, TABLES)
    def test_what_fits_comes_back_the_same_from_json(self, layers: list[Any], schema: TableSchema) -> None:
        spec = resolved(layers, schema)
        if spec is not None:
            assert EffectiveSpec.model_validate_json(spec.model_dump_json()) == spec
            assert resolve(parse_job(json.loads(spec.model_dump_json())), schema, "cuda") == spec

    @given(MODELS, TABLES)
    def test_what_fits_ends_in_one_number_per_class(self, layers: list[Any], schema: TableSchema) -> None:
        spec = resolved(layers, schema)
        if spec is not None:
            shapes = summarise(spec, schema).layers
            assert (shapes[-1].name, shapes[-1].output_shape) == ("output", [3])

    @given(MODELS, TABLES)
    def test_names_shapes_and_weights_agree(self, layers: list[Any], schema: TableSchema) -> None:
        spec = resolved(layers, schema)
        if spec is None:
            return
        found = summarise(spec, schema)
        shape = tuple(found.input_shape)
        built = layers_of(spec, 3, shape)
        names = [layer.name for layer in walk(built)]
        facts = weight_facts(built, shape)
        assert len(set(names)) == len(names)
        assert names == [layer.name for layer, _, _ in trace(built, shape)] == [layer.name for layer in found.layers]
        assert {name.split(".")[0] for name in facts} <= set(names)
        assert found.parameter_count == sum(fact.size for fact in facts.values() if fact.trained)
        assert isinstance(built[-1], DenseLayer)

    @given(MODELS, TABLES)
    def test_it_is_flattened_before_the_output_exactly_when_it_must_be(
        self, layers: list[Any], schema: TableSchema
    ) -> None:
        spec = resolved(layers, schema)
        if spec is None:
            return
        shape = tuple(summarise(spec, schema).input_shape)
        built = [layer for layer in layers_of(spec, 3, shape)[:-1] if layer.name != "flatten_output"]
        outer = {layer.name for layer in built}
        *_, before = (shape, *(out for layer, _, out in trace(built, shape) if layer.name in outer))
        added = any(layer.name == "flatten_output" for layer in summarise(spec, schema).layers)
        assert added == (len(before) > 1)


class TestWordsOfOtherTools:
    # Class names of Keras and torch.
    @pytest.mark.parametrize(
        ("theirs", "ours"),
        [
            ("Dense", "dense"),
            ("Dropout", "dropout"),
            ("Activation", "activation"),
            ("BatchNormalization", "batch_norm"),
            ("BatchNorm2d", "batch_norm"),
            ("LayerNormalization", "layer_norm"),
            ("LayerNorm", "layer_norm"),
            ("Flatten", "flatten"),
            ("Reshape", "reshape"),
            ("Conv1D", "conv1d"),
            ("Conv2d", "conv2d"),
            ("MaxPool2d", "max_pool2d"),
            ("MaxPooling2D", "max_pool2d"),
            ("AvgPool2d", "avg_pool2d"),
            ("AveragePooling2D", "avg_pool2d"),
            ("GlobalAveragePooling2D", "global_avg_pool2d"),
            ("Embedding", "embedding"),
            ("LSTM", "lstm"),
            ("GRU", "gru"),
        ],
    )
    def test_a_layer_by_its_name_there_gets_ours(self, theirs: str, ours: str) -> None:
        raw = spec_of([{"type": theirs}])
        assert problem_at(raw, "/model/layers/0/type").suggestion == ours
