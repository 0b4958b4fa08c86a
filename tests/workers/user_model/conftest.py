"""Both frameworks are prepared before any test of this folder runs an op of its own: see tests/workers/backends."""

import pytest
import torch._dynamo  # noqa: F401 - before TensorFlow

from tests.workers.backends.sessions import CPU
from workers.backends.base import load_backend


@pytest.fixture(scope="session", autouse=True)
def prepared() -> None:
    for framework in ("torch", "tensorflow"):
        load_backend(framework).prepare([CPU], 1)
