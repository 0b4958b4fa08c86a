"""What the compose test looks at on the engine: health, published ports, confinement; and what it objects to."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.compose_test import standing
from scripts.compose_test.commands import Shell
from scripts.compose_test.engine import Engine
from scripts.compose_test.service import UnexpectedAnswer
from scripts.compose_test.stack import LASTING, Stack
from scripts.compose_test.standing import NotAsPromised
from tests.deploy.programs import Programs

HEALTHY: dict[str, Any] = {
    "State": {"Status": "running", "Health": {"Status": "healthy"}, "ExitCode": 0},
    "Config": {"Healthcheck": {"Test": ["CMD", "true"]}},
    "HostConfig": {"ReadonlyRootfs": True, "Privileged": False, "SecurityOpt": ["no-new-privileges:true"]},
    "NetworkSettings": {"Ports": {}},
}
LOOPBACK = {"Ports": {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "1234"}]}}
STATUS = "Name:\tinit\nUid:\t10001\t10001\t10001\t10001\nCapEff:\t0000000000000000\n"


class Containers:
    """What `docker ps`, `inspect` and `exec` say, by service; the container's id is its service's name."""

    def __init__(self, programs: Programs, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        for service in (*LASTING, "secrets", "migrate"):
            self.is_like(service)
            self.says(service, STATUS)
        self.is_like("api", NetworkSettings=LOOPBACK)
        script = f"""
