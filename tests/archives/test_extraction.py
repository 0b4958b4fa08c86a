"""Unpacking: all of it into one fresh folder, or nothing anywhere."""

import os
import stat
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.archives import ArchiveTooLarge, Limits, NotAnArchive, UnsafeArchive, extract
from tests.archives.making import DEFLATED, FOLDER, LINK, Entry, head, overlapping, plain, write

# A tar, which is no ZIP whatever is in it: C76 has one too.
TAR = b"../../x".ljust(100, b"\0") + b"0000644\0".ljust(156, b"\0") + b"0" + b"ustar\x0000".rjust(8, b"\0")
GOOD = Entry("good.txt", b"fine")


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder with its bytes; None for a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


class TestWhatIsUnpacked:
    def test_files_and_folders(self, tmp_path: Path) -> None:
        entries = (GOOD, Entry("a/b/c.bin", bytes(300_000), DEFLATED), Entry("empty/", b"", external=FOLDER))
        found = extract(write(tmp_path / "a.zip", *entries), tmp_path / "out", Limits())
        assert tree(tmp_path / "out") == {
            "good.txt": b"fine",
            "a": None,
            "a/b": None,
            "a/b/c.bin": bytes(300_000),
            "empty": None,
        }
        assert found.unpacked_bytes == 300_004

    def test_only_the_owners_right_to_execute_is_kept(self, tmp_path: Path, usual_umask: None) -> None:
        del usual_umask
        modes = {"plain": 0o100600, "program": 0o100700, "setuid": 0o106777, "none": 0o100000, "open": 0o100666}
        entries = [Entry(name, external=mode << 16) for name, mode in modes.items()]
        extract(write(tmp_path / "a.zip", *entries), tmp_path / "out", Limits())
        found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").iterdir()}
        assert found == {"plain": 0o644, "program": 0o755, "setuid": 0o755, "none": 0o644, "open": 0o644}

    @pytest.mark.parametrize("mode", [0o040000, 0o040111, 0o042777, 0o041777])
    def test_a_folder_can_be_used_whatever_its_mode_was(self, tmp_path: Path, mode: int, usual_umask: None) -> None:
        del usual_umask
        entries = (Entry("a/", b"", external=mode << 16), Entry("a/x"))
        extract(write(tmp_path / "a.zip", *entries), tmp_path / "out", Limits())
        assert (tmp_path / "out/a/x").read_bytes() == b"x"
        assert stat.S_IMODE((tmp_path / "out/a").stat().st_mode) == 0o755

    def test_a_narrow_umask_is_obeyed(self, tmp_path: Path) -> None:
        before = os.umask(0o077)
        try:
            extract(write(tmp_path / "a.zip", Entry("a/x")), tmp_path / "out", Limits())
        finally:
            os.umask(before)
        modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("out", "out/a", "out/a/x")]
        assert modes == [0o700, 0o700, 0o600]


