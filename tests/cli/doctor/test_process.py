"""`trainshed doctor` as a process, with more than ten faults planted at once: it names each, and ends with 1."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.db import Database
from app.migrations_runner import upgrade, upgrade_within
from tests.cli.doctor.planting import Host


def run(environ: Mapping[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TRAINSHED_")}
    command = [sys.executable, "-P", "-m", "app.cli.doctor", *arguments]
    return subprocess.run(command, env={**ours, **environ}, capture_output=True, text=True, check=False, timeout=120)


def old_database(folder: Path) -> str:
    """A database that the first version has made."""
    database = Database(f"sqlite:///{folder / 'old.db'}")
    with database.write() as session:
        upgrade_within(session, "0001")
    database.dispose()
    return database.url


@pytest.fixture
def planted(host: Host, tmp_path: Path) -> Any:
    """The environment of a host with ten faults and more, and the names under which they must be told."""
    file = tmp_path / "file"
    file.write_text("in the way of a folder")
    host.program("torch", "echo 'ImportError: libcudart.so.13: cannot open shared object file' >&2; exit 1")
    host.interpreter("tensorflow", ours="0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as other:
        host.environ |= {
            "TRAINSHED_DATABASE_URL": old_database(tmp_path),
            "TRAINSHED_BROKER_URL": "redis://:hidden@127.0.0.1:1/0",
            "TRAINSHED_STORAGE_URL": "file:///proc/storage",
            "TRAINSHED_RUN_DIR": str(file),
            "TRAINSHED_PORT": str(other.getsockname()[1]),
            "TRAINSHED_DISK_RESERVE_BYTES": str(10**18),
            "TRAINSHED_DATA_ROOTS": "scans=/nonexistent/scans:ro",
            # The numbers of a system's own users; and who is not root may give none at all.
            "TRAINSHED_TRAINER_UIDS": "1-99",
            "TRAINSHED_DEVICES": "cuda",
            "TMPDIR": str(file),
        }
        yield host.environ


class TestProcess:
    def test_each_of_ten_planted_faults_is_named_with_what_to_do(self, planted: dict[str, str]) -> None:
        done = run(planted, "--json")
        assert done.returncode == 1, done.stderr
        found = json.loads(done.stdout)
        faults = {check["name"]: check for check in found["checks"] if check["status"] == "fault"}
        names = {
            "schema",
            "broker",
            "storage",
            "folder.run_dir",
            "port",
            "data_root.scans",
            "trainer_users",
            "driver",
            "temporary",
            "framework.torch",
            "framework.tensorflow",
        }
        assert names <= faults.keys()
        assert any(name.startswith("space.") for name in faults)
        assert all(check["advice"] for check in faults.values())
        assert found["status"] == "fault"
        assert found["counts"]["fault"] == len(faults)
        assert "hidden" not in done.stdout

    def test_a_person_reads_what_is_wrong_and_what_to_do(self, host: Host, tmp_path: Path) -> None:
        host.environ["TRAINSHED_DATABASE_URL"] = old_database(tmp_path)
        host.program("torch", "echo 'ImportError: libcudart.so.13: cannot open shared object file' >&2; exit 1")
        done = run(host.environ)
        assert done.returncode == 1
        lines = done.stdout.splitlines()
        text = " ".join(done.stdout.split())  # a long line goes on in the next one
        assert re.search(r"fault framework\.torch [^→]*libcudart\.so\.13[^→]*→", text)
        assert any(line.strip() == "→ Run `trainshed migrate`." for line in lines)
        assert re.fullmatch(r"2 faults, \d warnings?\.", lines[-1])

    def test_a_host_on_which_all_is_well_ends_with_0(self, host: Host) -> None:
        upgrade(f"sqlite:///{host.home / 'trainshed.db'}")
        host.environ["TRAINSHED_DEVICES"] = "cpu"
        done = run(host.environ, "--json")
        found = json.loads(done.stdout)
        assert [check for check in found["checks"] if check["status"] == "fault"] == []
        assert done.returncode == 0

    def test_settings_that_cannot_be_read_are_the_only_finding(self) -> None:
        done = run({"TRAINSHED_DATABSE_URL": "x"}, "--json")
        checks = json.loads(done.stdout)["checks"]
        assert [check["name"] for check in checks] == ["settings"]
        assert "TRAINSHED_DATABSE_URL is not a setting" in checks[0]["message"]
        assert done.returncode == 1

    def test_nothing_is_left_behind(self, host: Host) -> None:
        before = sorted(path for path in host.home.rglob("*"))
        run(host.environ)
        # The storage's own folder is made by opening it, as a server would.
        assert [path for path in sorted(host.home.rglob("*")) if path not in before] in (
            [host.home / "storage"],
            [host.home / "storage", host.home / "storage" / "doctor"],
        )
