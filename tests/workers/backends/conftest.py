"""Both frameworks are prepared before any test of this folder runs an op of its own.

TensorFlow fixes the sizes of its pools at its first op and refuses another number afterwards, for the whole process;
which test comes first depends on how the files are spread over processes.

`torch._dynamo` comes before TensorFlow: torch's CUDA build brings triton with it, and triton loaded after TensorFlow
ends the process with a segmentation fault (seen with torch 2.13 and TensorFlow 2.21; the other order works). Trainers
never meet this, since each has one framework.
"""

import pytest
import torch._dynamo  # noqa: F401 - see above

from tests.workers.backends.conformance import MAKERS, Create
from tests.workers.backends.sessions import CPU
from workers.backends.base import load_backend


@pytest.fixture(scope="session", autouse=True)
def prepared() -> None:
    for framework in ("torch", "tensorflow"):
        load_backend(framework).prepare([CPU], 1)


@pytest.fixture(params=sorted(MAKERS))
def create(request: pytest.FixtureRequest) -> Create:
    """A maker of each backend in turn."""
    return MAKERS[request.param]
