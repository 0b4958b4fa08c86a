"""Any damage at all: an archive is refused with one of our errors, or what it unpacks to is within the limits."""

import io
import random
import struct
from pathlib import Path

import pytest

from app.archives import ArchiveTooLarge, Limits, NotAnArchive, UnsafeArchive, check, extract
from tests.archives.making import DEFLATED, FOLDER, Entry, archive, head, listing, wide_end

LIMITS = Limits(entries=20, total_bytes=50_000, file_bytes=40_000)
ENTRIES = (
    Entry("train.py", b"print(1)\n" * 50, DEFLATED),
    Entry("data/", b"", external=FOLDER),
    Entry("data/ü.bin", bytes(range(256)) * 8),
    Entry("run.sh", b"#!/bin/sh\n", external=0o100755 << 16),
)
INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)


def wide() -> bytes:
    """The same entries, with wide numbers at the end and in one entry."""
    sizes = struct.pack("<HHQQ", 1, 16, 1, 1)
    body = head(Entry("x"))
    directory = listing(Entry("x", size=0xFFFFFFFF, packed_size=0xFFFFFFFF, extra=sizes, version=45), 0)
    for entry in ENTRIES:
        directory += listing(entry, len(body))
        body += head(entry)
    return body + directory + wide_end(len(ENTRIES) + 1, len(directory), len(body), len(body) + len(directory))


def damaged(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    # Most of what matters is behind the files.
    start = 0 if chance.random() < 0.3 else len(content) * 2 // 3
    for _ in range(chance.randint(1, 3)):
        changed[chance.randrange(start, len(changed))] = chance.choice((*INTERESTING, chance.randrange(256)))
    if chance.random() < 0.1:
        del changed[chance.randrange(len(changed)) :]
    return bytes(changed)


@pytest.mark.parametrize("content", [archive(*ENTRIES), wide()], ids=["narrow", "wide"])
class TestAnyDamage:
    def test_is_refused_or_harmless(self, tmp_path: Path, content: bytes) -> None:
        chance = random.Random(20)  # noqa: S311 - the same damage each time
        refused = 0
        for number in range(1500):
            changed = damaged(content, chance)
            try:
                found = check(io.BytesIO(changed), LIMITS)
            except (NotAnArchive, UnsafeArchive, ArchiveTooLarge):
                refused += 1
                continue
            extract(io.BytesIO(changed), tmp_path / str(number), LIMITS)
            unpacked = [path for path in (tmp_path / str(number)).rglob("*") if path.is_file()]
            assert {str(path.relative_to(tmp_path / str(number))) for path in unpacked} == found.names
            assert sum(path.stat().st_size for path in unpacked) == found.unpacked_bytes <= LIMITS.total_bytes
        # What is not refused changed a time, a mode, or nothing.
        assert 300 < refused < 1500

    def test_whole_it_is_taken(self, tmp_path: Path, content: bytes) -> None:
        assert {"train.py", "data/ü.bin", "run.sh"} <= extract(io.BytesIO(content), tmp_path / "out", LIMITS).names
