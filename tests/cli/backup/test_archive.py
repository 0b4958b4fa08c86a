"""The archive alone: a plain tar file, read and written as a stream, whose digests are those of the bytes."""

import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.cli.backup.archive import CONTENTS, MANIFEST, Reader, Writer
from app.cli.backup.errors import BackupUnusable

LONG = "storage/artifacts/" + "/".join(["x" * 110] * 2)


class OneWay(io.RawIOBase):
    """A pipe: it cannot be rewound, and it says so."""

    def __init__(self, content: bytes = b"") -> None:
        self._content = io.BytesIO(content)
        self.written = bytearray()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._content.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def write(self, content: Any) -> int:
        self.written += content
        return len(content)


def written(members: dict[str, bytes], **facts: object) -> bytes:
    pipe = OneWay()
    writer = Writer(pipe)  # type: ignore[arg-type] # whatever has read and write
    writer.add_document(MANIFEST, {"format": 1})
    for name, content in members.items():
        writer.add(name, io.BytesIO(content), len(content))
    writer.finish(**facts)
    return bytes(pipe.written)


def reader_of(content: bytes) -> Reader:
    return Reader(OneWay(content), None)  # type: ignore[arg-type]


class TestArchive:
    def test_what_was_written_is_read_back_in_its_order(self) -> None:
        members = {LONG: b"first", "tables/é.jsonl": b"", "tables/b.jsonl": bytes(3_000_000)}
        with reader_of(written(members, missing=["a"])) as reader:
            assert reader.manifest() == {"format": 1}
            assert [(member.name, member.stream.read()) for member in reader.members] == list(members.items())
            reader.check()
        assert reader.contents["missing"] == ["a"]

    def test_what_nobody_reads_is_checked_all_the_same(self) -> None:
        content = written({"tables/a.jsonl": b"unread" * 1000})
        with reader_of(content.replace(b"unread", b"UNREAD", 1)) as reader:
            reader.manifest()
            assert [member.name for member in reader.members] == ["tables/a.jsonl"]
            with pytest.raises(BackupUnusable, match=r"tables/a\.jsonl"):
                reader.check()

    def test_lines_can_be_read_one_by_one(self) -> None:
        with reader_of(written({"tables/a.jsonl": b"1\n2\n3"})) as reader:
            reader.manifest()
            assert [list(member.stream) for member in reader.members] == [[b"1\n", b"2\n", b"3"]]

    def test_anybody_s_tar_can_open_it_and_sha256_is_that_of_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "b.tar"
        path.write_bytes(written({"storage/datasets/ds_1": b"a,b\n"}))
        with tarfile.open(path) as tar:
            contents = orjson.loads(tar.extractfile(CONTENTS).read())  # type: ignore[union-attr]
            assert tar.getnames() == [MANIFEST, "storage/datasets/ds_1", CONTENTS]
            assert {member.mode for member in tar} == {0o600}
        assert contents["sha256"]["storage/datasets/ds_1"] == hashlib.sha256(b"a,b\n").hexdigest()

    def test_a_source_that_is_shorter_than_it_said_is_an_error(self) -> None:
        writer = Writer(OneWay())  # type: ignore[arg-type]
        with pytest.raises(OSError, match="unexpected end of data"):
            writer.add("storage/x", io.BytesIO(b"short"), 100)

    def test_it_keeps_no_list_of_its_members(self) -> None:
        # tarfile keeps an object per member, which for a million files is more memory than the files take.
        content = written({f"storage/{number}": b"" for number in range(300)})
        with reader_of(content) as reader:
            reader.manifest()
            assert max(len(reader._tar.members) for _ in reader.members) <= 1  # type: ignore[attr-defined]


class TestNoArchive:
    def test_another_tar_file_is_no_backup(self) -> None:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("holiday.jpg"))
        with reader_of(stream.getvalue()) as reader, pytest.raises(BackupUnusable, match="is no backup"):
            reader.manifest()

    def test_a_manifest_that_is_no_object_is_none(self) -> None:
        pipe = OneWay()
        writer = Writer(pipe)  # type: ignore[arg-type]
        writer.add_document(MANIFEST, [1])
        writer.finish()
        with reader_of(bytes(pipe.written)) as reader, pytest.raises(BackupUnusable, match="is no backup"):
            reader.manifest()

    @pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
    def test_links_and_folders_are_refused(self, kind: bytes) -> None:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as tar:
            manifest = tarfile.TarInfo(MANIFEST)
            manifest.size = 2
            tar.addfile(manifest, io.BytesIO(b"{}"))
            odd = tarfile.TarInfo("storage/odd")
            odd.type, odd.linkname = kind, "/etc/passwd"
            tar.addfile(odd)
        with reader_of(stream.getvalue()) as reader:
            reader.manifest()
            with pytest.raises(BackupUnusable, match="'storage/odd' is not a file"):
                next(reader.members)

    def test_a_manifest_beyond_all_measure_is_not_read(self) -> None:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as tar:
            text = b'{"format":' + b" " * (1024 * 1024) + b"1}"
            member = tarfile.TarInfo("manifest.json")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
        with Reader(io.BytesIO(stream.getvalue()), None) as reader, pytest.raises(BackupUnusable, match="no backup"):
            reader.manifest()

    def test_one_without_an_end_is_cut_off(self) -> None:
        pipe = OneWay()
        writer = Writer(pipe)  # type: ignore[arg-type]
        writer.add_document(MANIFEST, {})
        writer._tar.close()
        with reader_of(bytes(pipe.written)) as reader:
            reader.manifest()
            assert list(reader.members) == []
            with pytest.raises(BackupUnusable, match="it ends early"):
                reader.check()
