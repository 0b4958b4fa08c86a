"""A script of a user's computes on the card of its lease, in the sandbox that keeps it from everything else."""

import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.attempts import THREADS, device_of, until
from tests.gpu.cards import Card
from tests.workers.launcher.attempt import FAR_NS, ROOT, Attempt, boot_ns
from workers.launch import ColdLauncher, LaunchRequest, trainer_environment
from workers.launch_port import SCRIPT_HOST
from workers.protocol import ArchiveLimits, ScriptAssignment, ScriptLimits
from workers.sandbox import Sandbox

GIB = 1024**3
# 64 x 64 ones: each of the 4096 elements of the product is 64, and their sum over 64 is 4096.
MULTIPLIES = {
    "torch": """
import json, os, torch
ones = torch.ones(64, 64, device="cuda")
print(json.dumps({"step": 1, "product": float((ones @ ones).sum()) / 64, "cards": torch.cuda.device_count()}))
print("on", os.environ["CUDA_VISIBLE_DEVICES"])
torch.save(ones.cpu(), os.path.join(os.environ["TRAINSHED_OUTPUT_DIR"], "ones.pt"))
""",
    "tensorflow": """
import json, os, tensorflow as tf
cards = tf.config.list_physical_devices("GPU")
with tf.device("/GPU:0"):
    ones = tf.ones((64, 64))
    product = ones @ ones
assert "GPU:0" in product.device, product.device
print(json.dumps({"step": 1, "product": float(tf.reduce_sum(product)) / 64, "cards": len(cards)}))
print("on", os.environ["CUDA_VISIBLE_DEVICES"])
open(os.path.join(os.environ["TRAINSHED_OUTPUT_DIR"], "product"), "w").write(str(product.device))
""",
}

RunScript = Callable[[Card, str], Attempt]


@pytest.fixture
def run_script(framework: str, tmp_path: Path) -> Iterator[RunScript]:
    """Start a script of one file on a card, as a worker would."""
    with ExitStack() as stack:

        def begin(card: Card, source: str) -> Attempt:
            request = _request(framework, card, source, tmp_path)
            running = ColdLauncher().start(request)
            stack.callback(running.close)
            return Attempt(running, request, limit_s=300.0)

        yield begin


def _request(framework: str, card: Card, source: str, folder: Path) -> LaunchRequest:
    work_dir = folder / "work"
    work_dir.mkdir()
    with zipfile.ZipFile(work_dir / "bundle.zip", "w") as archive:
        archive.writestr("train.py", source)
    device = device_of(card)
    environment = trainer_environment([device], THREADS, work_dir, os.environ)
    return LaunchRequest(
        interpreter=Path(sys.executable),
        environment={**environment, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        assignment=ScriptAssignment(
            job_id="job_1",
            attempt=1,
            framework=framework,
            interpreter=sys.executable,
            command=["python", "train.py"],
            processes="one",
            variables={},
            devices=[device],
            threads=THREADS,
            work_dir=str(work_dir),
            seed=0,
            bundle=str(work_dir / "bundle.zip"),
            bundle_format="zip",
            limits=ScriptLimits(
                archive=ArchiveLimits(entries=10, total_bytes=GIB, file_bytes=GIB, ratio=200),
                max_output_bytes=GIB,
                max_output_files=10,
            ),
        ),
        lock_dir=folder / "locks",
        until_boot_ns=boot_ns() + FAR_NS,
        entry=SCRIPT_HOST,
        sandbox=Sandbox(network=False, needs_loopback=False, max_file_bytes=64 * GIB, max_processes=1024),
    )


def points(said: list[dict[str, Any]]) -> dict[str, float]:
    reports = [message for message in said if message["type"] == "report"]
    return {point["name"]: point["value"] for report in reports for point in report["points"]}


class TestScript:
    def test_it_multiplies_on_the_card_of_its_lease_alone(
        self, run_script: RunScript, framework: str, card: Card
    ) -> None:
        attempt = run_script(card, MULTIPLIES[framework])
        said = until(attempt, "done", "failed")

        assert said[-1]["type"] == "done", said[-1]
        assert points(said) == {"product": 4096.0, "cards": 1.0}
        assert [message["kind"] for message in said if message["type"] == "artifact"] == ["output"]
        assert f"on {card.id}" in attempt.all_output().decode()

    def test_it_is_told_that_it_has_a_card(self, run_script: RunScript, card: Card) -> None:
        leaves = "import os; open(os.environ['TRAINSHED_OUTPUT_DIR'] + '/x', 'w')\n"
        attempt = run_script(card, leaves + "print(os.environ['TRAINSHED_DEVICE_TYPE'])")
        started = until(attempt, "started", "failed")[-1]
        until(attempt, "done", "failed")

        assert (started["device_kind"], started["simulated"]) == ("cuda", False)
        assert "cuda" in attempt.all_output().decode().splitlines()
