"""What a command finds in its environment, and which program a word means."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workers.scripts.hosted import CPU, CPUS, assignment, run, script
from workers.protocol import Device
from workers.scripts.assignment import Job, read
from workers.scripts.folders import Folders
from workers.scripts.variables import environments, free_ports, program_of, temporary

BASE = {"PATH": "/usr/bin", "LANG": "C.UTF-8", "OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1"}
CARDS = [Device(id=f"GPU-{number}", kind="cuda", name="Card") for number in range(2)]


def job(work_dir: Path, **changes: Any) -> Job:
    return read(assignment(work_dir, ["python", "train.py"], **changes).model_dump_json())


def of_ranks(work_dir: Path, **changes: Any) -> list[dict[str, str]]:
    told = job(work_dir, **changes)
    return environments(told, Folders(told.work_dir), BASE)


class TestEnvironments:
    def test_one_process_gets_what_the_contract_says(self, tmp_path: Path) -> None:
        (found,) = of_ranks(tmp_path, devices=CPUS, threads=4, inputs={"train": str(tmp_path / "data" / "train.csv")})

        expected = {
            "TRAINSHED_JOB_ID": "job_1",
            "TRAINSHED_ATTEMPT": "1",
            "TRAINSHED_SEED": "7",
            "TRAINSHED_CHECKPOINT_DIR": f"{tmp_path}/checkpoints",
            "TRAINSHED_OUTPUT_DIR": f"{tmp_path}/outputs",
            "TRAINSHED_DATA_DIR": f"{tmp_path}/data",
            "TRAINSHED_DATA_TRAIN": f"{tmp_path}/data/train.csv",
            "TRAINSHED_DEVICES": "cpu-0@host,cpu-1@host",
            "TRAINSHED_DEVICE_COUNT": "2",
            "TRAINSHED_DEVICE_TYPE": "cpu",
            "TRAINSHED_THREADS": "4",
            "OMP_NUM_THREADS": "4",
            "OMP_WAIT_POLICY": "PASSIVE",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": f"{tmp_path}/code",
            "PATH": f"{Path(sys.executable).parent}:/usr/bin",
            "TMPDIR": temporary(tmp_path / "tmp"),
            "HOME": str(tmp_path),
        }
        assert found | expected == found
        assert not {"RANK", "WORLD_SIZE", "MASTER_PORT", "TF_CONFIG", "TRAINSHED_RESUME_DIR"} & found.keys()

    def test_spec_s_variables_override_the_threads_and_not_the_contract(self, tmp_path: Path) -> None:
        (found,) = of_ranks(tmp_path, variables={"OMP_NUM_THREADS": "1", "HOME": "/root", "MODE": "offline"})

        assert (found["OMP_NUM_THREADS"], found["HOME"], found["MODE"]) == ("1", str(tmp_path), "offline")

    def test_what_goes_on_is_told_where_and_from_which_step(self, tmp_path: Path) -> None:
        (found,) = of_ranks(tmp_path, resume="resume", resume_step=40)

        assert (found["TRAINSHED_RESUME_DIR"], found["TRAINSHED_RESUME_STEP"]) == (f"{tmp_path}/checkpoints", "40")

    def test_ranks_get_torchrun_s_variables_and_their_share_of_the_threads(self, tmp_path: Path) -> None:
        first, second = of_ranks(tmp_path, framework="torch", processes="per_device", devices=CPUS, threads=4)

        assert {first[name] for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE")} == {"2"}
        assert [(env["RANK"], env["LOCAL_RANK"], env["GROUP_RANK"]) for env in (first, second)] == [
            ("0", "0", "0"),
            ("1", "1", "0"),
        ]
        assert first["MASTER_ADDR"] == "127.0.0.1"
        assert first["MASTER_PORT"] == second["MASTER_PORT"]
        assert first["TORCHELASTIC_RUN_ID"] == "job_1"
        assert (first["OMP_NUM_THREADS"], first["TRAINSHED_THREADS"]) == ("2", "2")
        assert "TF_CONFIG" not in first

    def test_tensorflow_s_workers_get_a_cluster_and_one_card_each(self, tmp_path: Path) -> None:
        found = of_ranks(tmp_path, framework="tensorflow", processes="per_device", devices=CARDS)

        configs = [json.loads(env["TF_CONFIG"]) for env in found]
        workers = configs[0]["cluster"]["worker"]
        assert len(set(workers)) == 2
        assert all(worker.startswith("127.0.0.1:") for worker in workers)
        assert [config["task"] for config in configs] == [{"type": "worker", "index": n} for n in range(2)]
        assert [env["CUDA_VISIBLE_DEVICES"] for env in found] == ["GPU-0", "GPU-1"]
        assert found[0]["TRAINSHED_DEVICE_TYPE"] == "cuda"

    def test_free_ports_are_different(self) -> None:
        assert len(set(free_ports(8))) == 8


class TestProgramOf:
    @pytest.fixture
    def programs(self, tmp_path: Path) -> Path:
        for name in ("bin/tool", "other/tool", "other/only", "code/run.sh"):
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("#!/bin/sh\n")
            path.chmod(0o755)
        return tmp_path

    @pytest.mark.parametrize(
        ("word", "file"),
        [
            ("python", "bin/python"),
            ("python3", "bin/python"),
            ("tool", "bin/tool"),
            ("only", "other/only"),
            ("./run.sh", "code/run.sh"),
            ("nothing", None),
            ("./nothing", None),
        ],
    )
    def test_word_means_the_job_s_own_program_first(self, word: str, file: str | None, programs: Path) -> None:
        found = program_of(word, programs / "bin/python", programs / "code", str(programs / "other"))

        assert found == (None if file is None else str(programs / file))

    def test_what_cannot_be_executed_is_no_program(self, programs: Path) -> None:
        (programs / "bin/tool").chmod(0o644)
        (programs / "other/tool").chmod(0o644)

        assert program_of("tool", programs / "bin/python", programs / "code", str(programs / "other")) is None

    @pytest.mark.parametrize("word", ["x" * 300, "/" + "x" * 300], ids=["on PATH", "as a path"])
    def test_place_that_cannot_be_looked_at_has_no_program(self, programs: Path, word: str) -> None:
        # No name has more than 255 bytes, so the kernel refuses to look, as it does in a folder that is closed to us.
        assert program_of(word, programs / "bin/python", programs / "code", str(programs / "other")) is None


class TestInsideTheCommand:
    def test_command_sees_it_all(self, tmp_path: Path) -> None:
        text = "import json, os; print(json.dumps({'env': dict(os.environ), 'cwd': os.getcwd()}))"
        said = json.loads(script(tmp_path, text, variables={"MODE": "offline"}).log)

        assert said["cwd"] == f"{tmp_path}/code"
        assert said["env"]["MODE"] == "offline"
        assert said["env"]["TRAINSHED_OUTPUT_DIR"] == f"{tmp_path}/outputs"

    def test_packages_of_the_bundle_are_found_from_everywhere(self, tmp_path: Path) -> None:
        files = {"pack/__init__.py": "NAME = 'mine'", "jobs/train.py": "import pack; print(pack.NAME)"}

        assert run(tmp_path, files, "python", "jobs/train.py").log == "mine\n"

    def test_data_is_below_the_data_folder_also_when_it_is_read_in_place(self, tmp_path: Path) -> None:
        fetched, mounted = tmp_path / "work" / "data" / "test.csv", tmp_path / "mount" / "table.csv"
        for path, content in ((fetched, "fetched"), (mounted, "mounted")):
            path.parent.mkdir(parents=True)
            path.write_text(content)
        text = """