case $1 in
ps) echo "$*" | grep -q "service=" && echo "${{*##*service=}}";;
inspect) cat "{folder}/$2.json";;
exec) cat "{folder}/$2.said";;
esac
exit 0"""
        programs.add("docker", script)
        programs.add("docker-compose")

    def is_like(self, service: str, **parts: Any) -> None:
        (self._folder / f"{service}.json").write_text(json.dumps([HEALTHY | parts]))

    def says(self, service: str, text: str) -> None:
        (self._folder / f"{service}.said").write_text(text)


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path / "bin")


@pytest.fixture
def containers(programs: Programs, tmp_path: Path) -> Containers:
    return Containers(programs, tmp_path)


@pytest.fixture
def stack(programs: Programs, containers: Containers, tmp_path: Path) -> Stack:  # noqa: ARG001 - they must be there
    engine = Engine(Shell(programs.environ(), tmp_path / "log", tmp_path), ("docker-compose",), "0", ours=False)
    return Stack(engine, tmp_path, "t-1", {}, tmp_path / "override.json")


class TestUp:
    def test_is_done_when_every_check_says_healthy(self, stack: Stack) -> None:
        assert standing.bring_up(stack) == "healthy: api, control, worker, postgres, redis"

    def test_what_is_not_healthy_is_named(self, stack: Stack, containers: Containers) -> None:
        containers.is_like("worker", State={"Status": "running", "Health": {"Status": "starting"}})
        containers.is_like("redis", State={"Status": "restarting"})
        assert standing.ill(stack) == {"worker": "starting", "redis": "restarting"}

    def test_migration_that_failed_is_a_failure(self, stack: Stack, containers: Containers) -> None:
        containers.is_like("migrate", State={"Status": "exited", "ExitCode": 1})
        with pytest.raises(NotAsPromised, match="'migrate': 1"):
            standing.bring_up(stack)

    def test_first_key_is_the_last_line(self, stack: Stack, containers: Containers) -> None:
        containers.says("api", "A key for the project default:\nts_abc\n")
        assert standing.first_key(stack) == "ts_abc"


class TestSizes:
    def test_are_told_with_the_base_s_where_that_is_known(self, stack: Stack, programs: Programs) -> None:
        programs.add(
            "docker", "case $* in *x/api*) echo 736600000;; *x/worker*) echo 3548000000;; *py*) echo 169000000;; esac"
        )
        images = {"API_IMAGE": "x/api:1", "WORKER_IMAGE": "x/worker:1"}
        assert standing.image_sizes(replace(stack, variables=images)) == "api 737 MB, worker 3548 MB"
        based = {**images, "PYTHON_IMAGE": "py:3"}
        assert standing.image_sizes(replace(stack, variables=based)).endswith("python 169 MB")


class TestNoCuda:
    def test_plain_image_passes(self, stack: Stack, programs: Programs) -> None:
        standing.expect_no_cuda(replace(stack, variables={"WORKER_IMAGE": "x/worker:1"}))
        assert "--entrypoint find x/worker:1 /opt/frameworks" in programs.called("docker run")[0]

    def test_package_of_cuda_is_a_fault(self, stack: Stack, programs: Programs) -> None:
        programs.add("docker", "echo /opt/frameworks/torch/lib/python3.11/site-packages/nvidia")
        with pytest.raises(NotAsPromised, match="site-packages/nvidia"):
            standing.expect_no_cuda(replace(stack, variables={"WORKER_IMAGE": "x/worker:1"}))


class TestPublished:
    def test_api_on_loopback_is_all(self, stack: Stack) -> None:
        assert standing.what_is_published(stack) == "the API alone, on 127.0.0.1"

    def test_database_s_port_is_a_fault(self, stack: Stack, containers: Containers) -> None:
        open_port = {"Ports": {"5432/tcp": [{"HostIp": "127.0.0.1", "HostPort": "5432"}]}}
        containers.is_like("postgres", NetworkSettings=open_port)
        with pytest.raises(NotAsPromised, match="postgres 5432/tcp"):
            standing.what_is_published(stack)

    def test_other_address_is_a_fault(self, stack: Stack, containers: Containers) -> None:
        everywhere = {"Ports": {"8000/tcp": [{"HostIp": "0.0.0.0", "HostPort": "1"}]}}  # noqa: S104 - what is refused
        containers.is_like("api", NetworkSettings=everywhere)
        with pytest.raises(NotAsPromised, match=r"0\.0\.0\.0"):
            standing.what_is_published(stack)

    def test_port_that_is_only_exposed_is_none(self, stack: Stack, containers: Containers) -> None:
        containers.is_like("redis", NetworkSettings={"Ports": {"6379/tcp": None}})
        assert standing.what_is_published(stack).startswith("the API alone")


class TestConfinement:
    def test_users_and_capabilities_are_told(self, stack: Stack, containers: Containers) -> None:
        # SETUID (7), SETGID (6), KILL (5) and CHOWN (0), by linux/capability.h: bits 0, 5, 6, 7 make 0xe1.
        containers.says("worker", STATUS.replace("0000000000000000", "00000000000000e1").replace("10001", "0"))
        told = standing.how_they_are_confined(stack)
        assert "api uid 10001, capabilities 0x0" in told
        assert "worker uid 0, capabilities 0xe1" in told

    @pytest.mark.parametrize(
        "host",
        [
            {"ReadonlyRootfs": False, "Privileged": False, "SecurityOpt": ["no-new-privileges:true"]},
            {"ReadonlyRootfs": True, "Privileged": True, "SecurityOpt": ["no-new-privileges:true"]},
            {"ReadonlyRootfs": True, "Privileged": False, "SecurityOpt": []},
            {"ReadonlyRootfs": True, "Privileged": False, "SecurityOpt": None},
        ],
    )
    def test_each_loosened_thing_is_a_fault(self, stack: Stack, containers: Containers, host: dict[str, Any]) -> None:
        containers.is_like("control", HostConfig=host)
        with pytest.raises(NotAsPromised, match="control may"):
            standing.how_they_are_confined(stack)

    def test_capabilities_of_the_api_are_a_fault(self, stack: Stack, containers: Containers) -> None:
        containers.says("api", STATUS.replace("0000000000000000", "0000000000000001"))
        with pytest.raises(NotAsPromised, match="capabilities in api or control"):
            standing.how_they_are_confined(stack)


class TestDoctor:
    def test_warnings_are_told_with_the_count(self, stack: Stack, containers: Containers) -> None:
        for service in ("api", "control", "worker"):
            containers.says(
                service, "ok      settings  They can be read.\nwarning clock  It drifts.\n0 faults, 1 warning.\n"
            )
        told = standing.examined(stack)
        assert told == "; ".join(f"{name} 0 faults, 1 warning. clock" for name in ("api", "control", "worker"))

    def test_fault_is_a_failure_and_told_alone(self, stack: Stack, programs: Programs) -> None:
        said = "ok      settings  They can be read.\nfault   space.home  Full.\n1 fault.\n"
        programs.add("docker", f"case $1 in ps) echo c1;; exec) echo '{said}'; exit 1;; esac")
        with pytest.raises(NotAsPromised, match=r"^api: fault   space\.home  Full\.$"):
            standing.examined(stack)


class TestNetwork:
    def test_refused_way_out_is_right(self, stack: Stack, containers: Containers) -> None:
        containers.says("worker", "refused [Errno 101] Network is unreachable\n")
        told = "the worker gets no connection to 1.1.1.1: [Errno 101] Network is unreachable"
        assert standing.no_way_out(stack) == told

    def test_way_out_is_a_fault(self, stack: Stack, containers: Containers) -> None:
        containers.says("worker", "out\n")
        with pytest.raises(UnexpectedAnswer, match="reaches the world outside"):
            standing.no_way_out(stack)
