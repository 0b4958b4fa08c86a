"""Base images of the compose test: those named, those of a registry, or stand-ins out of Debian's packages."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.compose_test import base_images, pip_settings
from scripts.compose_test.base_images import RECIPES, Debian, choose, default_names
from scripts.compose_test.commands import Shell
from scripts.compose_test.engine import Skipped
from tests.deploy.programs import Programs

ROOT = Path(__file__).resolve().parents[2]
NO_REGISTRY = """
case "$1" in
image) exit 1;;
pull) echo "lookup registry-1.docker.io: no such host" >&2; exit 1;;
esac"""


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path / "bin")


@pytest.fixture
def shell(programs: Programs, tmp_path: Path) -> Shell:
    return Shell(programs.environ(), tmp_path / "log", tmp_path)


class TestChoice:
    def test_named_images_are_taken_unseen(self, programs: Programs, tmp_path: Path) -> None:
        shell = Shell(programs.environ(PYTHON_IMAGE="mine:1"), tmp_path / "log", tmp_path)
        found = choose(shell, ROOT, Debian(), uid=1000)
        assert (dict(found.names), found.how) == ({"PYTHON_IMAGE": "mine:1"}, "as named")
        assert programs.called() == []

    def test_defaults_are_those_of_the_shipped_files(self) -> None:
        names = default_names(ROOT)
        assert set(names) == set(base_images.VARIABLES) - {"BUILD_IMAGE"}
        assert f"ARG PYTHON_IMAGE={names['PYTHON_IMAGE']}\n" in (ROOT / "Dockerfile").read_text()
        assert all(":" in name for name in names.values())

    def test_images_that_are_there_are_not_pulled(self, programs: Programs, shell: Shell) -> None:
        programs.add("docker")
        assert choose(shell, ROOT, Debian(), uid=1000).how == "of a registry"
        assert programs.called("docker pull") == []

    def test_images_that_are_missing_are_pulled(self, programs: Programs, shell: Shell) -> None:
        programs.add("docker", 'case "$1" in image) exit 1;; esac')
        assert choose(shell, ROOT, Debian(), uid=1000).names == default_names(ROOT)
        assert len(programs.called("docker pull")) == 4

    def test_without_registry_and_debootstrap_the_reason_names_both(
        self, programs: Programs, shell: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        programs.add("docker", NO_REGISTRY)
        monkeypatch.setattr(base_images, "SYSTEM_PATH", "")
        with pytest.raises(Skipped, match=r"no such host.*install debootstrap"):
            choose(shell, ROOT, Debian(), uid=0)

    def test_stand_ins_take_root(self, programs: Programs, shell: Shell) -> None:
        programs.add("docker", NO_REGISTRY)
        programs.add("debootstrap")
        with pytest.raises(Skipped, match=r"python:\S+ cannot be pulled .*takes root"):
            choose(shell, ROOT, Debian(), uid=1000)


class TestStandIns:
    @pytest.fixture(autouse=True)
    def no_settings(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pip_settings, "of_this_host", lambda _shell: {})

    def test_are_made_of_a_new_debian_one_of_the_other(self, programs: Programs, shell: Shell) -> None:
        programs.add("docker", NO_REGISTRY)
        programs.add("debootstrap", 'mkdir -p "$4"; touch "$4/here"')
        found = choose(shell, ROOT, Debian(suite="trixie", mirror="http://mirror.example/debian"), uid=0)
        assert found.how == "made of Debian trixie"
        assert set(found.names) == {*base_images.VARIABLES, *base_images.PIP_VARIABLES}
        (call,) = programs.called("debootstrap")
        assert " trixie " in call
        assert call.endswith(" http://mirror.example/debian")
        builds = programs.called("docker build")
        given = [line.split("--build-arg ")[1].split()[0] for line in builds]
        assert (
            given
            == [f"RAW_IMAGE={base_images.REPOSITORY}/debian:trixie"]
            + [f"PYTHON_IMAGE={found.names['PYTHON_IMAGE']}"] * 4
        )

    def test_tree_that_is_there_is_used(self, programs: Programs, shell: Shell, tmp_path: Path) -> None:
        programs.add("docker", NO_REGISTRY)
        programs.add("debootstrap")
        (tmp_path / "tree/var/lib/apt/lists").mkdir(parents=True)
        choose(shell, ROOT, Debian(tree=tmp_path / "tree"), uid=0)
        assert programs.called("debootstrap") == []
        assert len(programs.called("docker import")) == 1

    def test_debian_of_an_earlier_run_is_used_again(self, programs: Programs, shell: Shell) -> None:
        programs.add("docker", f'case "$*" in *{base_images.REPOSITORY}/debian*) exit 0;; image*|pull*) exit 1;; esac')
        programs.add("debootstrap")
        choose(shell, ROOT, Debian(), uid=0)
        assert programs.called("debootstrap") == []
        assert programs.called("docker import") == []

    def test_this_host_s_paths_do_not_get_inside_by_its_environment(self, programs: Programs, shell: Shell) -> None:
        programs.add("docker", NO_REGISTRY)
        programs.add("debootstrap", 'mkdir -p "$4"')
        names = choose(shell, ROOT, Debian(), uid=0).names
        compose = (ROOT / "docker-compose.yml").read_text()
        for variable in base_images.PIP_VARIABLES:
            assert f"{variable}: ${{{variable}:-}}" in compose
            assert names[variable] == ""

    def test_who_has_wheels_needs_no_index_of_torch(
        self, programs: Programs, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pip_settings, "of_this_host", lambda _shell: {"find-links": str(tmp_path)})
        programs.add("docker", NO_REGISTRY)
        programs.add("debootstrap", 'mkdir -p "$4"')
        assert choose(shell, ROOT, Debian(), uid=0).names["TORCH_INDEX_URL"] == ""


class TestPipSettings:
    def test_environment_wins_over_files(self) -> None:
        # The form of `pip config list` (pip 23 to 25): section, a dot, the name, and a value in quotes.
        listed = "global.cert='/etc/ca.crt'\nglobal.timeout='60'\n:env:.cert='/other.crt'\n:env:.no-color='1'\n"
        assert pip_settings.parse(listed) == {"cert": "/other.crt", "timeout": "60"}

    def test_values_with_quotes_and_equals_signs_survive(self) -> None:
        listed = 'global.index-url="https://u:p\'w@example.org/simple?a=b"\n'
        assert pip_settings.parse(listed) == {"index-url": "https://u:p'w@example.org/simple?a=b"}

    def test_certificate_and_wheels_go_along(self, tmp_path: Path) -> None:
        (tmp_path / "ca.crt").write_text("CERTIFICATE")
        wheels = tmp_path / "mine"
        wheels.mkdir()
        (wheels / "torch-1-cp311.whl").write_text("wheel")
        (wheels / "notes.txt").write_text("no wheel")
        context = tmp_path / "context"
        context.mkdir()
        settings = {
            "cert": str(tmp_path / "ca.crt"),
            "find-links": f"{wheels} https://example.org/wheels",
            "extra-index-url": "file:///opt/index https://example.org/simple",
            "index-url": "file:///opt/simple",
        }
        pip_settings.write(context, settings)
        assert (context / "pip.conf").read_text().splitlines() == [
            "[global]",
            "cert = /etc/ssl/certs/ca-certificates.crt",
            "extra-index-url = https://example.org/simple",
            "find-links = /srv/wheels https://example.org/wheels",
        ]
        assert (context / "certificates.crt").read_text() == "CERTIFICATE"
        assert [file.name for file in (context / "wheels").iterdir()] == ["torch-1-cp311.whl"]

    def test_this_host_s_own_are_read_without_error(self, tmp_path: Path) -> None:
        shell = Shell(dict(os.environ), tmp_path / "log", tmp_path)
        assert all(isinstance(value, str) for value in pip_settings.of_this_host(shell).values())


class TestRecipes:
    def test_every_stand_in_has_one(self) -> None:
        assert {file.name for file in RECIPES.glob("*.Dockerfile")} == {
            "python.Dockerfile",
            "build.Dockerfile",
            "postgres.Dockerfile",
            "redis.Dockerfile",
            "caddy.Dockerfile",
        }

    @pytest.mark.parametrize("name", ["python", "build", "postgres", "redis", "caddy"])
    def test_base_is_an_argument(self, name: str) -> None:
        lines = (RECIPES / f"{name}.Dockerfile").read_text().splitlines()
        argument = "RAW_IMAGE" if name == "python" else "PYTHON_IMAGE"
        assert lines[1:3] == [f"ARG {argument}", f"FROM ${{{argument}}}"]

    def test_copies_only_what_the_context_has(self, tmp_path: Path) -> None:
        pip_settings.write(tmp_path, {})
        there = {file.name for file in (*RECIPES.iterdir(), *tmp_path.iterdir())}
        copied = {
            line.split()[1]
            for file in RECIPES.glob("*.Dockerfile")
            for line in file.read_text().splitlines()
            if line.startswith("COPY")
        }
        assert copied <= there


class TestPostgresEntrypoint:
    SCRIPT = RECIPES / "postgres-entrypoint.sh"

    @pytest.fixture
    def server(self, programs: Programs) -> Programs:
        programs.add("initdb", 'mkdir -p "$PGDATA"; echo 15 > "$PGDATA/PG_VERSION"; echo "$*" | grep -q scram')
        for name in ("pg_ctl", "createdb", "postgres"):
            programs.add(name)
        return programs

    def run(self, server: Programs, data: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
        environ = server.environ(
            PGDATA=str(data), POSTGRES_USER="u", POSTGRES_DB="d", POSTGRES_PASSWORD_FILE="/run/secrets/p"
        )
        command = [shutil.which("sh") or "sh", str(self.SCRIPT), *arguments]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=True)

    def test_new_cluster_gets_user_password_and_database_before_it_listens(
        self, server: Programs, tmp_path: Path
    ) -> None:
        self.run(server, tmp_path / "data", "postgres")
        names = [line.split()[0] for line in server.called()]
        assert names == ["initdb", "pg_ctl", "createdb", "pg_ctl", "postgres"]
        assert "--username=u --pwfile=/run/secrets/p" in server.called("initdb")[0]
        assert server.called("createdb") == ["createdb --username=u d"]
        assert "listen_addresses=''" in server.called("pg_ctl")[0]
        assert server.called("postgres") == ["postgres -c listen_addresses=*"]
        assert (tmp_path / "data/pg_hba.conf").read_text() == "host all all all scram-sha-256\n"

    def test_cluster_that_is_there_is_started_alone(self, server: Programs, tmp_path: Path) -> None:
        for _ in range(2):
            self.run(server, tmp_path / "data", "postgres")
        assert len(server.called("initdb")) == 1
        assert server.called()[-1] == "postgres -c listen_addresses=*"

    def test_another_command_runs_as_it_is(self, server: Programs, tmp_path: Path) -> None:
        assert self.run(server, tmp_path / "data", "cat", "/dev/null").stdout == ""
        assert server.called() == []
