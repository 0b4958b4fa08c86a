"""Bundles and specs of code for tests of the API."""

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import httpx

from tests.api.client import Api, problem

CSV = b"a,b,label\n1,2,yes\n3,4,no\n5,6,yes\n"
FILES: Mapping[str, bytes] = {
    "train.py": b"print('hello')\n",
    "nets/__init__.py": b"",
    "nets/small.py": b"def build(): ...\n",
    "requirements.txt": b"rich==14.1.0  # for tables\n",
    "broken.txt": b"rich==14.1.0\n-e .\n",
    "binary.txt": b"\xff\xfe",
}


def zipped(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def add_bundle(api: Api, files: Mapping[str, bytes] = FILES) -> str:
    """The id of a bundle that was uploaded; the client's key must have the permission."""
    answer = api.post("/v1/bundles", content=zipped(files), headers={"Content-Type": "application/zip"})
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["id"])


def script(bundle: str | None = None, **changes: Any) -> dict[str, Any]:
    """A script job; `changes` are of the script. Without a bundle it runs a module of the worker's environment."""
    command = ["python", "-m", "timeit"] if bundle is None else ["python", "train.py"]
    return {
        "script": {"bundle": bundle, "command": command, **changes},
        "device_count": 1,
        "device_type": "cpu",
    }


def python(bundle: str | None = None, **changes: Any) -> dict[str, Any]:
    """A model job whose model is code; `changes` are of the model."""
    model = {"type": "python", "bundle": bundle, "entrypoint": "nets.small:build", **changes}
    return {"framework": "torch", "model": model, "data": "iris", "device_count": 1, "device_type": "cpu"}


def submitted(api: Api, body: dict[str, Any]) -> dict[str, Any]:
    """A job that was accepted."""
    answer = api.post("/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def upload(api: Api) -> str:
    """The id of a small table that was uploaded."""
    answer = api.post("/v1/datasets", files={"file": ("toy.csv", CSV, "text/csv")})
    return str(answer.json()["id"])


def only_error(answer: httpx.Response, code: str = "invalid_spec") -> dict[str, Any]:
    """The one problem of a spec that was refused."""
    (found,) = problem(answer, 422, code)["errors"]
    return dict(found)
