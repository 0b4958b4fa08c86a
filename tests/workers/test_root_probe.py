"""Whether data roots can be read."""

import os
import sys
from pathlib import Path

import pytest

from app.fleet.condition import RootState
from workers import root_probe
from workers.root_probe import probe_roots


class TestProbeRoots:
    def test_a_folder_that_can_be_read(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").touch()
        assert probe_roots({"scans": tmp_path}) == {"scans": RootState(ok=True)}

    def test_an_empty_folder_is_taken_for_a_disk_that_is_not_mounted(self, tmp_path: Path) -> None:
        problem = "It is empty: perhaps nothing is mounted there."
        assert probe_roots({"scans": tmp_path}) == {"scans": RootState(ok=False, problem=problem)}

    def test_each_root_is_looked_at(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("no folder")
        found = probe_roots({"a": tmp_path, "b": tmp_path / "missing", "c": tmp_path / "file"})
        assert [state.ok for state in found.values()] == [True, False, False]
        user = f"The worker's user {os.geteuid()} cannot read it"
        assert found["b"].problem == f"{user}: No such file or directory."
        assert found["c"].problem == f"{user}: Not a directory."

    def test_one_that_does_not_answer_is_given_up(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # A reader that waits for its input stands for a file system that does not answer; killed, it ends.
        os.mkfifo(tmp_path / "pipe")
        monkeypatch.setattr(root_probe, "_LOOK", "import sys; open(sys.argv[1]).read()")
        found = probe_roots({"scans": tmp_path / "pipe"}, longest_s=0.2)
        assert found == {"scans": RootState(ok=False, problem="It did not answer within 0.2 s.")}

    def test_a_look_that_cannot_begin_says_so(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
        problem = probe_roots({"scans": tmp_path})["scans"].problem
        assert problem == "It could not be looked at: No such file or directory."
