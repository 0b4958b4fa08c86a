"""The compose checker: the mistakes that people reported are refused, each with its reason.

Sources of the rules: the compose specification's deploy.md and 04-version-and-name.md; compose-spec/compose-go#689,
docker/compose#8142, NVIDIA/nvidia-docker#1034, pytorch/pytorch#5040; the rest is Docker's own security guide.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from scripts import compose_check
from scripts.compose_rules import merged, seconds_of, size_of, spec_problems, weaknesses, without_variables

COUNT_AND_IDS = """
services:
  worker:
    image: example/worker
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: 2
              device_ids: ["0", "1"]
              capabilities: [gpu]
"""
NO_CAPABILITIES = """
services:
  worker:
    image: example/worker
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              count: 1
"""
UNDER_LIMITS = """
services:
  worker:
    image: example/worker
    deploy:
      resources:
        limits:
          devices:
            - driver: nvidia
              count: all
              capabilities: [gpu]
"""
RESERVED = "services: {worker: {deploy: {resources: {reservations: {devices: [%s]}}}}}"
ONE_OF_BOTH = "a reserved device needs exactly one of 'count' and 'device_ids'"
NO_GPU = "a reserved device needs 'capabilities: [gpu]'"

SOUND = """
services:
  w:
    image: example/worker:1.2
    init: true
    restart: unless-stopped
    read_only: true
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    healthcheck: {test: [CMD, "true"]}
    mem_limit: 1g
    pids_limit: 100
