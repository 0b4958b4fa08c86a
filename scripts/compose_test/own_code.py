"""Code of users in the worker's container: who may bring it, what it can do there, and what it cannot."""

import contextlib
import csv
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from scripts.compose_test.jobs import ACCURACY, Drill, digits
from scripts.compose_test.service import Json, Service, UnexpectedAnswer
from scripts.compose_test.stack import Stack
from scripts.compose_test.standing import NotAsPromised, measurements, table_data

PROBE: Final = Path(__file__).parent / "own_code_probe.py"
SCRIPT_FRAMEWORKS: Final = ("python", "torch", "tensorflow")
PACKAGE: Final = "trainshed_probe_package"
ANSWER: Final = 42
OUTSIDE: Final = "1.1.1.1:443"
_KEY: Final = "code key"
_FIRST_TRAINER: Final = 20000  # TRAINSHED_TRAINER_UIDS of docker-compose.yml
_LAST_TRAINER: Final = 20255
# The worker's secrets, the storage, and what other jobs have.
CLOSED: Final = (
    *("/run/secrets/database_url", "/run/secrets/broker_url", "/run/secrets", "/var/lib/trainshed/storage"),
    *("/var/lib/trainshed-run/work", "/var/lib/trainshed-run/locks"),
)
NET: Final = """
import torch
from trainshed_probe_package import ANSWER


def build(*, input_shape, output_units):
    first = torch.nn.Sequential(torch.nn.Linear(input_shape[0], ANSWER), torch.nn.BatchNorm1d(ANSWER), torch.nn.ReLU())
    return torch.nn.Sequential(first, torch.nn.Dropout(0.1), torch.nn.Linear(ANSWER, output_units))
"""
ROWS: Final = 20
_EPOCHS: Final = 20


def write_wheel(folder: Path) -> Path:
    """The package that the jobs require, where everybody may read it."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    info = f"{PACKAGE}-1.0.dist-info"
    files = {
        f"{PACKAGE}.py": f"ANSWER = {ANSWER}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: compose test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    path = folder / f"{PACKAGE}-1.0-py3-none-any.whl"
    path.write_bytes(packed({**files, f"{info}/RECORD": record}))
    path.chmod(0o644)
    return path


def packed(files: Mapping[str, str]) -> bytes:
    """A ZIP of these files."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return made.getvalue()


def key_for_code(drill: Drill) -> str:
    """The first key may not bring code along, though it is an admin's; one with the permission may."""
    content = packed({"probe.py": PROBE.read_text(encoding="utf-8"), "requirements.txt": f"{PACKAGE}==1.0\n"})
    code = drill.service.refusal_of_bundle(content)
    if code != "code_not_allowed":
        raise UnexpectedAnswer(f"a key without the permission posted a bundle: {code}")
    created = drill.stack.inside("api", "trainshed", "key", "create", "--name", "code", "--permission", "code")
    drill.kept[_KEY] = created.strip().splitlines()[-1]
    with _coder(drill) as service:
        drill.kept["probe"] = service.post_bundle(content)
    return "refused to the first key (code_not_allowed), taken from one with the permission"


def _coder(drill: Drill) -> "contextlib.closing[Service]":
    return drill.service.with_key(drill.kept[_KEY])


def script(bundle: str, *command: str, **changes: Any) -> Json:  # noqa: ANN401 - any part of a spec
    asked = {"bundle": bundle, "command": list(command), **changes}
    return {"name": "a script", "script": asked, "device_type": "cpu", "retry": {"failures": 0}}


def run_script(drill: Drill, framework: str) -> str:
    """A script finds its framework, its packages and a folder to write, and none of what is not its own.

    Raises:
        NotAsPromised: it has rights, reaches somebody, or reads what is closed.
    """
    addresses = [*(_address(drill.stack, *place) for place in (("redis", 6379), ("postgres", 5432))), OUTSIDE]
    module = "-" if framework == "python" else framework
    command = ("python", "probe.py", module, *addresses, "--", *CLOSED)
    spec = script(drill.kept["probe"], *command, environment={"requirements": "requirements.txt"})
    with _coder(drill) as service:
        job = service.wait(service.submit({**spec, "framework": framework}))
        found: Json = json.loads(service.download(f"/v1/jobs/{job['id']}/artifacts/found.json"))
    faults = judge(found, framework)
    if faults:
        raise NotAsPromised("; ".join(faults))
    shown = f"{framework} {found['framework']}" if found["framework"] else framework
    return (
        f"{shown} as uid {found['uid']}, no capability; {len(addresses)} addresses out of reach "
        f"({', '.join(found['refused'])}); {len(CLOSED)} places and {found['strangers']} processes closed; "
        "its TMPDIR open; a required wheel imported"
    )


