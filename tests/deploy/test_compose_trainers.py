"""The probe of a trainer's user inside the worker's container, and the verdict on what it found."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.compose_test import trainer_probe
from scripts.compose_test.trainers import PROBE, judge

PEOPLE: dict[str, Any] = {
    "trainer": {"uid": 20000, "gid": 20000, "groups": [], "capabilities": 0, "no_new_privileges": True},
    "worker": {"uid": 0, "pid": 7},
    "secrets": ["/run/secrets/database_url"],
}
FOUND: dict[str, Any] = {"read": [], "written": [], "signalled": False, "refused": {"secrets": 1}, "own": True}


def trainer(**changes: Any) -> dict[str, Any]:
    return {**PEOPLE, "trainer": {**PEOPLE["trainer"], **changes}}


class TestVerdict:
    def test_nothing_is_wrong_with_a_trainer_that_is_kept_apart(self) -> None:
        assert judge(PEOPLE, FOUND) == []

    def test_own_group_among_its_groups_is_no_fault(self) -> None:
        assert judge(trainer(groups=[20000]), FOUND) == []

    @pytest.mark.parametrize(
        ("people", "found", "fault"),
        [
            (trainer(uid=0), FOUND, "runs as uid 0"),
            ({**trainer(uid=10001), "worker": {"uid": 10001}}, FOUND, "runs as uid 10001, the worker as 10001"),
            (trainer(capabilities=0x20), FOUND, "capabilities 0x20"),
            (trainer(no_new_privileges=False), FOUND, "may gain privileges"),
            (trainer(groups=[10001]), FOUND, r"in groups \[10001\]"),
            ({**PEOPLE, "secrets": []}, FOUND, "no secret was found"),
            (PEOPLE, {**FOUND, "own": False}, "its own folder"),
            (PEOPLE, {**FOUND, "read": ["/run/secrets/x"]}, "its user reads /run/secrets/x"),
            (PEOPLE, {**FOUND, "written": ["/storage"]}, "its user writes into /storage"),
            (PEOPLE, {**FOUND, "signalled": True}, "may signal the worker"),
        ],
    )
    def test_each_fault_is_told(self, people: dict[str, Any], found: dict[str, Any], fault: str) -> None:
        (told,) = judge(people, found)
        assert re.search(fault, told)


class TestProbe:
    def test_tells_who_a_process_is(self) -> None:
        found = trainer_probe.person(os.getpid())
        assert (found["uid"], found["gid"], found["parent"]) == (os.getuid(), os.getgid(), os.getppid())
        assert sorted(found["groups"]) == sorted(os.getgroups())

    def test_lists_files_below_a_folder_and_none_of_one_that_is_not_there(self, tmp_path: Path) -> None:
        (tmp_path / "a/b").mkdir(parents=True)
        (tmp_path / "a/b/c").touch()
        assert trainer_probe.files(tmp_path) == [str(tmp_path / "a/b/c")]
        assert trainer_probe.files(tmp_path / "none") == []

    def test_file_and_folder_open_or_not(self, tmp_path: Path) -> None:
        assert trainer_probe.opens(str(tmp_path))
        assert not trainer_probe.opens(str(tmp_path / "none"))

    def test_folder_takes_a_file_and_keeps_none(self, tmp_path: Path) -> None:
        assert trainer_probe.takes(str(tmp_path))
        assert not trainer_probe.takes(str(tmp_path / "none"))
        assert list(tmp_path.iterdir()) == []

    def test_own_process_heeds_a_signal(self) -> None:
        assert trainer_probe.heeds(os.getpid())

    def known(self, folder: Path, **changes: Any) -> dict[str, Any]:
        nothing: dict[str, Any] = {name: [] for name in ("secrets", "storage", "others", "memories", "folders")}
        return {**nothing, "worker": {"pid": os.getpid()}, "own": [str(folder)], **changes}

    def test_sorts_what_opens_from_what_does_not(self, tmp_path: Path) -> None:
        there, not_there = str(tmp_path), str(tmp_path / "none")
        known = self.known(tmp_path, secrets=[there, not_there], memories=[not_there], folders=[there, not_there])
        assert trainer_probe.reach(known) == {
            "read": [there],
            "refused": {"secrets": 1, "storage": 0, "others": 0, "memories": 1},
            "written": [there],
            "signalled": True,
            "own": True,
        }

    def test_without_a_folder_of_its_own_the_rest_says_nothing(self, tmp_path: Path) -> None:
        assert not trainer_probe.reach(self.known(tmp_path, own=[]))["own"]
        assert not trainer_probe.reach(self.known(tmp_path / "none"))["own"]

    def test_finds_what_there_would_be_to_reach(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # In a container the worker is the process whose parent is init; here any process will do.
        children = {"pid": 7, "uid": os.getuid() + 1, "parent": 1}
        monkeypatch.setattr(trainer_probe, "person", lambda pid: {**children, "pid": pid})
        for folder in ("run/work/job_1-1", "run/work/job_1-1.taken", "run/locks", "storage/artifacts"):
            (tmp_path / folder).mkdir(parents=True)
        (tmp_path / "storage/artifacts/model").touch()
        given = {"TRAINSHED_HOME": str(tmp_path), "TRAINSHED_DATABASE_URL_FILE": "/run/secrets/database_url"}
        found = trainer_probe.people(7, given | {"TRAINSHED_INTERPRETERS_FILE": "/opt/interpreters.json"})
        assert "/run/secrets/database_url" in found["secrets"]
        assert "/opt/interpreters.json" not in found["secrets"]
        assert f"{tmp_path}/storage/artifacts/model" in found["storage"]
        assert {f"{tmp_path}/run/{name}" for name in ("work/job_1-1", "work/job_1-1.taken", "locks")} == set(
            found["others"]
        )
        assert found["own"] == []

    def test_runs_from_standard_input_with_the_standard_library_alone(self, tmp_path: Path) -> None:
        command = [sys.executable, "-I", "-S", "-", "reach", json.dumps(self.known(tmp_path))]
        done = subprocess.run(command, input=PROBE.read_bytes(), capture_output=True, check=True)
        assert json.loads(done.stdout)["own"]
