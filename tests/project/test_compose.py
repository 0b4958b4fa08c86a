"""The compose files: the mistakes people reported are refused, and the shipped files keep their promises.

Sources of the rules: the compose specification's deploy.md and 04-version-and-name.md; compose-spec/compose-go#689,
docker/compose#8142, NVIDIA/nvidia-docker#1034, pytorch/pytorch#5040.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from app.settings import load_settings
from scripts import compose_check, compose_secrets

ROOT = Path(__file__).resolve().parents[2]
OURS = ("migrate", "api", "control", "worker")
RESERVED = "services: {w: {deploy: {resources: {reservations: {devices: [%s]}}}}}"

Service = Mapping[str, Any]


def read(name: str) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", yaml.safe_load((ROOT / name).read_text(encoding="utf-8")))


@pytest.fixture
def base() -> Mapping[str, Any]:
    return read("docker-compose.yml")


@pytest.fixture
def services(base: Mapping[str, Any]) -> Mapping[str, Service]:
    return cast("Mapping[str, Service]", base["services"])


class TestChecker:
    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            (
                RESERVED % "{driver: nvidia, count: 2, device_ids: ['0', '1'], capabilities: [gpu]}",
                "a reserved device needs exactly one of 'count' and 'device_ids'",
            ),
            (
                RESERVED % "{driver: nvidia, capabilities: [gpu]}",
                "a reserved device needs exactly one of 'count' and 'device_ids'",
            ),
            (RESERVED % "{driver: nvidia, count: 1}", "a reserved device needs 'capabilities: [gpu]'"),
            (
                RESERVED % "{driver: nvidia, count: 1, capabilities: [utility]}",
                "a reserved device needs 'capabilities: [gpu]'",
            ),
            (
                "services: {w: {deploy: {resources: {limits: {devices: [{count: all, capabilities: [gpu]}]}}}}}",
                "'devices' stands under 'limits': it belongs under 'reservations'",
            ),
            (
                "services: {w: {runtime: nvidia}}",
                "'runtime' needs a daemon that is set up for it: reserve a device instead",
            ),
        ],
    )
    def test_known_mistake_is_refused_with_its_reason(self, text: str, reason: str) -> None:
        assert list(compose_check.problems(yaml.safe_load(text))) == [f"service 'w': {reason}"]

    def test_version_key_is_refused(self) -> None:
        problems = list(compose_check.problems({"version": "3.8", "services": {}}))
        assert problems == ["'version' at the top is obsolete and warns: delete it"]

    @pytest.mark.parametrize("device", ["{count: all, capabilities: [gpu]}", "{device_ids: [a], capabilities: [gpu]}"])
    def test_right_reservation_passes(self, device: str) -> None:
        assert list(compose_check.problems(yaml.safe_load(RESERVED % device))) == []

    def test_planted_mistake_fails_the_check(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "docker-compose.yml").write_text("services: {w: {image: a, runtime: nvidia}}")
        (tmp_path / "docker-compose.gpu.yml").write_text("services: {w: {image: a}}")
        assert compose_check.main(tmp_path) == 1
        assert "docker-compose.yml: service 'w': 'runtime' needs" in capsys.readouterr().out

    def test_says_when_compose_itself_is_missing(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert compose_check.main() == 0
        assert "Compose is not installed: checked the structure only." in capsys.readouterr().out

    def test_refusal_of_compose_itself_fails_the_check(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        program = tmp_path / "docker-compose"
        program.write_text("#!/bin/sh\necho 'services.worker: nonsense' >&2\nexit 15\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
        monkeypatch.setattr(compose_check, "compose_command", lambda: [str(program)])
        assert compose_check.main() == 1
        assert "docker-compose.yml + docker-compose.gpu.yml: services.worker: nonsense" in capsys.readouterr().out


class TestShippedFiles:
    @pytest.mark.parametrize("name", ["docker-compose.yml", "docker-compose.gpu.yml"])
    def test_have_no_known_mistake(self, name: str) -> None:
        assert list(compose_check.problems(read(name))) == []

    def test_are_accepted_by_compose(self) -> None:
        command = compose_check.compose_command()
        if command is None:
            pytest.skip("no Compose on this machine; the structural tests of this file ran")
        assert compose_check.compose_config(command, ["docker-compose.yml"]) is None
        assert compose_check.compose_config(command, ["docker-compose.yml", "docker-compose.gpu.yml"]) is None

    def test_base_needs_no_gpu(self, services: Mapping[str, Service]) -> None:
        assert all("deploy" not in service and "runtime" not in service for service in services.values())
        assert services["worker"]["environment"]["TRAINSHED_DEVICES"] == "cpu"

    def test_override_gives_all_gpus_to_the_worker_alone(self) -> None:
        override = read("docker-compose.gpu.yml")
        assert list(override) == ["services"]
        assert list(override["services"]) == ["worker"]
        worker = override["services"]["worker"]
        (device,) = worker["deploy"]["resources"]["reservations"]["devices"]
        assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
        assert worker["environment"]["TRAINSHED_DEVICES"] == "cuda"
        assert worker["environment"]["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
        assert worker["build"]["args"]["ACCELERATOR"] == "cuda"

    def test_has_every_service(self, services: Mapping[str, Service]) -> None:
        assert set(services) == {*OURS, "postgres", "redis"}
        assert [services[name]["command"] for name in OURS] == [[name] for name in OURS]


class TestOrder:
    def test_schema_is_made_once_before_anybody_needs_it(self, services: Mapping[str, Service]) -> None:
        assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
        assert services["migrate"]["restart"] == "no"
        for name in ("api", "control", "worker"):
            assert services[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}

    def test_api_starts_without_redis(self, services: Mapping[str, Service]) -> None:
        assert "redis" not in services["api"]["depends_on"]

    @pytest.mark.parametrize("name", ["api", "postgres", "redis"])
    def test_servers_tell_their_health(self, services: Mapping[str, Service], name: str) -> None:
        check = services[name]["healthcheck"]
        assert check["test"][0] in {"CMD", "CMD-SHELL"}
        assert {"interval", "timeout", "retries", "start_period"} <= set(check)


class TestReach:
    def test_only_the_api_is_published_and_on_loopback(self, services: Mapping[str, Service]) -> None:
        published = {name: service["ports"] for name, service in services.items() if "ports" in service}
        assert published == {"api": ["${API_ADDRESS:-127.0.0.1}:${API_PORT:-8000}:8000"]}

    def test_database_and_broker_have_no_way_out(self, base: Mapping[str, Any]) -> None:
        assert base["networks"]["data"] == {"internal": True}
        networks = {name: service["networks"] for name, service in base["services"].items()}
        assert networks.pop("api") == ["edge", "data"]
        assert all(value == ["data"] for value in networks.values())

    def test_no_service_sees_the_engine_or_the_host_s_folders(self, services: Mapping[str, Service]) -> None:
        mounts = [mount for service in services.values() for mount in service.get("volumes", [])]
        assert {mount.split(":")[0] for mount in mounts} == {"data", "postgres", "redis"}


class TestHardening:
    def test_every_service_is_closed(self, services: Mapping[str, Service]) -> None:
        for service in services.values():
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]
            assert service["read_only"] is True
            assert service["tmpfs"]
            assert "privileged" not in service

    def test_every_service_has_limits(self, services: Mapping[str, Service]) -> None:
        for service in services.values():
            assert {"mem_limit", "pids_limit", "stop_grace_period", "logging"} <= set(service)

    def test_every_service_has_an_init_that_passes_signals_on(self, services: Mapping[str, Service]) -> None:
        assert all(service["init"] is True for service in services.values())

    def test_no_service_runs_as_root(self, services: Mapping[str, Service]) -> None:
        assert services["postgres"]["user"] == "postgres"
        assert services["redis"]["user"] == "redis"
        for name in ("Dockerfile", "Dockerfile.gpu"):
            assert "\nUSER 10001:10001\n" in (ROOT / name).read_text(encoding="utf-8")

    def test_worker_is_stopped_later_than_its_own_grace_ends(self, services: Mapping[str, Service]) -> None:
        grace = int(services["worker"]["stop_grace_period"].removesuffix("s"))
        assert grace >= load_settings({}).stop_grace_s + 30

    def test_worker_has_shared_memory(self, services: Mapping[str, Service]) -> None:
        # Docker's own default of 64 MB kills data loaders with SIGBUS (pytorch/pytorch#5040).
        default = re.fullmatch(r"\$\{WORKER_SHM:-(\d+)g\}", services["worker"]["shm_size"])
        assert default is not None
        assert int(default[1]) >= 1


class TestSettings:
    @pytest.mark.parametrize("name", OURS)
    def test_environment_is_known_to_the_service(
        self, services: Mapping[str, Service], name: str, tmp_path: Path
    ) -> None:
        environment = {}
        for variable, value in services[name]["environment"].items():
            text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)
            if variable.endswith("_FILE"):
                secret = tmp_path / Path(text).name
                secret.write_text("unix:///x\n", encoding="utf-8")
                text = str(secret)
            environment[variable] = text
        settings = load_settings(environment)
        assert settings.database_url == "unix:///x"
        assert settings.storage_url.startswith("file:///var/lib/trainshed")

    def test_no_secret_stands_in_the_environment(self, services: Mapping[str, Service]) -> None:
        for service in services.values():
            for variable, value in service.get("environment", {}).items():
                secret = re.search("PASSWORD|DATABASE_URL|BROKER_URL|KEY", variable)
                assert secret is None or (variable.endswith("_FILE") and value.startswith("/run/secrets/"))

    def test_secrets_come_from_files_and_are_all_written(self, base: Mapping[str, Any], tmp_path: Path) -> None:
        written = compose_secrets.write(tmp_path / "secrets")
        assert base["secrets"] == {name: {"file": f"./secrets/{name}"} for name in written}
        used = {secret for service in base["services"].values() for secret in service.get("secrets", [])}
        assert used == set(written)

    def test_workers_and_api_share_data_and_its_owner(self, services: Mapping[str, Service]) -> None:
        for name in OURS:
            assert services[name]["volumes"] == ["data:/var/lib/trainshed"]


class TestSecrets:
    def test_folder_is_closed_and_files_are_readable_inside_a_container(self, tmp_path: Path) -> None:
        folder = tmp_path / "secrets"
        for name in compose_secrets.write(folder):
            assert (folder / name).stat().st_mode & 0o777 == 0o444
        assert folder.stat().st_mode & 0o777 == 0o700

    def test_passwords_agree_and_differ_from_each_other(self, tmp_path: Path) -> None:
        compose_secrets.write(tmp_path)
        password = (tmp_path / "postgres_password").read_text().strip()
        broker = (tmp_path / "redis_conf").read_text().strip().removeprefix("requirepass ")
        assert f"://trainshed:{password}@postgres:5432/" in (tmp_path / "database_url").read_text()
        assert (tmp_path / "broker_url").read_text() == f"redis://:{broker}@redis:6379/0\n"
        assert password != broker
        assert len(password) >= 40

    def test_second_time_changes_nothing(self, tmp_path: Path) -> None:
        compose_secrets.write(tmp_path)
        before = (tmp_path / "database_url").read_text()
        assert compose_secrets.write(tmp_path) == []
        assert (tmp_path / "database_url").read_text() == before

    def test_half_a_set_is_refused(self, tmp_path: Path) -> None:
        compose_secrets.write(tmp_path)
        (tmp_path / "broker_url").unlink()
        with pytest.raises(FileNotFoundError, match="lacks broker_url"):
            compose_secrets.write(tmp_path)

    def test_git_never_sees_them(self, tmp_path: Path) -> None:
        git = shutil.which("git")
        if git is None:
            pytest.skip("needs git")
        subprocess.run([git, "init", "--quiet", str(tmp_path)], check=True)
        compose_secrets.write(tmp_path / "secrets")
        done = subprocess.run(
            [git, "-C", str(tmp_path), "status", "--porcelain"], capture_output=True, text=True, check=True
        )
        assert done.stdout == ""

    def test_redis_accepts_the_file(self, tmp_path: Path) -> None:
        # The only line that redis-server gets by file; the rest stands in the compose file's command.
        compose_secrets.write(tmp_path)
        assert re.fullmatch(r"requirepass [A-Za-z0-9_-]{43}\n", (tmp_path / "redis_conf").read_text())
