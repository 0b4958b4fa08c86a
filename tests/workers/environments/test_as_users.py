"""Installations as a trainer's user, by a worker that is root with the four capabilities of its container alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workers.users.confined import GROUP, confined, needs_root
from tests.workers.users.conftest import open_folder

pytestmark = needs_root


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as path:
        yield path


def found(name: str, folder: Path) -> Any:
    return confined(name, folder, scenarios="tests.workers.environments.as_users")


class TestAUserInstalls:
    def test_and_the_worker_owns_what_everybody_may_read(self, folder: Path) -> None:
        installed = found("installed", folder)
        # The package ends every interpreter that root starts, so the proof that it works ran as another.
        assert installed["packages"] == {"tiny": "1.0"}
        assert installed["owners"] == [[0, GROUP]]
        assert installed["modes"] == [0o444, 0o555, 0o755]
        assert installed["names"] == [installed["key"]]
        assert (installed["processes"], installed["notes"]) == ([], [])

    @pytest.mark.parametrize("name", ["failed", "called_off"])
    def test_nothing_is_left_when_it_comes_to_nothing(self, folder: Path, name: str) -> None:
        left = found(name, folder)
        assert (left["names"], left["processes"], left["notes"]) == ([], [], [])
