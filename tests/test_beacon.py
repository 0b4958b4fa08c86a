"""Signs of life in a file: whole or not there, and what is not written is noticed by its age."""

import json
import os
import threading
from pathlib import Path

import pytest

from app.beacon import AT, age_s, read_beacon, write_beacon


class TestWriting:
    def test_what_was_written_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "run" / "worker.health.json"
        assert write_beacon(path, {AT: 5, "registered": True, "reason": None})
        assert read_beacon(path) == {AT: 5, "registered": True, "reason": None}

    def test_next_one_takes_its_place_and_nothing_else_is_left(self, tmp_path: Path) -> None:
        path = tmp_path / "beacon"
        for moment in (1, 2, 3):
            assert write_beacon(path, {AT: moment})
        assert read_beacon(path) == {AT: 3}
        assert list(tmp_path.iterdir()) == [path]

    def test_what_cannot_be_written_raises_nothing_and_leaves_the_last_one(self, tmp_path: Path) -> None:
        path = tmp_path / "beacon"
        assert write_beacon(path, {AT: 1})
        (tmp_path / f".beacon.{os.getpid()}").mkdir()  # what it writes first cannot be made
        assert not write_beacon(path, {AT: 2})
        assert read_beacon(path) == {AT: 1}

    def test_folder_that_cannot_be_made_raises_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        assert not write_beacon(tmp_path / "file" / "beacon", {AT: 1})

    def test_reader_never_sees_half_of_one(self, tmp_path: Path) -> None:
        path = tmp_path / "beacon"
        write_beacon(path, {AT: 0, "pad": "x" * 100_000})
        done = threading.Event()

        def keep_writing() -> None:
            for moment in range(200):
                write_beacon(path, {AT: moment, "pad": "x" * 100_000})
            done.set()

        writer = threading.Thread(target=keep_writing)
        writer.start()
        seen = [read_beacon(path)]
        while not done.is_set():
            seen.append(read_beacon(path))
        writer.join()
        assert all(facts is not None and len(facts["pad"]) == 100_000 for facts in seen)


class TestReading:
    def test_none_that_was_never_written(self, tmp_path: Path) -> None:
        assert read_beacon(tmp_path / "beacon") is None

    @pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '{"at_boot_ns": "5"}', '{"at_boot_ns": null}', "\udcff"])
    def test_what_is_no_beacon_is_none(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "beacon"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        assert read_beacon(path) is None

    def test_it_is_json_that_a_shell_script_can_read(self, tmp_path: Path) -> None:
        write_beacon(tmp_path / "beacon", {AT: 7})
        assert json.loads((tmp_path / "beacon").read_text()) == {"at_boot_ns": 7}


class TestAge:
    def test_it_is_in_seconds(self) -> None:
        assert age_s(1_000_000_000, 3_500_000_000) == 2.5

    def test_time_ahead_is_of_an_earlier_start_of_the_machine(self) -> None:
        # The boot clock begins at 0 with the machine, so what was written before is ahead of it.
        assert age_s(3_600_000_000_000, 5_000_000_000) is None
