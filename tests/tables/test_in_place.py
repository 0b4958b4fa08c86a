"""Files that are opened where they lie: nothing outside the folder, and always the file that was opened."""

import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.tables.in_place import OpenFile, UnusableFile, open_below

CSV = b"a,b\n1,2\n"
URI = "root://scans/file"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside.csv").write_bytes(b"secret")
    folder = tmp_path / "root"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "table.csv").write_bytes(CSV)
    return folder


def opened(root: Path, relative: str) -> bytes:
    with open_below(root, relative, URI) as file:
        return file.path.read_bytes()


def reason(root: Path, relative: str) -> str:
    with pytest.raises(UnusableFile) as caught, open_below(root, relative, URI):
        pytest.fail("it was opened")
    assert caught.value.code == "invalid_data"
    assert str(root.parent) not in str(caught.value)
    return caught.value.reason


class TestOpenBelow:
    def test_a_file_with_its_facts(self, root: Path) -> None:
        os.utime(root / "sub" / "table.csv", (1_700_000_000, 1_700_000_000.25))
        with open_below(root, "sub/table.csv", URI) as file:
            assert (file.size_bytes, file.digest()) == (len(CSV), hashlib.sha256(CSV).hexdigest())
            assert file.modified_at == datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC)
            assert file.path.read_bytes() == CSV
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file.descriptor)

    @pytest.mark.parametrize("relative", ["missing.csv", "sub/table.csv/below", "no/such/folder", "x" * 300])
    def test_what_is_not_there(self, root: Path, relative: str) -> None:
        assert reason(root, relative) == "is not there."

    @pytest.mark.parametrize("relative", ["../outside.csv", "sub/../../outside.csv", "/etc/passwd"])
    def test_no_path_leads_out(self, root: Path, relative: str) -> None:
        assert "leads out of its data root" in reason(root, relative)

    @pytest.mark.parametrize("target", ["../outside.csv", "/etc/passwd", "/proc/self/environ"])
    def test_no_link_leads_out(self, root: Path, target: str) -> None:
        (root / "link").symlink_to(target)
        assert "leads out of its data root" in reason(root, "link")

    def test_no_linked_folder_leads_out(self, root: Path) -> None:
        (root / "up").symlink_to("..")
        assert "leads out of its data root" in reason(root, "up/outside.csv")

    def test_a_link_to_another_place_in_the_root_is_followed(self, root: Path) -> None:
        (root / "newest.csv").symlink_to("sub/table.csv")
        (root / "folder").symlink_to(root / "sub")
        assert opened(root, "newest.csv") == opened(root, "folder/table.csv") == CSV

    def test_the_root_itself_may_be_a_link(self, root: Path, tmp_path: Path) -> None:
        (tmp_path / "alias").symlink_to(root)
        assert opened(tmp_path / "alias", "sub/table.csv") == CSV

    def test_links_in_circles(self, root: Path) -> None:
        (root / "a").symlink_to("b")
        (root / "b").symlink_to("a")
        assert "circles" in reason(root, "a")

    def test_only_regular_files_and_a_pipe_does_not_block(self, root: Path) -> None:
        os.mkfifo(root / "pipe")
        for relative in ("sub", "pipe", "."):
            assert "not a regular file" in reason(root, relative)

    def test_a_link_that_is_put_in_its_place_after_the_look_is_not_followed(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Between finding out where a path leads and opening that, its file becomes a link out.
        real = os.path.realpath

        def then_swap(path: str | Path, *, strict: bool = False) -> str:
            found = real(path, strict=strict)
            if str(path).endswith("table.csv"):
                Path(found).unlink()
                Path(found).symlink_to(root.parent / "outside.csv")
            return found

        monkeypatch.setattr(os.path, "realpath", then_swap)
        assert "leads out of its data root through a link" in reason(root, "sub/table.csv")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_a_file_that_may_not_be_read_names_the_user(self, root: Path) -> None:
        (root / "sub" / "table.csv").chmod(0)
        assert f"uid {os.geteuid()}" in reason(root, "sub/table.csv")


class TestOpenFile:
    @pytest.fixture
    def path(self, root: Path) -> Path:
        return root / "sub" / "table.csv"

    def test_the_digest_of_what_it_was_registered_with_is_required(self, root: Path) -> None:
        with open_below(root, "sub/table.csv", URI) as file:
            file.require(hashlib.sha256(CSV).hexdigest())
            with pytest.raises(
                UnusableFile, match=r"^'root://scans/file' is not the file that was registered: its SHA"
            ):
                file.require("0" * 64)

    def test_another_file_under_the_name_changes_nothing(self, root: Path, path: Path) -> None:
        with open_below(root, "sub/table.csv", URI) as file:
            (root / "other").write_bytes(b"other")
            (root / "other").replace(path)
            assert file.path.read_bytes() == CSV

    @pytest.mark.parametrize("written", [b"9", b"a longer one than before"])
    def test_writing_to_it_shows(self, root: Path, path: Path, written: bytes) -> None:
        with open_below(root, "sub/table.csv", URI) as file:
            file.require_unchanged()
            self.overwrite(path, written, file)
            with pytest.raises(UnusableFile, match="was changed while it was read"):
                file.require_unchanged()

    def overwrite(self, path: Path, written: bytes, file: OpenFile) -> None:
        """A clock that ticks slowly could give the same time again."""
        with path.open("r+b") as target:
            target.write(written)
        after = file.facts.st_mtime_ns + 1_000_000
        os.utime(path, ns=(after, after))
