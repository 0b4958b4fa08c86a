"""What comes before the first step: the table read and divided, the model built with its first weights."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from app.errors import TrainshedError
from app.spec import EffectiveSpec, WeightFacts
from app.tables import features_and_target, read_table
from workers.backends.base import Backend, DType, Program, Session
from workers.backends.initial import Weights, draw_weights
from workers.blueprint import Blueprint
from workers.checkpoints import read_weights
from workers.context import Context
from workers.data.class_weights import class_weights
from workers.data.dataset import Dataset, prepare
from workers.data.order import largest_batch
from workers.located import located
from workers.protocol import Assignment


class OtherModel(TrainshedError):
    """The weights to start from are those of another model."""

    code = "invalid_data"

    def __init__(self, name: str, wanted: tuple[int, ...] | None, found: tuple[int, ...] | None) -> None:
        need = "has no such weight" if wanted is None else f"needs it in shape {list(wanted)}"
        have = "it is not in the checkpoint" if found is None else f"it has shape {list(found)} in the checkpoint"
        super().__init__(
            f"The checkpoint of initialize_from does not fit at '{name}': this model {need}, {have}. Use a checkpoint "
            "of a job with the same model, features and classes, or leave it out: initialize_from null."
        )
        self.name = name


def read_dataset(assignment: Assignment, context: Context, dtype: DType = "float32") -> Dataset:
    """Read the table and make the parts, with a notice for everything about them that a user should know.

    Raises:
        InvalidTable: the data cannot be read, or does not have what the spec names.
        UnusableFile: data that are read in place are not what was registered.
        TooFewRows: nothing is left to train on.
    """
    source = assignment.table
    with located(source) as path:
        table = read_table(path, source.builtin, source.format)
    columns = features_and_target(table, assignment.spec)
    if columns.dropped:
        rows = f"{columns.dropped} row{' with gaps was' if columns.dropped == 1 else 's with gaps were'}"
        context.notice("rows_dropped", f"{rows} left out, as data.missing 'drop' says.")
    for code, message in columns.notices:
        context.notice(code, message)
    data = prepare(columns, assignment.spec, dtype)
    for code, message in data.notices:
        context.notice(code, message)
    return data


def program_of(
    spec: EffectiveSpec, blueprint: Blueprint, data: Dataset, devices: int = 1, dtype: DType = "float32"
) -> Program:
    """Say what a spec asks a backend to compute."""
    settings = spec.hyperparameters
    weights = class_weights(settings.class_weights, data.vocabulary, data.class_rows)
    rows = len(data.parts["train"])
    return Program(
        layers=blueprint.layers,
        input_shape=data.input_shape,
        loss=spec.loss,
        optimizer=settings.optimizer,
        batch_size=largest_batch(rows, settings.batch_size, fold_single=blueprint.fold),
        l1=settings.l1,
        l2=settings.l2,
        weight_decay=settings.weight_decay,
        clip_norm=settings.clip_norm,
        clip_value=settings.clip_value,
        class_weights=None if weights is None else tuple(weights.tolist()),
        seed=settings.seed,
        dtype=dtype,
        precision=settings.precision,
        world=max(1, devices),
        module=blueprint.module,
    )


def open_session(
    assignment: Assignment, blueprint: Blueprint, data: Dataset, backend: Backend, dtype: DType = "float32"
) -> Session:
    """Build the model that a spec describes, with its first weights: drawn from the seed, or another job's.

    Raises:
        OtherModel: the checkpoint's weights have other names or shapes.
        UnreadableCheckpoint: the checkpoint is not complete.
        UserCodeFailed: the user's function does not build a model that takes the rows.
    """
    program = program_of(assignment.spec, blueprint, data, len(assignment.devices), dtype)
    given = _given_weights(assignment)
    facts = blueprint.facts(data)
    if facts is not None:
        return backend.open(program, first_weights(given, facts, program), data.parts)
    session = backend.open(program, {}, data.parts)
    if given is not None:
        with closing_after_errors(session):
            require_same_shapes(given, session.facts())
            session.restore(given, None)
    return session


def first_weights(given: Weights | None, facts: Mapping[str, WeightFacts], program: Program) -> Weights:
    """Take the weights of another job's checkpoint, or draw them from the seed.

    Raises:
        OtherModel: the given weights have other names or shapes.
    """
    if given is None:
        return draw_weights(program.layers, program.input_shape, program.seed)
    require_same_shapes(given, facts)
    return given


def _given_weights(assignment: Assignment) -> Weights | None:
    if assignment.initialize is None or assignment.resume is not None:
        return None
    return read_weights(Path(assignment.work_dir) / assignment.initialize)


def require_same_shapes(weights: Weights, facts: Mapping[str, WeightFacts]) -> None:
    """Check that weights are those of the model.

    Raises:
        OtherModel: at the first one that is missing, strange, or of another shape.
    """
    wanted = {name: fact.shape for name, fact in facts.items()}
    found = {name: value.shape for name, value in weights.items()}
    for name in (*wanted, *found):
        if wanted.get(name) != found.get(name):
            raise OtherModel(name, wanted.get(name), found.get(name))


@contextlib.contextmanager
def closing_after_errors(session: Session) -> Iterator[None]:
    """Give a session's devices and processes back when what follows its opening fails."""
    try:
        yield
    except BaseException:
        session.close()
        raise


def parameter_count(facts: Mapping[str, WeightFacts]) -> int:
    """How many numbers are trained."""
    return sum(fact.size for fact in facts.values() if fact.trained)