def _address(stack: Stack, service: str, port: int) -> str:
    """By number: a name that is not resolved proves nothing."""
    (network,) = stack.inspect(service)["NetworkSettings"]["Networks"].values()
    return f"{network['IPAddress']}:{port}"


def judge(found: Mapping[str, Any], framework: str) -> list[str]:
    """What is wrong with a script's place; empty when nothing is."""
    faults = [f"it reached {address}" for address in found["reached"]]
    faults += [f"it read {path}" for path in found["read"]]
    faults += [f"it may signal process {pid}" for pid in found["signalled"]]
    faults += [f"it was told {name}" for name in found["secrets"]]
    if not _FIRST_TRAINER <= found["uid"] <= _LAST_TRAINER:
        faults.append(f"it ran as uid {found['uid']}")
    if found["groups"] not in ([], [found["uid"]]):
        faults.append(f"it was in groups {found['groups']}")
    if found["capabilities"] or not found["no_new_privileges"]:
        faults.append(f"it had capabilities {found['capabilities']:#x}, or could gain privileges")
    if not found["temporary"]:
        faults.append("it could not write where temporary files go")
    if not found["strangers"]:
        faults.append("it saw no process of another user, so what it could do to one says nothing")
    if found["required"] != ANSWER:
        faults.append(f"the required package said {found['required']}")
    if framework != "python" and not found["framework"]:
        faults.append(f"it did not find {framework}")
    return faults


def run_ranks(drill: Drill) -> str:
    """Processes that talk to each other need a loopback device, which a container by Docker's defaults cannot make.

    Raises:
        UnexpectedAnswer: the job neither ran nor ended by the cause and the sentence that docs/security.md promises.
    """
    spec = script(drill.kept["probe"], "python", "-c", "pass", processes="per_device", success="exit")
    with _coder(drill) as service:
        job = service.wait(service.submit(spec), "failed", "succeeded")
    if job["state"] == "succeeded":
        return "works: this engine lets containers make namespaces"
    said = f"{job['message']} {job['attempts'][-1]['message']} {job['attempts'][-1]['detail']}"
    if job["cause"] != "environment_failed" or "cannot shut off the network" not in said:
        raise UnexpectedAnswer(f"{job['cause']}: {said}")
    return "environment_failed: This host cannot shut off the network of a job that needs the loopback device …"


def train_own_model(drill: Drill) -> str:
    """A module of the user's own is trained by our loop, and answers rows that it is asked about.

    Raises:
        UnexpectedAnswer: it did not learn classes that lie well apart, or answers otherwise than it learned.
    """
    table = measurements()
    environment = {"requirements": [f"{PACKAGE}==1.0"]}
    with _coder(drill) as service:
        bundle = service.post_bundle(packed({"nets.py": NET}))
        model = {"type": "python", "bundle": bundle, "entrypoint": "nets:build", "environment": environment}
        data = table_data(service.upload("measurements.csv", table))
        job = service.wait(service.submit(digits("torch", _EPOCHS, model=model, data=data, name="a model of our own")))
        accuracy = float(job["metrics"]["last"]["test_accuracy"])
        if accuracy < ACCURACY:
            raise UnexpectedAnswer(f"test_accuracy is {accuracy}, and must be at least {ACCURACY}")
        rows, kinds = _first_rows(table)
        answer = service.post(f"/v1/jobs/{job['id']}/predict", {"rows": rows, "timeout_s": 60})
    right = sum(said == kind for said, kind in zip(answer.get("labels", []), kinds, strict=False))
    if right < ACCURACY * ROWS:
        raise UnexpectedAnswer(f"of {ROWS} rows {right} were answered rightly: {json.dumps(answer)[:200]}")
    return f"test_accuracy {accuracy:.3f}; {right} of {ROWS} rows answered rightly"


def _first_rows(table: bytes) -> tuple[list[Json], list[str]]:
    """Rows as a client asks about them, and what they are."""
    lines = list(csv.DictReader(io.StringIO(table.decode())))[:ROWS]
    rows = [{"length": float(line["length"]), "width": float(line["width"]), "place": line["place"]} for line in lines]
    return rows, [line["kind"] for line in lines]
