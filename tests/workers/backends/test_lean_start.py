"""What a small job does not load: each of these takes longer than it trains."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

SCRIPT = """
import json, os, sys
from tests.workers.backends.sessions import Recipe, train
from workers.backends.base import load_backend
train(load_backend(sys.argv[1]), Recipe(dropout=0.3, epochs=1))
print(json.dumps({"modules": sorted(sys.modules), "choice": os.environ.get("TF_USE_LEGACY_KERAS")}))
"""


def after_training(framework: str) -> dict[str, list[str] | None]:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, framework], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    found: dict[str, list[str] | None] = json.loads(run.stdout.splitlines()[-1])
    return found


class TestTorch:
    def test_trains_without_the_compiler(self) -> None:
        # The constructor of any optimizer of torch.optim imports it: 0.9 to 1.1 s of a job that trains for 0.04 s.
        modules = after_training("torch")["modules"]

        assert modules is not None
        assert "torch" in modules
        assert not {"torch._dynamo", "torch._inductor", "sympy", "tensorflow", "sklearn"} & set(modules)


class TestTensorFlow:
    def test_trains_without_keras_and_puts_the_choice_back(self) -> None:
        # Importing TensorFlow imports Keras, pandas and scikit-learn with it: 1 s of 2.7.
        found = after_training("tensorflow")
        modules = found["modules"]

        assert modules is not None
        assert "tensorflow" in modules
        assert not {"keras", "tf_keras", "pandas", "sklearn", "torch"} & set(modules)
        assert found["choice"] is None
