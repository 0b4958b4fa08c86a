"""Whether the model fits its data and its batches: shapes, sizes, embeddings, batch norm, devices."""

import math
from collections.abc import Iterator, Sequence

from app.spec.expand import expand
from app.spec.geometry import written
from app.spec.inputs import input_shape_of, inputs_of
from app.spec.job import EffectiveSpec
from app.spec.layers import (
    BatchNormLayer,
    EmbeddingLayer,
    FlattenLayer,
    Layer,
    ReshapeLayer,
    sequences_in,
    walk,
)
from app.spec.model import Cnn
from app.spec.naming import Parts as Place
from app.spec.parts import Parts
from app.spec.problems import SpecProblem, pointer
from app.spec.python_model import PythonModel
from app.spec.shapes import LayerShape, ShapeProblem, infer
from app.spec.steering import monitors_of, without_validation
from app.spec.summary import output_units, rows_of, steps_per_epoch, usable_rows
from app.spec.table import Column, TableSchema

MAX_PARAMETERS = 2**31
"""Above this a model is taken for a slip of the pen: its weights alone are 8 GiB."""

MAX_VALUES = 2**31
"""Above this so is a layer: what it gives out for a single row is 8 GiB."""

_WRITTEN_OUT = 10**15  # larger numbers are not written in full


def check_fit(spec: EffectiveSpec, table: TableSchema) -> list[SpecProblem]:
    """Say when a part of the split would be empty, a layer cannot take what it gets, or the model cannot be meant."""
    inputs = inputs_of(spec.data, table)
    layers, places = expand(spec, output_units(spec, table), input_shape_of(inputs))
    parts = rows_of(spec, table)
    problems = [*_empty_parts(spec, usable_rows(spec, table), parts), *_devices(spec)]
    if parts.train >= 1:
        problems += _lonely_rows(spec, layers, parts.train)
        problems += _endless_warmup(spec, layers, parts.train)
        problems += _unwatched(spec, parts)
    problems += _embeddings(spec, layers, places, table)
    try:
        shapes = infer(layers, input_shape_of(inputs))
    except ShapeProblem as problem:
        return [*problems, _misfit(spec, problem, places[problem.layer])]
    return [*problems, *_too_large(shapes, places)]


def _too_large(shapes: Sequence[LayerShape], places: dict[str, Place]) -> Iterator[SpecProblem]:
    parameters = sum(layer.parameters for layer in shapes)
    if parameters > MAX_PARAMETERS:
        count = f"{parameters:,}" if parameters < _WRITTEN_OUT else f"more than {_WRITTEN_OUT:,}"
        sentence = f"The model has {count} parameters; at most {MAX_PARAMETERS:,} are accepted. Use fewer units."
        yield SpecProblem("/model", sentence)
        return
    for layer in shapes:
        if math.prod(layer.output_shape) > MAX_VALUES:
            shape = written(layer.output_shape)
            sentence = (
                f"Layer {layer.name} gives {shape} for each row, which is more than {MAX_VALUES:,} values; use fewer."
            )
            yield SpecProblem(pointer(places[layer.name]), sentence)
            return


def _unwatched(spec: EffectiveSpec, parts: Parts) -> Iterator[SpecProblem]:
    """A stratified split takes no class's last row for validation: with many tiny classes nothing may be left."""
    if spec.data.split.method == "stratified" and not parts.validation:
        for where, monitor in monitors_of(spec):
            if monitor.startswith("val_") and spec.data.split.validation:
                yield without_validation(where, monitor, rows=parts.train)


def _misfit(spec: EffectiveSpec, problem: ShapeProblem, place: Place) -> SpecProblem:
    """Point at the layer; in a preset, where nobody wrote it, at the setting that made it."""
    if isinstance(spec.model, Cnn):
        return SpecProblem("/model/pool", f"{problem.reason}; set model.pool to 1, or make model.filters shorter.", "1")
    return SpecProblem(pointer(place), problem.sentence, problem.suggestion)


def _empty_parts(spec: EffectiveSpec, rows: int, parts: Parts) -> Iterator[SpecProblem]:
    if parts.train >= 1:
        return
    shares = f"{parts.validation} for validation and {parts.test} for the test"
    if not parts.test:
        shares = f"{parts.validation} for validation"
    sentence = f"The table has {rows} usable {'row' if rows == 1 else 'rows'}; {shares} leave none for training."
    given = spec.data.split.method == "given"
    yield SpecProblem("/data/split", sentence, '{"validation": 0.0, "test": 0.0}' if rows and not given else None)


