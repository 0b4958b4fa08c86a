"""How fast a job is beside the script that a user would write: the same model, data and batches, on the same card."""

import os
import subprocess
import sys

from tests.gpu.attempts import series, until
from tests.gpu.cards import Card
from tests.gpu.conftest import Train
from tests.workers.launcher.attempt import ROOT
from workers.environment import framework_environment

BAR = 0.8
"""Our rows per second of the plain script's, the best epoch of each: a script has no reports and no checkpoints."""
EPOCHS = 30
MODEL = {"type": "mlp", "hidden": [1024, 1024]}
BATCH = 128


class TestBesideThePlainScript:
    def test_it_keeps_up(self, train: Train, framework: str, card: Card) -> None:
        said = until(train(card, epochs=EPOCHS, model=MODEL, batch_size=BATCH), "done", "failed")
        ours = max(series(said, "samples_per_s"))
        plain = rows_per_second(framework, card)

        assert ours >= BAR * plain, f"{ours:.0f} rows a second, and the plain script {plain:.0f}"


def rows_per_second(framework: str, card: Card) -> float:
    done = subprocess.run(
        [sys.executable, "-m", f"tests.gpu.plain_{framework}", str(EPOCHS), str(BATCH)],
        capture_output=True,
        check=True,
        cwd=ROOT,
        env={
            **os.environ,
            **framework_environment(framework),
            "CUDA_VISIBLE_DEVICES": card.id,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        },
    )
    return float(done.stdout.split()[-1])
