"""Script jobs over a service of real processes: data, ranks, packages, a stop, a kill and going on."""

import hashlib
import io
import os
import signal
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.scripts import artifacts, code_stack, ended, lines, notices, script, submit, upload
from tests.e2e.stack import Stack

# A number that grows by one at a step, and a checkpoint at every fifth: it ends at 40 however often it is interrupted.
COUNTER = """
import json, os, pathlib, time
checkpoints = pathlib.Path(os.environ["TRAINSHED_CHECKPOINT_DIR"])
outputs = pathlib.Path(os.environ["TRAINSHED_OUTPUT_DIR"])
count = 0
if "TRAINSHED_RESUME_DIR" in os.environ:
    count = json.loads((pathlib.Path(os.environ["TRAINSHED_RESUME_DIR"]) / "count.json").read_text())
    print("went on from", count, "at step", os.environ["TRAINSHED_RESUME_STEP"])
for count in range(count + 1, 41):
    print(json.dumps({"step": count, "steps": 40, "loss": 1 / count}))
    if count % 5 == 0:
        new = checkpoints / "count.json.tmp"
        new.write_text(json.dumps(count))
        new.replace(checkpoints / "count.json")
        print(json.dumps({"step": count, "checkpoint": "count.json"}))
    time.sleep(PAUSE)
(outputs / "count.json").write_text(json.dumps(count))
"""
RANKS = """
import json, os, pathlib, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(address) as server:
        heard = sorted(int(server.accept()[0].recv(10)) for _ in range(world - 1))
    pathlib.Path(os.environ["TRAINSHED_OUTPUT_DIR"], "heard.json").write_text(json.dumps(heard))
else:
    for _ in range(200):
        try:
            socket.create_connection(address).send(str(rank).encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
print("rank", rank, "of", world)
"""

NETS = {
    "torch": """
import os, torch
def build(input_shape, output_units, width):
    print(os.environ["GREETING"], "from the model")
    hidden = torch.nn.Linear(input_shape[0], width)
    return torch.nn.Sequential(hidden, torch.nn.ReLU(), torch.nn.Linear(width, output_units))
""",
    "tensorflow": """
import os, keras
def build(input_shape, output_units, width):
    print(os.environ["GREETING"], "from the model")
    layers = [keras.layers.Dense(width, "relu"), keras.layers.Dense(output_units)]
    return keras.Sequential([keras.Input(input_shape), *layers])
""",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "wheels").mkdir()
    (folder / "wheels" / "trainshed_tiny-1.0-py3-none-any.whl").write_bytes(tiny_wheel())
    settings = {
        "TRAINSHED_CPU_SLOTS": "2",
        "TRAINSHED_PIP_FIND_LINKS": str(folder / "wheels"),
        "TRAINSHED_PIP_INDEX_URL": "off",
    }
    with code_stack(folder / "home", settings) as running:
        yield running


class TestGoingOn:
    @pytest.mark.slow
    def test_killed_script_goes_on_from_its_checkpoint_and_ends_where_it_would_have(self, stack: Stack) -> None:
        retry = {"retry": {"failures": 1}}
        job_id = submit(stack, COUNTER.replace("PAUSE", "0.1"), job=retry)
        stack.until(lambda: stored(stack, job_id) or None, "a checkpoint")
        pid = stack.job(job_id)["attempts"][-1]["workers"][0]["pid"]

        os.kill(pid, signal.SIGKILL)

        job = stack.wait(job_id)
        assert (job["state"], [attempt["cause"] for attempt in job["attempts"]]) == (
            "succeeded",
            ["trainer_killed", None],
        )
        assert artifacts(stack, job_id) == {"count.json": b"40"}
        step = job["attempts"][1]["resumed_from_step"]
        assert step % 5 == 0
        assert f"went on from {step} at step {step}" in lines(stack, job_id)
        (series,) = stack.client.get(f"/v1/jobs/{job_id}/metrics").json()["data"]
        assert series["step"] == list(range(1, 41)), "without a gap and without a step twice"

    @pytest.mark.slow
    def test_paused_script_keeps_its_last_state_and_goes_on(self, stack: Stack) -> None:
        job_id = submit(stack, COUNTER.replace("PAUSE", "0.1"))
        stack.until(lambda: stored(stack, job_id) or None, "a checkpoint")
        answer = stack.client.post(f"/v1/jobs/{job_id}/pause")
        assert answer.status_code == 202, answer.text
        stack.wait(job_id, "paused")

        assert stack.client.post(f"/v1/jobs/{job_id}/resume").status_code == 202

        job = stack.wait(job_id)
        assert (job["state"], artifacts(stack, job_id)) == ("succeeded", {"count.json": b"40"})


