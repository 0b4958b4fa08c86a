"""What a job trains: the layers of its spec, or a model that the user's own function builds."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.spec import EffectiveSpec, Layer, PythonModel, WeightFacts, layers_of, weight_facts
from app.spec.layers import BatchNormLayer, walk
from workers.data.dataset import Dataset
from workers.evaluation import block_rows
from workers.protocol import Assignment
from workers.user_model.module import UserModule

_USER_BLOCKS: Final = (32, 8192)
"""How many rows of a user's model are looked at together, at least and at most."""


@dataclass(frozen=True)
class Blueprint:
    """Either `layers`, or a `module` of the user's and the `archive` of its code, if it came in one.

    `fold`: whether a last batch of one row must join the one before it. `block`: how many rows `outputs` gets at once,
    fixed by the spec, so that results do not depend on the time of day.
    """

    layers: tuple[Layer, ...]
    fold: bool
    block: int
    module: UserModule | None = None
    archive: Path | None = None

    def facts(self, data: Dataset) -> Mapping[str, WeightFacts] | None:
        """Return the weights by name; None for a user's model, of which its session knows."""
        return None if self.module is not None else weight_facts(self.layers, data.input_shape)


def blueprint_of(assignment: Assignment, data: Dataset) -> Blueprint:
    """Work out the layers, or say which function to call; nothing of the user's code is run yet."""
    spec = assignment.spec
    if isinstance(spec.model, PythonModel):
        return _of_module(assignment, spec.model, data)
    layers = tuple(layers_of(spec, data.output_units, data.input_shape))
    fold = any(isinstance(layer, BatchNormLayer) for layer in walk(layers))
    return Blueprint(layers, fold, block_rows(layers, data.input_shape))


def _of_module(assignment: Assignment, model: PythonModel, data: Dataset) -> Blueprint:
    module = UserModule(
        framework=assignment.spec.framework,
        folder=None if assignment.code is None else str(Path(assignment.work_dir) / assignment.code),
        entrypoint=model.entrypoint,
        parameters=model.parameters,
        input_shape=data.input_shape,
        output_units=data.output_units,
        seed=assignment.spec.hyperparameters.seed,
    )
    archive = None if assignment.bundle is None else Path(assignment.work_dir) / assignment.bundle
    # Whether it has batch norm, only its own code knows.
    return Blueprint((), fold=True, block=_user_block(assignment.spec), module=module, archive=archive)


def _user_block(spec: EffectiveSpec) -> int:
    """Twice a batch: without gradients that takes less memory than training does."""
    least, most = _USER_BLOCKS
    return max(least, min(most, 2 * spec.hyperparameters.batch_size))
