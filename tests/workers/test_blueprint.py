"""What a job trains: our layers, or the user's module."""

from pathlib import Path

import pytest

from app.spec import layers_of
from tests.workers.training_jobs import builtin_job
from tests.workers.user_model.user_jobs import python_job
from workers.blueprint import Blueprint, blueprint_of
from workers.context import NullContext
from workers.evaluation import block_rows
from workers.preparation import read_dataset
from workers.protocol import Assignment


def blueprint(assignment: Assignment) -> Blueprint:
    return blueprint_of(assignment, read_dataset(assignment, NullContext()))


class TestOfLayers:
    def test_has_the_layers_of_the_spec_and_their_weights(self, tmp_path: Path) -> None:
        job = builtin_job(tmp_path, "iris")

        found = blueprint(job)

        layers = layers_of(job.spec, 3, (4,))
        assert list(found.layers) == layers
        assert found.block == block_rows(layers, (4,))
        facts = found.facts(read_dataset(job, NullContext()))
        assert facts is not None
        assert facts["dense_1.kernel"].shape == (4, 8)
        assert (found.module, found.archive) == (None, None)

    @pytest.mark.parametrize("batch_norm", [True, False])
    def test_a_last_row_alone_joins_the_batch_before_for_batch_norm(self, tmp_path: Path, *, batch_norm: bool) -> None:
        model = {"type": "mlp", "hidden": [4], "batch_norm": batch_norm}

        assert blueprint(builtin_job(tmp_path, "iris", model=model)).fold is batch_norm


class TestOfAModule:
    def test_says_what_to_call_and_where_it_lies(self, tmp_path: Path) -> None:
        job = python_job(tmp_path, "torch", parameters={"hidden": 3}, hyperparameters={"seed": 5})

        found = blueprint(job)

        assert found.module is not None
        assert found.module.folder == str(tmp_path / "code")
        assert (found.module.entrypoint, found.module.parameters, found.module.seed) == ("nets:mlp", {"hidden": 3}, 5)
        assert (found.module.input_shape, found.module.output_units) == ((4,), 3)
        assert found.archive == tmp_path / "bundle.zip"
        assert (found.layers, found.facts(read_dataset(job, NullContext()))) == ((), None)

    def test_may_have_batch_norm(self, tmp_path: Path) -> None:
        assert blueprint(python_job(tmp_path, "torch")).fold

    @pytest.mark.parametrize(("batch", "block"), [(1, 32), (100, 200), (100_000, 8192)])
    def test_is_looked_at_two_batches_at_a_time(self, tmp_path: Path, batch: int, block: int) -> None:
        assert blueprint(python_job(tmp_path, "torch", hyperparameters={"batch_size": batch})).block == block

    def test_runs_nothing_of_the_code(self, tmp_path: Path) -> None:
        assert blueprint(python_job(tmp_path, "torch", text="raise SystemExit(1)\n")).module is not None