class TestWhatItGets:
    def test_data_sets_by_their_names(self, stack: Stack) -> None:
        table = "x,y\n1,2\n3,4\n" + "".join(f"{n},{n}\n" for n in range(40))
        answer = stack.client.post("/v1/datasets", files={"file": ("t.csv", table, "text/csv")})
        assert answer.status_code == 201, answer.text
        source = "import hashlib, os, pathlib\n"
        source += "content = pathlib.Path(os.environ['TRAINSHED_DATA_TRAIN']).read_bytes()\n"
        source += (
            "pathlib.Path(os.environ['TRAINSHED_OUTPUT_DIR'], 'digest').write_text(hashlib.sha256(content).hexdigest())"
        )

        job = ended(stack, source, data={"train": answer.json()["id"]})

        assert artifacts(stack, job["id"]) == {"digest": hashlib.sha256(table.encode()).hexdigest().encode()}

    def test_variables_and_a_seed_and_folders_of_the_bundle(self, stack: Stack) -> None:
        files = {
            "train.py": "from package import numbers\nnumbers.write()\n",
            "package/__init__.py": "",
            "package/numbers.py": "import os, pathlib\ndef write():\n"
            "    found = [os.environ[name] for name in ('GREETING', 'TRAINSHED_SEED', 'TRAINSHED_DEVICE_TYPE')]\n"
            "    pathlib.Path(os.environ['TRAINSHED_OUTPUT_DIR'], 'found').write_text(' '.join(found))\n",
        }
        changes: dict[str, Any] = {"environment": {"variables": {"GREETING": "hello"}}, "seed": 7}

        job = stack.wait(stack.submit(script(upload(stack, files), **changes)))

        assert artifacts(stack, job["id"]) == {"found": b"hello 7 cpu"}

    def test_rank_for_each_device_that_talk_to_each_other(self, stack: Stack) -> None:
        job = ended(stack, RANKS, processes="per_device", job={"device_count": 2})

        assert job["state"] == "succeeded", job
        assert artifacts(stack, job["id"]) == {"heard.json": b"[1]"}
        assert sorted(line for line in lines(stack, job["id"]) if "rank" in line) == ["[1] rank 1 of 2", "rank 0 of 2"]

    def test_packages_of_the_worker_and_no_bundle(self, stack: Stack) -> None:
        code = "import os, sklearn; open(os.environ['TRAINSHED_OUTPUT_DIR'] + '/v', 'w').write(sklearn.__version__)"

        job = stack.wait(stack.submit(script(None, "python", "-c", code)))

        assert job["state"] == "succeeded", job

    def test_network_is_not_to_be_had_where_the_setting_is_off(self, stack: Stack) -> None:
        answer = stack.client.post("/v1/jobs", json=script(None, "python", "-c", "pass", network=True))

        assert answer.status_code == 422
        assert "TRAINSHED_CODE_NETWORK" in answer.text


class TestWhatItLeaves:
    def test_folders_come_as_archives_and_metrics_are_live(self, stack: Stack) -> None:
        source = "import os, json, pathlib\nroot = pathlib.Path(os.environ['TRAINSHED_OUTPUT_DIR'])\n"
        source += (
            "(root / 'model').mkdir()\n(root / 'model' / 'a.txt').write_text('a')\n(root / 'b.txt').write_text('b')\n"
        )
        source += "print(json.dumps({'step': 1, 'loss': 0.5}))\nprint('not a metric')\n"

        job = ended(stack, source)

        found = artifacts(stack, job["id"])
        assert sorted(found) == ["b.txt", "model.zip"]
        with zipfile.ZipFile(io.BytesIO(found["model.zip"])) as archive:
            assert archive.namelist() in (["a.txt"], ["model/a.txt"])
        assert job["metrics"]["last"] == {"loss": 0.5}
        assert lines(stack, job["id"]) == ["not a metric"]


class TestPackages:
    @pytest.mark.slow
    def test_wheel_of_the_host_is_installed_once_and_then_reused(self, stack: Stack) -> None:
        source = "import os, trainshed_tiny\n"
        source += "open(os.environ['TRAINSHED_OUTPUT_DIR'] + '/answer', 'w').write(str(trainshed_tiny.ANSWER))"
        spec = script(
            upload(stack, {"train.py": source, "requirements.txt": "trainshed_tiny==1.0  # ours\n"}),
            environment={"requirements": "requirements.txt"},
        )

        first, second = (stack.wait(stack.submit(spec)) for _ in range(2))

        assert (first["state"], second["state"]) == ("succeeded", "succeeded"), first
        assert artifacts(stack, second["id"]) == {"answer": b"42"}
        assert {"environment_building", "environment_ready"} <= notices(stack, first["id"]).keys()
        assert "environment_reused" in notices(stack, second["id"])

    def test_package_that_nobody_has_is_named(self, stack: Stack) -> None:
        spec = script(None, "python", "-c", "pass", environment={"requirements": ["trainshed-nowhere==9"]})

        job = stack.wait(stack.submit(spec))

        assert (job["state"], job["cause"]) == ("failed", "environment_failed")
        assert "trainshed-nowhere" in job["attempts"][0]["detail"]


class TestModels:
    """A model of the user's own is trained in the same sandbox."""

    @pytest.mark.parametrize("framework", ["torch", "tensorflow"])
    def test_it_is_trained_and_handed_over_with_its_code(self, stack: Stack, framework: str) -> None:
        spec = {
            "framework": framework,
            "model": {
                "type": "python",
                "bundle": upload(stack, {"nets.py": NETS[framework]}),
                "entrypoint": "nets:build",
                "parameters": {"width": 16},
                "environment": {"variables": {"GREETING": "hello"}},
            },
            "data": "iris",
            "hyperparameters": {"epochs": 2, "batch_size": 16},
            "device_type": "cpu",
        }

        job = stack.wait(stack.submit(spec))

        assert job["state"] == "succeeded", job
        assert {"model.safetensors", "model.json", "code.zip"} <= artifacts(stack, job["id"]).keys()
        assert "hello from the model" in lines(stack, job["id"])


def stored(stack: Stack, job_id: str) -> list[int]:
    return [event["step"] for event in stack.events(job_id) if event["kind"] == "checkpoint"]


def tiny_wheel() -> bytes:
    """A wheel of one module, by the format of PEP 427."""
    packed, info = io.BytesIO(), "trainshed_tiny-1.0.dist-info"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("trainshed_tiny.py", "ANSWER = 42\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: trainshed_tiny\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return packed.getvalue()
