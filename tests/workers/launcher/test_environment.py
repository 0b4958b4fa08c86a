"""The trainer's environment is complete at exec, and nothing else comes along."""

import os
from pathlib import Path
from typing import Literal

import pytest

from tests.workers.launcher.conftest import Start
from workers.environment import framework_environment, trainer_environment
from workers.protocol import Device

BASE = {
    "PATH": "/usr/bin",
    "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64",
    "LANG": "C.UTF-8",
    "HOME": "/root",
    "PYTHONPATH": "/opt/worker",
    "CUDA_VISIBLE_DEVICES": "3",
    "TRAINSHED_DATABASE_URL": "postgresql://trainshed:secret@db/trainshed",
    "AWS_SECRET_ACCESS_KEY": "secret",
}

# shared case C16: two cards whose CUDA order and PCI order differ; the 8 GB card is the second for CUDA.
CARD_24, CARD_8 = "GPU-aaaaaaaa-0000-0000-0000-000000000002", "GPU-aaaaaaaa-0000-0000-0000-000000000001"


def device(identity: str, kind: Literal["cuda", "cpu", "simulated"] = "cuda") -> Device:
    return Device(id=identity, kind=kind, name="Card")


class TestTrainerEnvironment:
    def test_card_is_named_by_its_id_never_by_an_index(self) -> None:
        environment = trainer_environment([device(CARD_8)], 1, Path("/w"), BASE)

        assert environment["CUDA_VISIBLE_DEVICES"] == CARD_8
        assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"

    def test_several_cards_are_in_the_order_of_the_lease(self) -> None:
        environment = trainer_environment([device(CARD_24), device(CARD_8)], 1, Path("/w"), BASE)

        assert environment["CUDA_VISIBLE_DEVICES"] == f"{CARD_24},{CARD_8}"

    def test_ids_are_opaque(self) -> None:
        mig = "MIG-GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f/1/0"

        assert trainer_environment([device(mig)], 1, Path("/w"), BASE)["CUDA_VISIBLE_DEVICES"] == mig

    def test_cpu_job_has_it_set_and_empty(self) -> None:
        environment = trainer_environment([device("cpu-0@host", "cpu")], 1, Path("/w"), BASE)

        assert environment["CUDA_VISIBLE_DEVICES"] == ""

    def test_simulated_card_is_named_as_a_card_would_be(self) -> None:
        assert (
            trainer_environment([device("GPU-9", "simulated")], 1, Path("/w"), BASE)["CUDA_VISIBLE_DEVICES"] == "GPU-9"
        )

    def test_nothing_secret_and_nothing_unknown_comes_along(self) -> None:
        environment = trainer_environment([device(CARD_8)], 1, Path("/w"), BASE)

        assert not any("secret" in value for value in environment.values())
        assert {name for name in environment if environment[name] == BASE.get(name)} == {
            "PATH",
            "LANG",
            "LD_LIBRARY_PATH",
        }

    def test_where_a_test_wants_it_killed_a_trainer_is_told_and_otherwise_not(self) -> None:
        wanted = {"TRAINSHED_FAULT_POINT": "checkpoint.begin:2"}
        assert trainer_environment([], 1, Path("/w"), BASE | wanted)["TRAINSHED_FAULT_POINT"] == "checkpoint.begin:2"
        assert "TRAINSHED_FAULT_POINT" not in trainer_environment([], 1, Path("/w"), BASE)

    def test_text_is_utf8_whatever_the_language(self) -> None:
        assert trainer_environment([], 1, Path("/w"), {"LANG": "en_US.ISO-8859-1"})["PYTHONUTF8"] == "1"

    def test_home_is_the_work_directory(self) -> None:
        assert trainer_environment([], 1, Path("/w"), BASE)["HOME"] == "/w"

    def test_one_thread_at_exec_and_the_pools_at_their_size(self) -> None:
        environment = trainer_environment([], 3, Path("/w"), BASE)

        assert {environment[f"{name}_NUM_THREADS"] for name in ("OMP", "OPENBLAS", "MKL")} == {"1"}
        assert environment["TF_NUM_INTRAOP_THREADS"] == environment["POLARS_MAX_THREADS"] == "3"

    def test_growth_is_for_tensorflow_only(self) -> None:
        assert framework_environment("tensorflow")["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
        assert framework_environment("tensorflow")["KERAS_BACKEND"] == "tensorflow"
        assert not any(name.startswith("TF_") for name in framework_environment("torch"))

    def test_torch_waits_for_its_threads_asleep(self) -> None:
        """Spinning threads beside busy neighbours were measured 30 times slower: docs/decisions/0009."""
        assert framework_environment("torch") == {"OMP_WAIT_POLICY": "PASSIVE"}


class TestAtExec:
    @pytest.mark.parametrize("framework", ["torch", "tensorflow"])
    def test_trainer_has_what_was_asked_and_only_that(self, start: Start, framework: str) -> None:
        before = dict(os.environ)
        attempt = start("describe", framework=framework)
        found = attempt.line()["environment"]
        tag = found.pop("TRAINSHED_LAUNCH")

        assert found == {**attempt.request.environment, **framework_environment(framework)}
        assert len(tag) == 32
        assert dict(os.environ) == before

    def test_every_launch_has_a_tag_of_its_own(self, start: Start) -> None:
        first, second = start("describe"), start("describe", device="GPU-1", job="job_2")

        assert first.line()["environment"]["TRAINSHED_LAUNCH"] != second.line()["environment"]["TRAINSHED_LAUNCH"]

    def test_descriptors_are_three_streams_two_channels_and_the_locks(self, start: Start) -> None:
        found = start("describe").line()["descriptors"]
        listing = [name for name, target in found.items() if target.startswith("/proc/")]
        targets = sorted(
            target.split(":")[0].rsplit("/")[-1].split(" ")[0] for name, target in found.items() if name not in listing
        )

        assert targets == ["dev-GPU-0.lock", "job-job_1.lock", "memfd", "null", "pipe", "pipe", "socket"]

    def test_runs_in_the_work_directory_which_is_not_on_the_path(self, start: Start) -> None:
        attempt = start("describe")
        said = attempt.line()

        assert said["directory"] == attempt.request.assignment.work_dir
        assert not {"", said["directory"]} & set(said["path"])

    def test_term_has_its_default_meaning_until_the_trainer_changes_it(self, start: Start) -> None:
        assert start("describe").line()["term"] is True

    def test_file_named_like_a_library_in_the_work_directory_is_not_imported(
        self, start: Start, tmp_path: Path
    ) -> None:
        (tmp_path / "job_1").mkdir()
        (tmp_path / "job_1" / "json.py").write_text("raise RuntimeError('taken for the library')")
        attempt = start("describe")

        assert attempt.line()["directory"] == str(tmp_path / "job_1")