def _devices(spec: EffectiveSpec) -> Iterator[SpecProblem]:
    devices, batch = spec.device_count, spec.hyperparameters.batch_size
    if devices > 1 and isinstance(spec.model, PythonModel) and spec.framework == "tensorflow":
        sentence = (
            f"A python model of tensorflow trains on one device, and device_count is {devices}: use 1, or the "
            "framework torch, which shares each batch among them."
        )
        yield SpecProblem("/device_count", sentence, "1")
        return
    if devices > batch:
        sentence = (
            f"device_count {devices} is more than hyperparameters.batch_size {batch}, the rows of a step over all "
            f"devices together: some would have nothing to do. Use at most {batch}, or a larger batch."
        )
        yield SpecProblem("/device_count", sentence, str(batch))


def _lonely_rows(spec: EffectiveSpec, layers: Sequence[Layer], train: int) -> Iterator[SpecProblem]:
    """The variance of one row is 0: batch norm would erase it."""
    first = next((layer.name for layer in walk(layers) if isinstance(layer, BatchNormLayer)), None)
    if first is None:
        return
    if spec.hyperparameters.batch_size == 1:
        sentence = (
            f"Layer {first} normalises over the rows of a batch, so hyperparameters.batch_size must be at least 2, "
            "for example 32; layer_norm works with single rows."
        )
        yield SpecProblem("/hyperparameters/batch_size", sentence, "32")
    if train == 1:
        sentence = f"Layer {first} normalises over the rows of a batch, but there is only 1 row to train on."
        yield SpecProblem("/data/split", sentence, '{"validation": 0.0, "test": 0.0}')


def _endless_warmup(spec: EffectiveSpec, layers: list[Layer], train: int) -> Iterator[SpecProblem]:
    settings = spec.hyperparameters
    warmup = settings.schedule.warmup_steps
    per_epoch = steps_per_epoch(layers, train, settings.batch_size)
    steps = settings.epochs * per_epoch
    if warmup >= steps and warmup:
        sentence = (
            f"A warm-up of {warmup:,} steps does not end: the job has {steps:,} "
            f"(epochs {settings.epochs:,}, steps per epoch {per_epoch:,})."
        )
        yield SpecProblem("/hyperparameters/schedule/warmup_steps", sentence, str(steps // 10))


def _embeddings(
    spec: EffectiveSpec, layers: Sequence[Layer], places: dict[str, Place], table: TableSchema
) -> Iterator[SpecProblem]:
    """An embedding looks up whole numbers of the table, as they are there."""
    found = list(_embeddings_in(layers, raw=True))
    if not found:
        return
    names = [layer.name for layer, _ in found]
    if spec.data.preprocess.numeric != "none":
        sentence = f"Layer {names[0]} looks up whole numbers, so numbers must stay as they are: set numeric to none."
        yield SpecProblem("/data/preprocess/numeric", sentence, "none")
    features = frozenset(spec.data.features)
    used = [column for column in table.columns if column.name in features]
    gaps = [column for column in used if column.missing + column.infinite]
    if spec.data.missing == "impute" and gaps:
        sentence = f"Layer {names[0]} looks up whole numbers; the gaps of column '{gaps[0].name}' cannot be filled."
        yield SpecProblem("/data/missing", sentence, "drop")
    for layer, raw in found:
        where = pointer(places[layer.name])
        if not raw:
            sentence = f"Layer {layer.name} looks up whole numbers of the table: put it first, or right after reshape."
            yield SpecProblem(where, sentence)
            continue
        wrong = next((why for column in used if (why := _not_looked_up(column, layer))), None)
        if wrong:
            yield SpecProblem(where, wrong[0], wrong[1])


def _embeddings_in(layers: Sequence[Layer], *, raw: bool) -> Iterator[tuple[EmbeddingLayer, bool]]:
    """Find the embeddings, and whether each gets the table's own numbers."""
    for layer in layers:
        if isinstance(layer, EmbeddingLayer):
            yield layer, raw
        for inner in sequences_in(layer):
            yield from _embeddings_in(inner, raw=raw)
        raw = raw and isinstance(layer, ReshapeLayer | FlattenLayer)


def _not_looked_up(column: Column, layer: EmbeddingLayer) -> tuple[str, str | None] | None:
    """Say why a column's values are no numbers of rows of the table of vectors, and what input_dim would do."""
    start = f"Layer {layer.name} takes whole numbers from 0 to {layer.input_dim - 1:,}, but column '{column.name}'"
    if column.kind != "integer":
        held = {"number": "fractions", "boolean": "true and false"}.get(column.kind, "text")
        return f"{start} holds {held}.", None
    low, high = column.minimum, column.maximum
    if low is not None and low < 0:
        return f"{start} holds {int(low)}.", None
    if high is not None and high >= layer.input_dim:
        needed = int(high) + 1
        return f"{start} holds {int(high):,}; use an input_dim of at least {needed:,}.", str(needed)
    return None