class TestNothingElse:
    @pytest.mark.parametrize(
        "entry",
        [
            Entry("../../C76_MARKER_SHOULD_NOT_EXIST"),
            Entry("/tmp/C76_MARKER_SHOULD_NOT_EXIST"),  # noqa: S108 - a name that must not be used
            Entry("a/../../C76_MARKER_SHOULD_NOT_EXIST"),
            Entry("C76_MARKER_SHOULD_NOT_EXIST", b"/", external=LINK),
            Entry("good.txt"),
            Entry("GOOD.TXT"),
            Entry("good.txt/C76_MARKER_SHOULD_NOT_EXIST"),
        ],
    )
    def test_an_archive_that_leads_outside_leaves_nothing_not_even_its_good_file(
        self, tmp_path: Path, entry: Entry
    ) -> None:
        """C76."""
        home = tmp_path / "a/b/c"
        home.mkdir(parents=True)
        path = write(tmp_path / "a.zip", GOOD, entry)
        with pytest.raises(UnsafeArchive) as caught:
            extract(path, home / "out", Limits())
        assert caught.value.entry == entry.name
        assert sorted(tree(tmp_path)) == ["a", "a.zip", "a/b", "a/b/c"]
        assert not Path("/tmp/C76_MARKER_SHOULD_NOT_EXIST").exists()  # noqa: S108 - as above

    def test_a_tar_is_no_archive(self, tmp_path: Path) -> None:
        """C76: only ZIP archives are unpacked at all."""
        (tmp_path / "a.tar").write_bytes(TAR.ljust(10_240, b"\0"))
        with pytest.raises(NotAnArchive):
            extract(tmp_path / "a.tar", tmp_path / "out", Limits())
        assert sorted(tree(tmp_path)) == ["a.tar"]

    def test_a_bomb_costs_no_disk(self, tmp_path: Path) -> None:
        """C77."""
        path = plain(tmp_path / "a.zip", {"zeros.bin": bytes(45_000_000)})
        with pytest.raises(ArchiveTooLarge):
            extract(path, tmp_path / "out", Limits(total_bytes=10_000_000))
        with pytest.raises(UnsafeArchive):
            extract(overlapping(tmp_path / "b.zip", 1000, 100_000), tmp_path / "out", Limits(ratio=10_000))
        assert sorted(tree(tmp_path)) == ["a.zip", "b.zip"]

    def test_bytes_are_counted_as_they_are_written(self, tmp_path: Path) -> None:
        lying = Entry("x", bytes(1_000_000), DEFLATED, size=1000, crc=zlib.crc32(bytes(1000)))
        found = extract(write(tmp_path / "a.zip", lying), tmp_path / "out", Limits(total_bytes=1000))
        assert found.unpacked_bytes == (tmp_path / "out/x").stat().st_size == 1000

    def test_damage_that_shows_only_on_the_way_removes_all_again(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.zip", Entry("a/first", bytes(500_000)), Entry("b/second", crc=7))
        with pytest.raises(NotAnArchive):
            extract(path, tmp_path / "out", Limits())
        assert sorted(tree(tmp_path)) == ["a.zip"]

    def test_damage_in_the_middle_of_packed_bytes_too(self, tmp_path: Path) -> None:
        entry = Entry("x", os.urandom(100_000), DEFLATED)
        path = write(tmp_path / "a.zip", GOOD, entry)
        content = bytearray(path.read_bytes())
        content[len(head(GOOD)) + 31] ^= 0xFF
        path.write_bytes(content)
        with pytest.raises(NotAnArchive):
            extract(path, tmp_path / "out", Limits())
        assert sorted(tree(tmp_path)) == ["a.zip"]

    def test_an_interrupt_removes_all_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(*_arguments: object) -> object:
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "fdopen", interrupted)
        with pytest.raises(KeyboardInterrupt):
            extract(write(tmp_path / "a.zip", GOOD), tmp_path / "out", Limits())
        assert sorted(tree(tmp_path)) == ["a.zip"]


class TestFolder:
    def test_what_is_there_already_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out/mine").write_text("kept")
        path = write(tmp_path / "a.zip", GOOD)
        with pytest.raises(FileExistsError):
            extract(path, tmp_path / "out", Limits())
        assert tree(tmp_path / "out") == {"mine": b"kept"}

    def test_a_link_in_its_place_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(FileExistsError):
            extract(write(tmp_path / "a.zip", GOOD), tmp_path / "out", Limits())
        assert tree(tmp_path / "elsewhere") == {}


EXTRACT = """
import os, sys
from pathlib import Path
from app.archives import Limits, extract
user = int(sys.argv[1])
os.setgroups([])
os.setgid(user)
os.setuid(user)
os.umask(0o077)
extract(Path("a.zip"), Path("code"), Limits())
"""


class TestAnotherUser:
    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
    def test_needs_no_right_but_to_its_folder(self, tmp_path: Path) -> None:
        user = 65_534
        work = tmp_path / "work"
        work.mkdir()
        os.chown(work, user, user)
        path = write(work / "a.zip", Entry("a/x", external=0o106755 << 16), GOOD)
        path.chmod(0o444)
        # By relative names: the folders above belong to root alone.
        environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([sys.executable, "-c", EXTRACT, str(user)], check=True, cwd=work, env=environment, timeout=60)
        found = {path: path.stat() for path in (work / "code", work / "code/a", work / "code/a/x")}
        assert {(status.st_uid, status.st_gid) for status in found.values()} == {(user, user)}
        assert [stat.S_IMODE(status.st_mode) for status in found.values()] == [0o700, 0o700, 0o700]
        assert sorted(tree(work)) == ["a.zip", "code", "code/a", "code/a/x", "code/good.txt"]
