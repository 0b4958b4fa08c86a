"""A folder as an archive."""

import os
import zipfile
from pathlib import Path

import pytest

from app.cli.errors import UsageProblem
from app.cli.run.packing import TooLarge, look_into, packed

LIMIT = 1024**2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    (code / "model").mkdir(parents=True)
    (code / "train.py").write_text("print()\n")
    (code / "model" / "net.py").write_text("x = 1\n" * 100)
    return code


class TestLookInto:
    def test_it_counts_files_and_bytes(self, folder: Path) -> None:
        content = look_into(folder, LIMIT)
        assert content.sizes == {"model/net.py": 600, "train.py": 8}
        assert content.sentence == "2 files, 608 B"

    def test_what_was_left_out_is_said(self, folder: Path) -> None:
        (folder / "gone").symlink_to("nowhere")
        content = look_into(folder, LIMIT)
        assert content.sentence == "2 files, 608 B (1 left out)"
        assert content.document["left_out"] == [{"name": "gone", "reason": "a link to nothing"}]

    def test_too_much_names_the_largest_files(self, folder: Path) -> None:
        with pytest.raises(TooLarge, match=r"2 files, 608 B, more than 500 B; --max-size raises that") as caught:
            look_into(folder, 500)
        assert [line.split() for line in caught.value.lines[:2]] == [
            ["600", "B", "model/net.py"],
            ["8", "B", "train.py"],
        ]
        assert ".trainshedignore" in caught.value.lines[2]

    def test_no_folder_is_refused(self, folder: Path) -> None:
        with pytest.raises(UsageProblem, match="is not a folder"):
            look_into(folder / "train.py", LIMIT)

    def test_an_empty_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UsageProblem, match="no file to send"):
            look_into(tmp_path, LIMIT)


class TestPacked:
    def test_the_archive_has_the_files_and_goes_away(self, folder: Path) -> None:
        with packed(look_into(folder, LIMIT)) as archive:
            with zipfile.ZipFile(archive.path) as opened:
                assert {name: len(opened.read(name)) for name in opened.namelist()} == {
                    "model/net.py": 600,
                    "train.py": 8,
                }
            assert archive.size_bytes == archive.path.stat().st_size < 608
        assert not archive.path.exists()

    def test_the_same_files_have_the_same_digest_whenever_they_were_written(self, folder: Path) -> None:
        digests = []
        for seconds in (1_000_000_000, 1_700_000_000):
            os.utime(folder / "train.py", (seconds, seconds))
            with packed(look_into(folder, LIMIT)) as archive:
                digests.append(archive.digest)
        assert digests[0] == digests[1]

    def test_other_content_has_another(self, folder: Path) -> None:
        with packed(look_into(folder, LIMIT)) as first:
            pass
        (folder / "train.py").write_text("print(1)\n")
        with packed(look_into(folder, LIMIT)) as second:
            assert second.digest != first.digest

    def test_a_name_that_cannot_be_unpacked_elsewhere_is_refused(self, folder: Path) -> None:
        (folder / "a\\b.py").write_text("")
        with pytest.raises(UsageProblem, match=r"backslash.*rename it"), packed(look_into(folder, LIMIT)):
            pass

    def test_a_file_that_went_away_meanwhile_is_named(self, folder: Path) -> None:
        content = look_into(folder, LIMIT)
        (folder / "train.py").unlink()
        with pytest.raises(UsageProblem, match=r"train\.py cannot be packed: No such file"), packed(content):
            pass
