from pathlib import Path

import pytest

from tests.cli.doctor.planting import Host, healthy


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return healthy(tmp_path)
