"""A fixture that writes a file."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes | str], Path]:
    """Writes a file and returns its path; text becomes UTF-8 as it stands."""

    def _write(content: bytes | str) -> Path:
        path = tmp_path / "table.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return _write
