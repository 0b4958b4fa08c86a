"""What a compose file of a service that lives for long must say: each rule once, with its reason.

`spec_problems` finds what an engine refuses or misreads. Its rules come from the compose specification (deploy.md and
04-version-and-name.md) and from reports of stacks that did not start. `weaknesses` finds what starts and then hurts: a
container that eats the host, a database for everybody, data loaders killed by SIGBUS, a stop that kills.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

Document = Mapping[str, Any]

_DATABASES: Final = ("postgres", "redis", "mysql", "mariadb", "mongo", "valkey")
_SECRET: Final = re.compile(r"PASSWORD|SECRET|TOKEN|API_KEY|DATABASE_URL|BROKER_URL")
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_POWERFUL: Final = frozenset({"ALL", "SYS_ADMIN", "SYS_PTRACE", "SYS_MODULE", "NET_ADMIN", "DAC_READ_SEARCH", "MKNOD"})
_HOST: Final = ("network_mode", "pid", "ipc", "userns_mode", "uts")
_DEFAULT_STOP_S: Final = 10
_LAST_WORDS_S: Final = 30
_SHARED_MEMORY: Final = 1024**3
_UNITS: Final = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


def spec_problems(document: Document) -> Iterator[str]:
    """What Compose or an engine would refuse or misread in one file; empty when there is nothing."""
    if "version" in document:
        yield "'version' at the top is obsolete and warns: delete it"
    for name, service in document.get("services", {}).items():
        for reason in _misread(service):
            yield f"service '{name}': {reason}"


def weaknesses(document: Document) -> Iterator[str]:
    """What one whole stack, files merged, gets wrong although it starts."""
    for name, service in document.get("services", {}).items():
        for rule in (_image, _limits, _life, _powers, _reach, _environment, _shared_memory):
            for reason in rule(service):
                yield f"service '{name}': {reason}"


def merged(base: Any, override: Any) -> Any:  # noqa: ANN401 - YAML holds anything
    """The second file over the first, as Compose does it: mappings by key, lists one after the other, else replaced."""
    if isinstance(base, Mapping) and isinstance(override, Mapping):
        both = {key: merged(base[key], value) if key in base else value for key, value in override.items()}
        return {**base, **both}
    if isinstance(base, Sequence) and isinstance(override, Sequence) and not isinstance(base, str):
        return [*base, *override]
    return override


def without_variables(text: str) -> str:
    """`${NAME:-default}` and `${NAME-default}` as their default, which is what a bare `docker compose up` uses."""
    return re.sub(r"\$\{\w+(?::?-([^}]*))?\}", lambda match: match[1] or "", text)


def size_of(text: object) -> int:
    """Bytes of a size as Compose writes it, for example `2g`; 0 for what is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bkmg]?)b?", without_variables(str(text)).strip().lower())
    return round(float(match[1]) * _UNITS[match[2]]) if match else 0


