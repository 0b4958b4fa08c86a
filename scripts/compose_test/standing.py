"""The stack as it comes up: healthy, closed to the outside, and of use: a key, a job per framework, an upload."""

import json
import random
from typing import Final

from scripts.compose_test.commands import CommandFailed
from scripts.compose_test.jobs import ACCURACY, FRAMEWORKS, Drill, digits, train_whole
from scripts.compose_test.service import Json, UnexpectedAnswer
from scripts.compose_test.stack import LASTING, Stack, until

UP_S: Final = 300.0
ROWS: Final = 300
_EPOCHS: Final = 20


class NotAsPromised(Exception):
    """A container is not what the compose files promise."""


def image_sizes(stack: Stack) -> str:
    """The images that were built, and the base that each of them includes, where its name is known."""
    names = {name.lower(): stack.variables.get(f"{name}_IMAGE") for name in ("API", "WORKER", "PYTHON")}
    return ", ".join(f"{name} {megabytes(stack, image)} MB" for name, image in names.items() if image)


def expect_no_cuda(stack: Stack) -> None:
    """The CPU configuration must not bring gigabytes of CUDA along, which a wrong index does unnoticed."""
    image = stack.variables["WORKER_IMAGE"]
    look = ("run", "--rm", "--network", "none", "--entrypoint", "find", image)
    found = stack.shell.run("docker", *look, "/opt/frameworks", "-maxdepth", "5", "-name", "nvidia*").split()
    if found:
        raise NotAsPromised(f"the worker's image for the CPU has {', '.join(found[:3])}")


def megabytes(stack: Stack, image: str) -> int:
    return round(int(stack.shell.run("docker", "image", "inspect", "--format", "{{.Size}}", image)) / 1e6)


def bring_up(stack: Stack) -> str:
    """Start everything, and wait until every health check there is says healthy."""
    stack.up()
    until(lambda: not ill(stack) or None, "every container is healthy", UP_S)
    without = [service for service in LASTING if not stack.inspect(service)["Config"].get("Healthcheck")]
    if without:
        raise NotAsPromised(f"no health check: {', '.join(without)}")
    codes = {service: stack.state(service)["ExitCode"] for service in ("secrets", "migrate")}
    if any(codes.values()):
        raise NotAsPromised(f"exit codes: {codes}")
    return f"healthy: {', '.join(LASTING)}"


def ill(stack: Stack) -> dict[str, str]:
    """Services that are not healthy, with what they are instead."""
    found = {service: stack.health(service) for service in LASTING}
    return {service: health for service, health in found.items() if health != "healthy"}


def first_key(stack: Stack) -> str:
    """How a newcomer gets the first key; the last line is the key."""
    return stack.inside("api", "trainshed", "key", "create").strip().splitlines()[-1]


def what_is_published(stack: Stack) -> str:
    """Only the API's port, and only on loopback."""
    published: dict[str, list[dict[str, str]]] = {}
    for service in LASTING:
        ports = stack.inspect(service)["NetworkSettings"]["Ports"] or {}
        published |= {f"{service} {port}": bound for port, bound in ports.items() if bound}
    addresses = {entry["HostIp"] for bound in published.values() for entry in bound}
    if list(published) != ["api 8000/tcp"] or addresses != {"127.0.0.1"}:
        raise NotAsPromised(f"published: {json.dumps(published)}")
    return "the API alone, on 127.0.0.1"


def how_they_are_confined(stack: Stack) -> str:
    """Read-only roots, no privileges to gain, and the capabilities that each process really has."""
    found = {}
    for service in ("api", "control", "worker"):
        host = stack.inspect(service)["HostConfig"]
        kept = any("no-new-priv" in option for option in host["SecurityOpt"] or [])
        if not host["ReadonlyRootfs"] or host["Privileged"] or not kept:
            raise NotAsPromised(f"{service} may write its root, or gain privileges")
        status = stack.inside(service, "cat", "/proc/1/status")
        lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        found[service] = (int(lines["CapEff"], 16), lines["Uid"].split()[0])
    if any(found[service][0] for service in ("api", "control")):
        raise NotAsPromised(f"capabilities in api or control: {found}")
    told = [f"{service} uid {uid}, capabilities {capabilities:#x}" for service, (capabilities, uid) in found.items()]
    return "; ".join(told)


def train_on(drill: Drill, framework: str) -> str:
    job = train_whole(drill, digits(framework, _EPOCHS), "test_accuracy", ACCURACY)
    drill.kept[framework] = job["id"]
    return f"test_accuracy {job['metrics']['last']['test_accuracy']:.3f}"


def measurements() -> bytes:
    """A table with a text column, a gap, and three classes that lie well apart."""
    chosen = random.Random(5)  # noqa: S311 - example data, the same at each run
    lines = ["length,width,place,kind"]
    for row in range(ROWS):
        kind = row % 3
        length, width = 3.0 * kind + chosen.gauss(0, 0.4), 5.0 - 2.0 * kind + chosen.gauss(0, 0.4)
        shown = "" if row == ROWS // 2 else f"{length:.3f}"
        lines.append(f"{shown},{width:.3f},{chosen.choice(['north', 'south'])},{'abc'[kind]}")
    return "\n".join([*lines, ""]).encode()


def table_data(dataset: str) -> Json:
    """How `measurements` are learned from."""
    return {
        "source": dataset,
        "target": "kind",
        "split": {"validation": 0.2, "test": 0.2},
        "missing": "impute",
        "preprocess": {"impute": "median"},
    }


def train_on_upload(drill: Drill) -> str:
    """A CSV file goes up, and both frameworks train on it."""
    dataset = drill.service.upload("measurements.csv", measurements())
    drill.kept["dataset"] = dataset
    shown = []
    for framework in FRAMEWORKS:
        data = table_data(dataset)
        job = train_whole(drill, digits(framework, _EPOCHS, data=data, name="measurements"), "test_accuracy", ACCURACY)
        shown.append(f"{framework} {job['metrics']['last']['test_accuracy']:.3f}")
    return f"{ROWS} rows; test_accuracy {', '.join(shown)}"


def examined(stack: Stack) -> str:
    """`trainshed doctor` finds no fault in any of our containers; it ends with another code than 0 if it does."""
    shown = []
    for service in ("api", "control", "worker"):
        try:
            said = stack.inside(service, "trainshed", "doctor")
        except CommandFailed as failure:
            faults = [line for line in failure.said.splitlines() if line.startswith("fault")]
            raise NotAsPromised(f"{service}: {' / '.join(faults) or failure}") from failure
        warned = [line.split()[1] for line in said.splitlines() if line.startswith("warning")]
        shown.append(f"{service} {said.strip().splitlines()[-1]} {' '.join(warned)}".strip())
    return "; ".join(shown)


def no_way_out(stack: Stack) -> str:
    """The trainers' network is internal: what runs in the worker reaches nobody outside."""
    attempt = "import socket; socket.create_connection(('1.1.1.1', 443), 3)"
    said = stack.inside(
        "worker", "python", "-c", f"try:\n {attempt}\nexcept OSError as e: print('refused', e)\nelse: print('out')"
    )
    if not said.startswith("refused"):
        raise UnexpectedAnswer("the worker reaches the world outside")
    return f"the worker gets no connection to 1.1.1.1: {said.removeprefix('refused').strip()}"
