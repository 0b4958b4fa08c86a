"""What a trainer can reach, tried from inside its own container, with its own user id and no capabilities."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from scripts.compose_test.jobs import Drill, begin
from scripts.compose_test.stack import until
from scripts.compose_test.standing import NotAsPromised

PROBE: Final = Path(__file__).parent / "trainer_probe.py"
Json = dict[str, Any]


def what_a_trainer_reaches(drill: Drill) -> str:
    """While a job trains: who its trainer is, and what this user can read.

    Raises:
        NotAsPromised: it has the worker's own user, or reads a secret, another job's files or the worker's memory.
    """
    job_id = begin(drill, "torch")
    try:
        people, found = _look(drill, job_id)
    finally:
        drill.service.post(f"/v1/jobs/{job_id}/cancel")
    drill.service.wait(job_id, "cancelled")
    faults = judge(people, found)
    if faults:
        raise NotAsPromised("; ".join(faults))
    refused = ", ".join(f"{name} {count}" for name, count in found["refused"].items())
    return (
        f"worker uid {people['worker']['uid']}, trainer uid {people['trainer']['uid']} without capabilities; "
        f"refused to it: {refused}; its own folder open"
    )


def _look(drill: Drill, job_id: str) -> tuple[Json, Json]:
    pid = until(lambda: drill.service.job(job_id)["attempts"][-1]["workers"][0]["pid"], "the trainer's pid", 30)
    people = _run(drill, "people", str(pid))
    return people, _run(
        drill, "reach", json.dumps(people), user=f"{people['trainer']['uid']}:{people['trainer']['gid']}"
    )


def judge(people: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """What is wrong with the trainer's place; empty when nothing is."""
    trainer, worker = people["trainer"], people["worker"]
    faults = [f"its user reads {path}" for path in found["read"]]
    faults += [f"its user writes into {folder}" for folder in found["written"]]
    if found["signalled"]:
        faults.append("its user may signal the worker")
    if trainer["uid"] in {0, worker["uid"]}:
        faults.append(f"the trainer runs as uid {trainer['uid']}, the worker as {worker['uid']}")
    if trainer["capabilities"] or not trainer["no_new_privileges"]:
        faults.append(f"the trainer has capabilities {trainer['capabilities']:#x}, or may gain privileges")
    if trainer["groups"] not in ([], [trainer["gid"]]):
        faults.append(f"the trainer is in groups {trainer['groups']}")
    if not people["secrets"]:
        faults.append("no secret was found to try")
    if not found["own"]:
        faults.append("it cannot even use its own folder, so the rest says nothing")
    return faults


def _run(drill: Drill, *arguments: str, user: str = "0:10001") -> Json:
    said = drill.stack.inside("worker", "python", "-", *arguments, stdin=PROBE.read_bytes(), options=("--user", user))
    content: Json = json.loads(said)
    return content