def seconds_of(text: object) -> float:
    """Seconds of a time as Compose writes it, for example `1m30s`."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", without_variables(str(text)))
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _misread(service: Document) -> Iterator[str]:
    if "runtime" in service:
        yield "'runtime' needs a daemon that is set up for it: reserve a device instead"
    resources = service.get("deploy", {}).get("resources", {})
    if "devices" in resources.get("limits", {}):
        yield "'devices' stands under 'limits': it belongs under 'reservations'"
    for device in resources.get("reservations", {}).get("devices", []):
        if "gpu" not in device.get("capabilities", []):
            yield "a reserved device needs 'capabilities: [gpu]'"
        if ("count" in device) == ("device_ids" in device):
            yield "a reserved device needs exactly one of 'count' and 'device_ids'"


def _image(service: Document) -> Iterator[str]:
    image = without_variables(str(service.get("image", "")))
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    if image and "@sha256:" not in image and tag in ("", "latest"):
        yield f"image '{image}' has no fixed tag: tomorrow it is another one"


def _limits(service: Document) -> Iterator[str]:
    limits = service.get("deploy", {}).get("resources", {}).get("limits", {})
    if "mem_limit" not in service and "memory" not in limits:
        yield "no 'mem_limit': it can take the host's memory from the others"
    if "pids_limit" not in service and "pids" not in limits:
        yield "no 'pids_limit': a fork bomb takes the host"


def _life(service: Document) -> Iterator[str]:
    restart = service.get("restart")
    if restart is None:
        yield "no 'restart': after a crash or a reboot it stays down; say \"no\" for what runs once"
    elif str(restart) != "no" and "healthcheck" not in service:
        yield "no 'healthcheck': nobody sees that it hangs"
    if service.get("init") is not True:
        yield "no 'init: true': signals and dead children depend on what runs as process 1"
    grace = _variables(service).get("TRAINSHED_STOP_GRACE_S")
    least = seconds_of(f"{without_variables(str(grace))}s") + _LAST_WORDS_S if grace is not None else 0
    given = seconds_of(service["stop_grace_period"]) if "stop_grace_period" in service else _DEFAULT_STOP_S
    if given < least:
        yield f"'stop_grace_period' is {given:g} s: it must be {least:g} s or more, else a stop kills instead of drains"


def _powers(service: Document) -> Iterator[str]:
    if service.get("privileged"):
        yield "'privileged' is root on the host"
    if "ALL" not in service.get("cap_drop", []):
        yield "no 'cap_drop: [ALL]': it keeps powers that it does not need"
    for name in sorted(_POWERFUL & {str(name).removeprefix("CAP_") for name in service.get("cap_add", [])}):
        yield f"capability {name} breaks out of a container"
    options = [str(option).replace("=", ":") for option in service.get("security_opt", [])]
    if not {"no-new-privileges:true", "no-new-privileges"} & set(options):
        yield "no 'no-new-privileges': a setuid program in the image makes root"
    if any(option.endswith(":unconfined") for option in options):
        yield "'unconfined' takes the kernel's own fence away"
    if service.get("read_only") is not True:
        yield "no 'read_only: true': an intruder can change the program"
    for key in _HOST:
        if service.get(key) == "host":
            yield f"'{key}: host' shares the host's own"


def _reach(service: Document) -> Iterator[str]:
    for mount in service.get("volumes", []):
        source = mount.get("source", "") if isinstance(mount, Mapping) else without_variables(str(mount)).split(":")[0]
        if str(source).endswith("docker.sock"):
            yield "the engine's socket is root on the host"
        if source == "/":
            yield "the whole file system of the host is mounted"
    image = without_variables(str(service.get("image", ""))).rpartition("/")[2]
    for port in service.get("ports", []):
        if image.startswith(_DATABASES):
            yield f"port {_shown(port)} of a database is published: nobody outside of the stack needs it"
        elif not _is_on_loopback(port):
            yield f"port {_shown(port)} is published on every interface: begin it with 127.0.0.1:"


def _is_on_loopback(port: object) -> bool:
    if isinstance(port, Mapping):
        return without_variables(str(port.get("host_ip", ""))) in _LOOPBACK
    return without_variables(str(port)).startswith(tuple(f"{address}:" for address in _LOOPBACK))


def _shown(port: object) -> str:
    return str(port.get("published", port.get("target"))) if isinstance(port, Mapping) else str(port)


def _environment(service: Document) -> Iterator[str]:
    for name, value in _variables(service).items():
        if _SECRET.search(name) and not name.endswith("_FILE") and without_variables(str(value)):
            yield f"{name} is a secret in the environment, where `docker inspect` shows it: use {name}_FILE"


def _variables(service: Document) -> Document:
    """A service's environment, which may be written as a mapping or as a list of `NAME=value`."""
    environment = service.get("environment") or {}
    if isinstance(environment, Mapping):
        return environment
    return dict(str(entry).partition("=")[::2] for entry in environment)


def _shared_memory(service: Document) -> Iterator[str]:
    """Docker's own 64 MB end data loaders and NCCL with SIGBUS (pytorch/pytorch#5040)."""
    devices = service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
    trains = bool(devices) or "TRAINSHED_DEVICES" in _variables(service)
    if trains and service.get("ipc") != "host" and size_of(service.get("shm_size", 0)) < _SHARED_MEMORY:
        yield "'shm_size' is less than 1g: data loaders and NCCL end with SIGBUS"
