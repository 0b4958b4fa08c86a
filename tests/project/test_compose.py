"""The shipped compose files keep their promises: what starts when, who reaches whom, and with which powers.

The rules that hold for any file are in test_compose_rules.py; here is what this stack promises in docs/deployment.md.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from app.cli.processes import compose_secrets
from app.settings import load_settings
from scripts import compose_check
from scripts.compose_rules import merged, seconds_of, size_of, without_variables
from workers import self_test, survey

ROOT = Path(__file__).resolve().parents[2]
ONCE = ("secrets", "migrate")
PROCESSES = ("migrate", "api", "control", "worker")
LASTING = ("api", "control", "worker", "postgres", "redis")
PROFILES = {"tls": ["edge"], "prometheus": ["monitoring"], "grafana": ["monitoring"]}
BASE, GPU = "docker-compose.yml", "docker-compose.gpu.yml"

Service = Mapping[str, Any]


def read(name: str) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", yaml.safe_load((ROOT / name).read_text(encoding="utf-8")))


@pytest.fixture
def base() -> Mapping[str, Any]:
    return read(BASE)


@pytest.fixture
def services(base: Mapping[str, Any]) -> Mapping[str, Service]:
    return cast("Mapping[str, Service]", base["services"])


def mounts(service: Service) -> dict[str, str]:
    """Where in the container what is mounted, by its source."""
    found = {}
    for mount in service.get("volumes", []):
        source, target, *_ = without_variables(mount).split(":")
        found[source] = target
    return found


class TestFiles:
    def test_have_no_known_mistake(self) -> None:
        assert compose_check.shipped(ROOT) == []

    @pytest.mark.parametrize("files", [[BASE], [BASE, GPU]])
    def test_are_accepted_by_compose(self, files: list[str]) -> None:
        command = compose_check.compose_command()
        if command is None:
            pytest.skip("no Compose on this machine; the structural tests of this file ran")
        assert compose_check.compose_config(command, files) is None

    def test_base_needs_no_gpu(self, services: Mapping[str, Service]) -> None:
        assert all("deploy" not in service and "runtime" not in service for service in services.values())
        assert services["worker"]["environment"]["TRAINSHED_DEVICES"] == "cpu"

    def test_override_gives_all_gpus_to_the_worker_alone(self, base: Mapping[str, Any]) -> None:
        override = read(GPU)
        assert list(override) == ["services"]
        assert list(override["services"]) == ["worker"]
        worker = merged(base, override)["services"]["worker"]
        (device,) = worker["deploy"]["resources"]["reservations"]["devices"]
        assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
        assert worker["environment"]["TRAINSHED_DEVICES"] == "cuda"
        assert worker["environment"]["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
        assert (worker["build"]["args"]["ACCELERATOR"], worker["build"]["args"]["TORCH_INDEX_URL"]) == ("cuda", "")
        # A container that lost its GPUs gets them back by a new start alone (nvidia-container-toolkit#48).
        assert float(worker["environment"]["TRAINSHED_BLIND_EXIT_S"]) > 0
        assert worker["restart"] == "unless-stopped"

    def test_has_every_service_and_what_is_extra_only_by_its_profile(self, services: Mapping[str, Service]) -> None:
        assert set(services) == {*ONCE, *LASTING, *PROFILES}
        assert {name: service["profiles"] for name, service in services.items() if "profiles" in service} == PROFILES
        assert [services[name]["command"] for name in PROCESSES] == [[name] for name in PROCESSES]

    def test_every_variable_stands_in_the_example(self) -> None:
        text = "".join((ROOT / name).read_text(encoding="utf-8") for name in (BASE, GPU))
        used = set(re.findall(r"(?<!\$)\$\{(\w+)", text))
        example = (ROOT / "deploy/env.example").read_text(encoding="utf-8")
        assert set(re.findall(r"^#?([A-Z_]+)=", example, re.MULTILINE)) == used | {"COMPOSE_FILE", "COMPOSE_PROFILES"}


class TestStartOnACard:
    def test_worker_is_not_called_ill_while_it_tries_its_frameworks(self, base: Mapping[str, Any]) -> None:
        # Nothing of the host is registered before the self-tests have ended.
        check = merged(base, read(GPU))["services"]["worker"]["healthcheck"]

        assert seconds_of(check["start_period"]) > 2 * self_test.TIMEOUT_S + survey.FIRST_LOOK_S
        assert check["test"][-1] == "worker"


class TestOrder:
    def test_what_runs_once_ends_and_is_waited_for(self, services: Mapping[str, Service]) -> None:
        assert [services[name]["restart"] for name in ONCE] == ["no", "no"]
        done = {"condition": "service_completed_successfully"}
        for name in ("migrate", "postgres", "redis", "grafana"):
            assert services[name]["depends_on"]["secrets"] == done
        for name in ("api", "control", "worker"):
            assert services[name]["depends_on"]["migrate"] == done

    def test_schema_is_made_by_one_service_alone(self, services: Mapping[str, Service]) -> None:
        assert services["migrate"]["depends_on"]["postgres"] == {"condition": "service_healthy"}
        assert [name for name, service in services.items() if "migrate" in service.get("command", [])] == ["migrate"]

    def test_database_stops_after_those_who_write_to_it(self, services: Mapping[str, Service]) -> None:
        # Compose 1.29 orders a stop by direct dependencies: through `migrate`, which has ended, PostgreSQL stopped
        # first, and a worker could not tell any more how it left its jobs.
        for name in ("api", "control", "worker"):
            assert services[name]["depends_on"]["postgres"] == {"condition": "service_healthy"}

    def test_api_starts_without_redis(self, services: Mapping[str, Service]) -> None:
        assert "redis" not in services["api"]["depends_on"]

    def test_all_that_lasts_tells_its_health(self, services: Mapping[str, Service]) -> None:
        for name in (*LASTING, *PROFILES):
            check = services[name]["healthcheck"]
            assert check["test"][0] in {"CMD", "CMD-SHELL"}
            assert {"interval", "timeout", "retries", "start_period"} <= set(check)
        for name in ("api", "control", "worker"):
            assert services[name]["healthcheck"]["test"][1:] == ["python", "-P", "-m", "app.cli.processes.health", name]


class TestReach:
    def test_nothing_is_published_but_on_loopback(self, services: Mapping[str, Service]) -> None:
        published = {name: service["ports"] for name, service in services.items() if "ports" in service}
        assert published == {
            "api": ["${API_ADDRESS:-127.0.0.1}:${API_PORT:-8000}:8000"],
            "tls": ["${EDGE_ADDRESS:-127.0.0.1}:${EDGE_PORT:-8443}:8443"],
            "grafana": ["${GRAFANA_ADDRESS:-127.0.0.1}:${GRAFANA_PORT:-3000}:3000"],
        }

    def test_database_and_broker_have_no_way_out(self, base: Mapping[str, Any]) -> None:
        assert base["networks"]["data"] == {"internal": True}
        networks = {name: service.get("networks") for name, service in base["services"].items()}
        assert networks == {
            "secrets": None,
            "migrate": ["data"],
            "api": ["edge", "data"],
            "control": ["data"],
            "worker": ["data"],
            "postgres": ["data"],
            "redis": ["data"],
            "tls": ["edge"],
            "prometheus": ["data", "watch"],
            "grafana": ["watch"],
        }
        assert base["services"]["secrets"]["network_mode"] == "none"

    def test_host_s_folders_are_configuration_that_is_only_read(self, services: Mapping[str, Service]) -> None:
        volumes = [without_variables(mount) for service in services.values() for mount in service.get("volumes", [])]
        of_the_host = [mount for mount in volumes if mount.startswith((".", "/", "~"))]
        assert of_the_host
        assert all(mount.startswith("./deploy/") and mount.endswith(":ro") for mount in of_the_host)
        assert all((ROOT / mount.split(":")[0]).exists() for mount in of_the_host)

    def test_every_volume_is_declared_and_used(self, base: Mapping[str, Any]) -> None:
        used = {source for service in base["services"].values() for source in mounts(service) if "/" not in source}
        assert used == set(base["volumes"])


class TestHardening:
    def test_only_the_worker_and_the_edge_get_a_capability_back(self, services: Mapping[str, Service]) -> None:
        given = {name: service["cap_add"] for name, service in services.items() if "cap_add" in service}
        assert given == {"worker": ["SETUID", "SETGID", "KILL", "CHOWN"], "tls": ["NET_BIND_SERVICE"]}

    def test_root_is_only_who_must_change_users_or_make_the_secrets(self, services: Mapping[str, Service]) -> None:
        root = {name for name, service in services.items() if str(service.get("user", "")).startswith("0")}
        assert root == {"secrets", "worker"}
        assert "cap_add" not in services["secrets"]
        assert (services["postgres"]["user"], services["redis"]["user"]) == ("postgres", "redis")
        for name in ("Dockerfile", "Dockerfile.gpu"):
            assert "\nUSER 10001:10001\n" in (ROOT / name).read_text(encoding="utf-8")

    def test_worker_that_is_root_gives_its_trainers_users_of_their_own(self, services: Mapping[str, Service]) -> None:
        worker = services["worker"]
        assert worker["user"] == "0:10001"
        uids = load_settings({"TRAINSHED_TRAINER_UIDS": worker["environment"]["TRAINSHED_TRAINER_UIDS"]})
        assert uids.trainer_uid_range == range(20_000, 20_256)
        # Neither the worker, nor the API, nor a system user of the images.
        assert not {0, 10_001} & set(uids.trainer_uid_range or ())

    def test_every_service_has_a_bounded_log(self, services: Mapping[str, Service]) -> None:
        for service in services.values():
            assert service["logging"] == {"driver": "json-file", "options": {"max-size": "10m", "max-file": "5"}}
            assert {"mem_limit", "pids_limit", "stop_grace_period", "tmpfs"} <= set(service)

    def test_worker_is_stopped_later_than_its_own_grace_ends(self, services: Mapping[str, Service]) -> None:
        worker = services["worker"]
        grace = float(worker["environment"]["TRAINSHED_STOP_GRACE_S"])
        assert grace >= load_settings({}).stop_grace_s
        assert seconds_of(worker["stop_grace_period"]) >= grace + 30

    def test_worker_has_shared_memory(self, services: Mapping[str, Service]) -> None:
        # Docker's own default of 64 MB kills data loaders with SIGBUS (pytorch/pytorch#5040).
        assert size_of(services["worker"]["shm_size"]) >= 1024**3


class TestSettings:
    @pytest.mark.parametrize("name", PROCESSES)
    def test_environment_is_known_to_the_service(
        self, services: Mapping[str, Service], name: str, tmp_path: Path
    ) -> None:
        environment = {}
        for variable, value in services[name]["environment"].items():
            text = without_variables(value)
            if variable.endswith("_FILE"):
                secret = tmp_path / Path(text).name
                secret.write_text("unix:///x\n", encoding="utf-8")
                text = str(secret)
            environment[variable] = text
        settings = load_settings(environment)
        assert settings.database_url == "unix:///x"
        assert settings.storage_url.startswith("file:///var/lib/trainshed")

    def test_api_answers_to_the_name_of_the_edge_too(self, services: Mapping[str, Service]) -> None:
        hosts = services["api"]["environment"]["TRAINSHED_ALLOWED_HOSTS"]
        assert hosts == "${ALLOWED_HOSTS:-127.0.0.1,localhost},${EDGE_HOST:-localhost}"
        assert services["tls"]["environment"]["EDGE_HOST"] == "${EDGE_HOST:-localhost}"

    def test_prometheus_looks_where_the_processes_listen(self, services: Mapping[str, Service]) -> None:
        jobs = read("deploy/monitoring/prometheus.yml")["scrape_configs"]
        targets = {target for job in jobs for group in job["static_configs"] for target in group["targets"]}
        port = services["api"]["environment"]["TRAINSHED_METRICS_PORT"]
        assert targets == {f"{name}:{port}" for name in ("api", "control", "worker")}
        assert all(services[name]["environment"]["TRAINSHED_METRICS_PORT"] == port for name in PROCESSES)


class TestSecrets:
    def test_every_file_that_is_named_is_made_for_who_names_it(
        self, services: Mapping[str, Service], tmp_path: Path
    ) -> None:
        compose_secrets.write(tmp_path)
        volumes = {source: Path(target).name for source, target in mounts(services["secrets"]).items()}
        for name, service in services.items():
            used = re.findall(r"/run/secrets/(\w+)", str(service))
            readers = [volumes[source] for source in mounts(service) if source in volumes and name != "secrets"]
            assert len(readers) == (1 if used else 0), name
            assert all((tmp_path / readers[0] / file).is_file() for file in used), name

    def test_nobody_but_their_maker_can_write_them(self, services: Mapping[str, Service]) -> None:
        for name, service in services.items():
            if name != "secrets":
                kept = [mount for mount in service.get("volumes", []) if mount.startswith("secrets")]
                assert all(mount.endswith(":/run/secrets:ro") for mount in kept)

    def test_there_is_no_default_password(self) -> None:
        text = "".join((ROOT / name).read_text(encoding="utf-8") for name in (BASE, GPU, "deploy/env.example"))
        assert not re.findall(r"\w*(?:PASSWORD|SECRET)\w*(?<!_FILE)[:=] *\S+", text)

    def test_worker_writes_beside_the_storage_only_what_is_its_own(self, services: Mapping[str, Service]) -> None:
        own = mounts(services["worker"])["run"]
        assert services["worker"]["environment"]["TRAINSHED_HOME"] == own
        assert services["worker"]["environment"]["TMPDIR"] == own
        assert [name for name, service in services.items() if "run" in mounts(service)] == ["worker"]
        assert f"TRAINSHED_RUN_DIR={own}" in (ROOT / "Dockerfile.gpu").read_text(encoding="utf-8")

    def test_storage_is_shared_by_api_control_and_worker_and_nobody_else(self, services: Mapping[str, Service]) -> None:
        sharing = {name for name, service in services.items() if "data" in mounts(service)}
        assert sharing == {"api", "control", "worker"}
        assert {mounts(services[name])["data"] for name in sharing} == {"/var/lib/trainshed"}


class TestEdge:
    @pytest.fixture
    def caddyfile(self) -> str:
        return (ROOT / "deploy/edge/Caddyfile").read_text(encoding="utf-8")

    def test_serves_tls_and_passes_on_to_the_api(self, caddyfile: str, services: Mapping[str, Service]) -> None:
        assert "https://{$EDGE_HOST:localhost}:8443 {" in caddyfile
        assert "tls {$EDGE_TLS:internal}" in caddyfile
        assert f"reverse_proxy api:{services['api']['environment']['TRAINSHED_PORT']} {{" in caddyfile
        assert services["tls"]["ports"][0].endswith(":8443")

    def test_events_are_passed_on_at_once(self, caddyfile: str) -> None:
        # caddyserver.com/docs: a negative flush_interval writes after each read.
        assert "flush_interval -1" in caddyfile

    def test_nobody_can_change_it_while_it_runs(self, caddyfile: str) -> None:
        assert "admin off" in caddyfile

    def test_health_check_is_answered_inside_the_container_alone(
        self, caddyfile: str, services: Mapping[str, Service]
    ) -> None:
        asked = services["tls"]["healthcheck"]["test"][-1]
        assert f"{asked.rstrip('/')} {{\n\tbind 127.0.0.1" in caddyfile