"""


def read(text: str) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", yaml.safe_load(text))


class TestReservedDevices:
    """The three files of people whose stack was refused, and their like."""

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            (COUNT_AND_IDS, ONE_OF_BOTH),
            (NO_CAPABILITIES, NO_GPU),
            (UNDER_LIMITS, "'devices' stands under 'limits': it belongs under 'reservations'"),
            (RESERVED % "{driver: nvidia, capabilities: [gpu]}", ONE_OF_BOTH),
            (RESERVED % "{driver: nvidia, count: 1, capabilities: [utility]}", NO_GPU),
            (
                "services: {worker: {runtime: nvidia}}",
                "'runtime' needs a daemon that is set up for it: reserve a device instead",
            ),
        ],
    )
    def test_mistake_is_refused_with_its_reason_alone(self, text: str, reason: str) -> None:
        assert list(spec_problems(read(text))) == [f"service 'worker': {reason}"]

    @pytest.mark.parametrize("device", ["{count: all, capabilities: [gpu]}", "{device_ids: [a], capabilities: [gpu]}"])
    def test_right_reservation_passes(self, device: str) -> None:
        assert list(spec_problems(read(RESERVED % device))) == []

    def test_version_key_is_refused(self) -> None:
        problems = list(spec_problems({"version": "3.8", "services": {}}))
        assert problems == ["'version' at the top is obsolete and warns: delete it"]


class TestWeaknesses:
    def test_sound_service_has_none(self) -> None:
        assert list(weaknesses(read(SOUND))) == []

    @pytest.mark.parametrize(
        ("key", "reason"),
        [
            ("mem_limit", "no 'mem_limit': it can take the host's memory from the others"),
            ("pids_limit", "no 'pids_limit': a fork bomb takes the host"),
            ("healthcheck", "no 'healthcheck': nobody sees that it hangs"),
            ("init", "no 'init: true': signals and dead children depend on what runs as process 1"),
            ("read_only", "no 'read_only: true': an intruder can change the program"),
            ("cap_drop", "no 'cap_drop: [ALL]': it keeps powers that it does not need"),
            ("security_opt", "no 'no-new-privileges': a setuid program in the image makes root"),
            (
                "restart",
                "no 'restart': after a crash or a reboot it stays down; say \"no\" for what runs once",
            ),
        ],
    )
    def test_what_a_service_lacks_is_named(self, key: str, reason: str) -> None:
        service = {name: value for name, value in read(SOUND)["services"]["w"].items() if name != key}
        assert list(weaknesses({"services": {"w": service}})) == [f"service 'w': {reason}"]

    @pytest.mark.parametrize(
        ("more", "reason"),
        [
            ("image: example/worker", "image 'example/worker' has no fixed tag: tomorrow it is another one"),
            ("image: 'host:5000/worker:latest'", "image 'host:5000/worker:latest' has no fixed tag"),
            ("image: '${IMAGE:-redis}'", "image 'redis' has no fixed tag"),
            ("privileged: true", "'privileged' is root on the host"),
            ("cap_add: [CAP_SYS_ADMIN]", "capability SYS_ADMIN breaks out of a container"),
            ("security_opt: [no-new-privileges, 'seccomp=unconfined']", "'unconfined' takes the kernel's own fence"),
            ("pid: host", "'pid: host' shares the host's own"),
            ("network_mode: host", "'network_mode: host' shares the host's own"),
            ("volumes: ['/var/run/docker.sock:/var/run/docker.sock']", "the engine's socket is root on the host"),
            ("volumes: [{type: bind, source: /, target: /host}]", "the whole file system of the host is mounted"),
            ("ports: ['8000:8000']", "port 8000:8000 is published on every interface: begin it with 127.0.0.1:"),
            ("ports: ['${ADDRESS:-0.0.0.0}:80:80']", "port ${ADDRESS:-0.0.0.0}:80:80 is published on every interface"),
            ("ports: [{published: 80, target: 8000}]", "port 80 is published on every interface"),
            (
                "image: 'bitnami/redis:8'\n    ports: ['127.0.0.1:6379:6379']",
                "port 127.0.0.1:6379:6379 of a database is published: nobody outside of the stack needs it",
            ),
            ("environment: {POSTGRES_PASSWORD: x}", "POSTGRES_PASSWORD is a secret in the environment"),
            ("environment: ['MINIO_SECRET_KEY=abc']", "MINIO_SECRET_KEY is a secret in the environment"),
            (
                "environment: {TRAINSHED_STOP_GRACE_S: '60'}",
                "'stop_grace_period' is 10 s: it must be 90 s or more, else a stop kills instead of drains",
            ),
            (
                "environment: {TRAINSHED_STOP_GRACE_S: '60'}\n    stop_grace_period: 1m",
                "'stop_grace_period' is 60 s: it must be 90 s or more",
            ),
            (
                "deploy: {resources: {reservations: {devices: [{count: all, capabilities: [gpu]}]}}}",
                "'shm_size' is less than 1g: data loaders and NCCL end with SIGBUS",
            ),
            (
                "environment: {TRAINSHED_DEVICES: cpu}\n    shm_size: 512m",
                "'shm_size' is less than 1g: data loaders and NCCL end with SIGBUS",
            ),
        ],
    )
    def test_what_a_service_should_not_have_is_named(self, more: str, reason: str) -> None:
        (found,) = weaknesses({"services": {"w": {**read(SOUND)["services"]["w"], **read(f"x:\n    {more}")["x"]}}})
        assert found.startswith(f"service 'w': {reason}")

    @pytest.mark.parametrize(
        "more",
        [
            "ports: ['${ADDRESS:-127.0.0.1}:${PORT:-80}:80']",
            "ports: [{host_ip: 127.0.0.1, published: 80, target: 80}]",
            "image: 'redis@sha256:0123'",
            "environment: {POSTGRES_PASSWORD_FILE: /run/secrets/x, TRAINSHED_S3_SECRET_ACCESS_KEY: '${KEY:-}'}",
            "environment: {TRAINSHED_STOP_GRACE_S: '60'}\n    stop_grace_period: 1m30s",
            "environment: {TRAINSHED_DEVICES: cpu}\n    shm_size: ${SHM:-2g}",
            'restart: "no"',
        ],
    )
    def test_what_is_right_passes(self, more: str) -> None:
        service = {**read(SOUND)["services"]["w"], **read(f"x:\n    {more}")["x"]}
        assert list(weaknesses({"services": {"w": service}})) == []


class TestReading:
    @pytest.mark.parametrize(
        ("text", "size"),
        [("64m", 64 * 2**20), ("1g", 2**30), ("2gb", 2**31), ("${A:-1.5G}", 3 * 2**29), (1024, 1024), ("much", 0)],
    )
    def test_sizes(self, text: object, size: int) -> None:
        # Units of the compose specification, 11-extension.md: b, k, m, g, each also with a b.
        assert size_of(text) == size

    @pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1m30s", 90), ("1h", 3600), ("500ms", 0.5)])
    def test_times(self, text: str, seconds: float) -> None:
        assert seconds_of(text) == seconds

    @pytest.mark.parametrize(
        ("text", "plain"), [("${A:-x}:${B-y}", "x:y"), ("${A}", ""), ("${A:-}", ""), ("a$$b", "a$$b")]
    )
    def test_variables_become_their_defaults(self, text: str, plain: str) -> None:
        assert without_variables(text) == plain

    def test_merging_is_compose_s(self) -> None:
        # docs.docker.com, "Merge Compose files": mappings are merged, sequences joined, the rest is replaced.
        base = {"a": {"x": 1, "y": [1]}, "b": 1}
        assert merged(base, {"a": {"y": [2], "z": 3}, "b": 2}) == {"a": {"x": 1, "y": [1, 2], "z": 3}, "b": 2}


class TestProgram:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "docker-compose.yml").write_text(SOUND)
        (tmp_path / "docker-compose.gpu.yml").write_text("services: {w: {environment: {A: b}}}")
        return tmp_path

    @pytest.fixture
    def _no_compose(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))

    @pytest.mark.usefixtures("_no_compose")
    def test_says_when_compose_itself_is_missing(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert compose_check.main(folder) == 0
        assert "Compose is not installed: checked by our own rules only." in capsys.readouterr().out

    @pytest.mark.usefixtures("_no_compose")
    def test_mistake_of_the_override_is_told_of_the_merged_files_once(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (folder / "docker-compose.gpu.yml").write_text(RESERVED.replace("worker", "w") % "{count: 1}")
        assert compose_check.main(folder) == 1
        told = [line for line in capsys.readouterr().out.splitlines() if "service" in line]
        assert told[0] == f"docker-compose.gpu.yml: service 'w': {NO_GPU}"
        assert told[1].startswith("docker-compose.yml + docker-compose.gpu.yml: service 'w': 'shm_size' is less than")
        assert len(told) == 2

    @pytest.mark.parametrize("text", [COUNT_AND_IDS, NO_CAPABILITIES, UNDER_LIMITS])
    def test_files_named_are_checked_instead(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
    ) -> None:
        file = tmp_path / "bad.yaml"
        file.write_text(text)
        assert compose_check.main(files=[file]) == 1
        (reason,) = spec_problems(read(text))
        assert f"{file}: {reason}" in capsys.readouterr().out

    @pytest.mark.parametrize("code", [0, 15])
    def test_refusal_or_warning_of_compose_itself_fails_the_check(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int
    ) -> None:
        program = folder / "docker-compose"
        program.write_text(f"#!/bin/sh\necho 'services.worker: nonsense' >&2\nexit {code}\n")
        program.chmod(0o755)
        monkeypatch.setattr(compose_check, "compose_command", lambda: [str(program)])
        assert compose_check.main(folder) == 1
        assert "docker-compose.yml + docker-compose.gpu.yml: services.worker: nonsense" in capsys.readouterr().out
