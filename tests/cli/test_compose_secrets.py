"""The secrets of the compose stack: made once, right for each reader, and healed from each other."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli.processes.compose_secrets import MODES, main, write

FILES = {
    "service/database_url",
    "service/broker_url",
    "postgres/postgres_password",
    "redis/redis_conf",
    "grafana/grafana_password",
}


def read(root: Path) -> dict[str, str]:
    return {name: (root / name).read_text() for name in FILES}


class TestFirstStart:
    def test_writes_every_file_and_says_so(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([str(tmp_path)]) == 0
        said = capsys.readouterr().out
        assert {f"{path.parent.name}/{path.name}" for path in tmp_path.glob("*/*")} == FILES
        assert all(name in said for name in FILES)

    def test_says_no_secret(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        main([str(tmp_path)])
        said = capsys.readouterr().out
        assert not any(text.strip() in said for text in read(tmp_path).values())

    def test_passwords_agree_and_differ_from_each_other(self, tmp_path: Path) -> None:
        write(tmp_path)
        text = {name: content.strip() for name, content in read(tmp_path).items()}
        password, broker = text["postgres/postgres_password"], text["redis/redis_conf"].removeprefix("requirepass ")
        assert f"://trainshed:{password}@postgres:5432/trainshed" in text["service/database_url"]
        assert text["service/broker_url"] == f"redis://:{broker}@redis:6379/0"
        assert len({password, broker, text["grafana/grafana_password"]}) == 3
        assert min(len(password), len(broker)) >= 40

    def test_redis_accepts_the_file(self, tmp_path: Path) -> None:
        # The only line that redis-server gets by file; the rest stands in the compose file's command.
        write(tmp_path)
        assert re.fullmatch(r"requirepass [A-Za-z0-9_-]{43}\n", (tmp_path / "redis/redis_conf").read_text())

    @pytest.mark.parametrize("umask", [0o022, 0o077])
    def test_only_its_reader_s_group_reads_the_service_s(self, tmp_path: Path, umask: int) -> None:
        before = os.umask(umask)
        try:
            write(tmp_path)
        finally:
            os.umask(before)
        for reader, (folder_mode, file_mode) in MODES.items():
            folder = tmp_path / reader
            assert folder.stat().st_mode & 0o7777 == folder_mode
            assert {path.stat().st_mode & 0o7777 for path in folder.iterdir()} == {file_mode}
        assert MODES["service"] == (0o750, 0o440)
        assert (tmp_path / "service").stat().st_gid == os.getegid()

    def test_works_without_the_powers_of_root(self, tmp_path: Path) -> None:
        # In the stack: root in name, with another group and no capability at all.
        if os.geteuid() != 0:
            write(tmp_path)
            return
        code = (
            "import os, sys; os.setgid(10001); os.setgroups([]); import ctypes; libc = ctypes.CDLL(None);"
            # PR_CAPBSET_DROP for all, then an exec: what a container with cap_drop ALL starts with.
            "[libc.prctl(24, n, 0, 0, 0) for n in range(41)];"
            "os.execv(sys.executable, [sys.executable, '-m', 'app.cli.processes.compose_secrets', sys.argv[1]])"
        )
        for reader in MODES:
            (tmp_path / reader).mkdir(mode=0o755)
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert {(tmp_path / name).stat().st_gid for name in FILES} == {10001}


class TestLaterStart:
    def test_changes_nothing(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write(tmp_path)
        before = read(tmp_path)
        assert main([str(tmp_path)]) == 0
        assert capsys.readouterr().out == "all secrets are there already\n"
        assert read(tmp_path) == before

    @pytest.mark.parametrize("lost", [*sorted(FILES - {"grafana/grafana_password"})])
    def test_what_was_lost_is_made_from_what_is_there(self, tmp_path: Path, lost: str) -> None:
        write(tmp_path)
        before = read(tmp_path)
        (tmp_path / lost).unlink()
        assert write(tmp_path) == [lost]
        assert read(tmp_path) == before

    def test_start_that_broke_off_is_taken_up(self, tmp_path: Path) -> None:
        write(tmp_path)
        (tmp_path / "redis/redis_conf").unlink()
        (tmp_path / "redis/.redis_conf.unfinished").write_text("requi")
        assert write(tmp_path) == ["redis/redis_conf"]
        assert [path.name for path in (tmp_path / "redis").iterdir()] == ["redis_conf"]

    def test_database_of_somebody_else_is_left_alone_and_not_copied(self, tmp_path: Path) -> None:
        (tmp_path / "service").mkdir()
        theirs = "postgresql+psycopg://us:secret@db.example:5432/ours\n"
        (tmp_path / "service/database_url").write_text(theirs)
        write(tmp_path)
        assert (tmp_path / "service/database_url").read_text() == theirs
        assert (tmp_path / "postgres/postgres_password").read_text() != "secret\n"
