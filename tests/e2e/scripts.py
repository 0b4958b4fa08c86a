"""Jobs with code of a user's own, for the end-to-end tests: a service that takes it, bundles, and specs."""

import io
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.stack import Json, Stack, running_stack

Spec = dict[str, Any]


@contextmanager
def code_stack(home: Path, settings: Mapping[str, str] | None = None) -> Iterator[Stack]:
    """A service whose key may bring code along."""
    with running_stack(home, settings) as stack:
        (key,) = stack.client.get("/v1/keys").json()["data"]
        answer = stack.client.patch(f"/v1/keys/{key['id']}", json={"permissions": ["code"]})
        assert answer.status_code == 200, answer.text
        yield stack


def bundle(files: Mapping[str, str | bytes]) -> bytes:
    """A ZIP of these files."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def upload(stack: Stack, files: Mapping[str, str | bytes]) -> str:
    """Post a bundle; its id."""
    answer = stack.client.post("/v1/bundles", content=bundle(files), headers={"Content-Type": "application/zip"})
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["id"])


def script(bundle_id: str | None, *command: str, job: Mapping[str, Any] | None = None, **changes: Any) -> Spec:
    """A script job on one CPU device; `changes` are of the script, `job` of the rest of the spec."""
    body = {"bundle": bundle_id, "command": list(command or ("python", "train.py")), **changes}
    return {"script": body, "device_type": "cpu", **(job or {})}


def submit(stack: Stack, source: str, **changes: Any) -> str:
    """Submit a job that runs one file, `train.py`; its id."""
    return stack.submit(script(upload(stack, {"train.py": source}), **changes))


def ended(stack: Stack, source: str, **changes: Any) -> Json:
    """The job of one file, once it is over."""
    return stack.wait(submit(stack, source, **changes))


def detail(job: Json) -> str:
    """What is said of the last attempt's end beside the cause's own sentence."""
    return str(job["attempts"][-1]["detail"] or job["attempts"][-1]["message"] or "")


def lines(stack: Stack, job_id: str) -> list[str]:
    return [line for event in stack.events(job_id) if event["kind"] == "log" for line in event["lines"]]


def notices(stack: Stack, job_id: str) -> dict[str, str]:
    return {event["code"]: event["message"] for event in stack.events(job_id) if event["kind"] == "notice"}


def artifacts(stack: Stack, job_id: str) -> dict[str, bytes]:
    """The content of each artifact."""
    found = stack.client.get(f"/v1/jobs/{job_id}/artifacts").json()["data"]
    return {
        item["name"]: stack.client.get(f"/v1/jobs/{job_id}/artifacts/{item['name']}", follow_redirects=True).content
        for item in found
    }


def devices_are_free(stack: Stack) -> bool | None:
    devices = stack.client.get("/v1/devices").json()["data"]
    return all(device["state"] == "free" for device in devices) or None