import os, pathlib
folder = pathlib.Path(os.environ["TRAINSHED_DATA_DIR"])
print(sorted(p.name for p in folder.iterdir()), (folder / "train.csv").read_text())
print(*(pathlib.Path(os.environ[f"TRAINSHED_DATA_{name}"]).read_text() for name in ("TRAIN", "TEST")))
"""
        found = script(tmp_path / "work", text, inputs={"train": str(mounted), "test": str(fetched)})

        assert found.log == "['test.csv', 'train.csv'] mounted\nmounted fetched\n"

    def test_ranks_say_who_they_are_and_only_the_first_reports(self, tmp_path: Path) -> None:
        text = "import os; r = os.environ['RANK']; print('rank', r); print('{\"loss\": %s}' % r)"
        found = script(tmp_path, text, processes="per_device", devices=CPUS)

        assert sorted(found.log.splitlines()) == ["[1] rank 1", '[1] {"loss": 1}', "rank 0"]
        assert [(point.name, point.value) for point in found.points] == [("loss", 0.0)]

    def test_one_device_is_a_world_of_one(self, tmp_path: Path) -> None:
        found = script(tmp_path, "import os; print(os.environ['WORLD_SIZE'])", processes="per_device", devices=[CPU])

        assert found.log == "1\n"

    @pytest.mark.parametrize("depth", [1, 20])
    def test_sockets_find_room_in_the_temporary_folder(self, depth: int, tmp_path: Path) -> None:
        text = """
import multiprocessing.connection as c, os, pathlib, tempfile
listener = c.Listener(family="AF_UNIX")
kept = pathlib.Path(tempfile.mkdtemp(), "kept")
kept.write_text("x")
print(kept.resolve())
"""
        work_dir = tmp_path.joinpath(*["folder"] * depth)
        kept = Path(script(work_dir, text).log.strip())

        assert work_dir / "tmp" in kept.parents
        assert kept.read_text() == "x"

    def test_wheel_s_packages_are_found(self, tmp_path: Path) -> None:
        files = {
            "tool/__init__.py": "",
            "tool/__main__.py": "print('ran')",
            "tool-1.dist-info/WHEEL": "Wheel-Version: 1.0",
        }

        assert run(tmp_path, files, "python", "-m", "tool", bundle_format="wheel").log == "ran\n"


def test_path_of_the_host_is_behind_the_environment_s(tmp_path: Path) -> None:
    (found,) = of_ranks(tmp_path)

    assert found["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
