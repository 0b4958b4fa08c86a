"""One process with TensorFlow serves every test that compares with Keras: to start it costs seconds."""

from pathlib import Path

import pytest

from tests.workers.exports.models import MODELS, random_rows, write_model
from tests.workers.exports.processes import run_script


@pytest.fixture(scope="session")
def every_model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of `MODELS`, each with what Keras computes (`keras.safetensors`) and a checked `model.keras`."""
    root = tmp_path_factory.mktemp("models")
    folders = {name: root / str(place) for place, name in enumerate(MODELS)}
    for name, (shape, layers) in MODELS.items():
        write_model(folders[name], layers, shape, x=random_rows(name))
    run_script("keras_oracle.py", [root], root)
    return folders
