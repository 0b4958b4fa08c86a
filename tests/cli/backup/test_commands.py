"""`trainshed backup` and `trainshed restore` as an operator calls them."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli.backup.errors import BackupFailed
from app.cli.processes import backup, restore
from app.cli.processes.direct import SchemaNotCurrent
from app.storage import LocalStorage
from tests.cli.backup.service import Service, all_rows, artifact_key_of, opened

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

Command = Callable[..., str]


@pytest.fixture
def settings(service: Service, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, LocalStorage], None]:
    """Names another database and storage; until then they are those of `service`."""

    def choose(url: str, storage: LocalStorage) -> None:
        monkeypatch.setenv("TRAINSHED_DATABASE_URL", url)
        monkeypatch.setenv("TRAINSHED_STORAGE_URL", f"file://{storage._root}")

    monkeypatch.setenv("TRAINSHED_HOME", str(service.folder / "home"))
    choose(service.database.url, service.storage)
    return choose


@pytest.fixture
def command(settings: Any) -> Command:
    del settings

    def call(program: Any, *arguments: str) -> str:
        result = CliRunner().invoke(program, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return str(result.output)

    return call


class TestCommands:
    def test_what_was_done_is_said(
        self, command: Command, settings: Any, file: Path, empty_url: str, other_storage: LocalStorage
    ) -> None:
        assert command(backup.program, str(file)) == f"{file}: 3 jobs, 2 data sets, 7 files, 1.2 MiB.\n"
        settings(empty_url, other_storage)
        said = command(restore.program, str(file)).splitlines()
        assert said[0].endswith("3 jobs, 2 data sets, 1 keys, 7 files, 1.2 MiB.")
        assert said[1] == "1 jobs ran at that time; they wait to go on from a checkpoint."

    def test_json_says_the_same(
        self,
        command: Command,
        settings: Any,
        service: Service,
        file: Path,
        empty_url: str,
        other_storage: LocalStorage,
    ) -> None:
        made = json.loads(command(backup.program, str(file), "--json"))
        assert (made["object"], made["rows"]["jobs"], made["files"], made["missing"]) == ("backup", 3, 7, [])
        settings(empty_url, other_storage)
        restored = json.loads(command(restore.program, str(file), "--json"))
        assert (restored["object"], restored["requeued"]) == ("restore", [service.running])
        assert restored["rows"] == made["rows"]
        assert restored["size_bytes"] == made["size_bytes"]

    def test_a_lost_file_is_a_warning(
        self, command: Command, settings: Any, service: Service, file: Path, empty_url: str, other_storage: LocalStorage
    ) -> None:
        lost = artifact_key_of(service)
        service.storage.delete(lost)
        assert f"warning: the storage has no file '{lost}'" in command(backup.program, str(file))
        settings(empty_url, other_storage)
        assert f"warning: the backup has no file '{lost}'" in command(restore.program, str(file))

    def test_a_database_without_the_newest_schema_has_no_backup(
        self, command: Command, settings: Any, file: Path, empty_url: str, other_storage: LocalStorage
    ) -> None:
        settings(empty_url, other_storage)
        with pytest.raises(SchemaNotCurrent, match="trainshed migrate"):
            command(backup.program, str(file))
        assert not file.exists()

    def test_a_backup_that_is_not_there_is_said(self, command: Command, tmp_path: Path) -> None:
        with pytest.raises(BackupFailed, match="No such file"):
            command(restore.program, str(tmp_path / "none.tar"))

    def test_what_is_restored_is_for_this_user_alone(
        self, settings: Any, service: Service, file: Path, tmp_path: Path, other_storage: LocalStorage
    ) -> None:
        service.backup(file)
        url = f"sqlite:///{tmp_path / 'new-home' / 'trainshed.db'}"
        settings(url, other_storage)
        run("restore", str(file), content=b"")
        found = [
            path.stat().st_mode & 0o077 for path in (tmp_path / "new-home", tmp_path / "new-home" / "trainshed.db")
        ]
        assert found == [0, 0]

    def test_a_reader_that_ends_is_said_in_one_line(self, settings: Any, service: Service) -> None:
        del settings
        service.put(artifact_key_of(service), b"x" * 4_000_000)
        command = [sys.executable, "-P", "-m", "app.cli.processes.backup", "-"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.read(10)
            process.stdout.close()
            process.stdout = None
            _, said = process.communicate(timeout=60)
        assert process.returncode == 2
        assert said.decode() == "error: The backup '-' failed: Broken pipe. Who was to read it has ended.\n"

    def test_a_stop_leaves_no_half_made_file(self, settings: Any, service: Service, tmp_path: Path) -> None:
        del settings
        folder = tmp_path / "backups"
        folder.mkdir()
        # Held up where it copies files: a pipe in the place of the storage's file is never read to its end.
        arguments = [sys.executable, "-P", "-c", _STOPPED, str(folder / "b.tar")]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"copying\n"
            process.terminate()
            assert process.wait(60) == 128 + signal.SIGTERM
        assert list(folder.iterdir()) == []
        assert service.files()

    def test_it_goes_through_a_pipe_as_from_a_container(
        self, settings: Any, empty_url: str, other_storage: LocalStorage
    ) -> None:
        made = run("backup", "-", content=b"")
        settings(empty_url, other_storage)
        restored = run("restore", "-", "--json", content=made.stdout)
        assert json.loads(restored.stdout)["files"] == 7
        assert b"3 jobs" in made.stderr
        with opened(empty_url) as database:
            assert len(all_rows(database)["jobs"]) == 3


_STOPPED = """
import signal, sys
from app.cli.backup import making
from app.cli.processes import backup
def wait(*_):
    print("copying", flush=True)
    signal.pause()
making.copy_into = wait
sys.exit(backup.main())
"""


def run(name: str, *arguments: str, content: bytes) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-P", "-m", f"app.cli.processes.{name}", *arguments]
    done = subprocess.run(command, input=content, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done
