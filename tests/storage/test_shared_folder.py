"""A storage folder with the setgid bit: what one user makes there, another user of its group can read and replace."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.storage.local import LocalStorage


@pytest.fixture(params=[0o022, 0o077])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"weights")
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("_umask")
class TestSharedFolder:
    def test_group_may_write_all_that_is_made_in_it(self, tmp_path: Path, source: Path) -> None:
        root = tmp_path / "storage"
        root.mkdir()
        root.chmod(0o2770)
        LocalStorage(root).put("jobs/a/model", source)
        # The bit goes on by inheritance (mkdir(2)); the group's rights, which a umask takes away, by us.
        assert [mode(root / name) for name in ("jobs", "jobs/a", "jobs/a/model")] == [0o2770, 0o2770, 0o660]

    def test_group_of_the_folder_is_the_group_of_what_is_made(self, tmp_path: Path, source: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root may give a folder to another group")
        root = tmp_path / "storage"
        root.mkdir()
        os.chown(root, 10001, 10001)
        root.chmod(0o2770)
        LocalStorage(root).put("jobs/a/model", source)
        assert {path.stat().st_gid for path in (root / "jobs", root / "jobs/a", root / "jobs/a/model")} == {10001}


class TestFolderOfOneUser:
    def test_group_gets_no_more_than_the_umask_leaves(self, tmp_path: Path, source: Path) -> None:
        before = os.umask(0o022)
        try:
            LocalStorage(tmp_path / "storage").put("jobs/a/model", source)
        finally:
            os.umask(before)
        assert [mode(tmp_path / "storage" / name) for name in ("jobs", "jobs/a/model")] == [0o755, 0o644]
        assert mode(tmp_path / "storage") == 0o700
