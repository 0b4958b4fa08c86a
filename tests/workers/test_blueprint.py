"""What a job trains: our layers, or the user's module with its code unpacked within its limits."""

import zipfile
from pathlib import Path

import pytest

from app.archives import ArchiveTooLarge, UnsafeArchive
from app.errors import Cause
from app.spec import layers_of
from tests.workers.training_jobs import builtin_job
from tests.workers.user_model.user_jobs import TORCH_NETS, python_job
from workers.blueprint import Blueprint, blueprint_of
from workers.context import NullContext
from workers.evaluation import block_rows
from workers.failure import failure_of
from workers.preparation import read_dataset
from workers.protocol import ArchiveLimits, Assignment

LIMITS = ArchiveLimits(entries=10, total_bytes=100_000, file_bytes=100_000, ratio=100)


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
    def test_unpacks_its_code_and_says_what_to_call(self, tmp_path: Path) -> None:
        job = python_job(tmp_path, "torch", parameters={"hidden": 3}, hyperparameters={"seed": 5})

        found = blueprint(job.model_copy(update={"archive": LIMITS}))

        assert found.module is not None
        assert (tmp_path / "code" / "nets.py").read_text() == TORCH_NETS
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

    def test_a_bundle_over_its_limits_is_the_users(self, tmp_path: Path) -> None:
        job = python_job(tmp_path, "torch")
        small = LIMITS.model_copy(update={"total_bytes": 10, "file_bytes": 10})

        with pytest.raises(ArchiveTooLarge) as caught:
            blueprint(job.model_copy(update={"archive": small}))

        assert failure_of(caught.value, None).cause == Cause.USER_CODE
        assert not (tmp_path / "code").exists()

    def test_a_bundle_that_would_leave_its_folder_is_refused(self, tmp_path: Path) -> None:
        job = python_job(tmp_path, "torch")
        with zipfile.ZipFile(tmp_path / "bundle.zip", "w") as archive:
            archive.writestr("../outside.py", "")

        with pytest.raises(UnsafeArchive):
            blueprint(job)

        assert not (tmp_path.parent / "outside.py").exists()
