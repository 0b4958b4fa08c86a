"""Both frameworks are prepared before any test of this folder runs an op of its own.

TensorFlow fixes the sizes of its pools at its first op and refuses another number afterwards, for the whole process;
which test comes first depends on how the files are spread over processes.
"""

import pytest

from tests.workers.backends.sessions import CPU
from workers.backends.base import load_backend


@pytest.fixture(scope="session", autouse=True)
def prepared() -> None:
    for framework in ("torch", "tensorflow"):
        load_backend(framework).prepare([CPU], 1)
