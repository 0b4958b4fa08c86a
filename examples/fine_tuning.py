"""Train once, then start a second job from the best checkpoint of the first, with a smaller learning rate.

TRAINSHED_URL=http://127.0.0.1:8000 TRAINSHED_KEY=ts_… python examples/fine_tuning.py [tensorflow]
"""

import os
import sys
import time
from typing import Any

import httpx


def main(framework: str) -> None:
    server = httpx.Client(
        base_url=os.environ["TRAINSHED_URL"],
        headers={"Authorization": f"Bearer {os.environ['TRAINSHED_KEY']}"},
        timeout=60,
    )
    spec = {
        "name": "first",
        "framework": framework,
        "model": {"type": "mlp", "hidden": [32]},
        "data": {"source": "digits", "split": {"validation": 0.2}},
        "hyperparameters": {"epochs": 4, "learning_rate": 0.003},
        "device_count": 1,
    }
    with server:
        first = ended(server, checked(server.post("/v1/jobs", json=spec)))
        changes = {
            "name": "second",
            "initialize_from": {"job": first["id"], "checkpoint": "best"},
            "hyperparameters": {"epochs": 2, "learning_rate": 0.0003},
        }
        second = ended(server, checked(server.post(f"/v1/jobs/{first['id']}/clone", json={"spec": changes})))
    for job in (first, second):
        print(f"{job['name']}: val_loss {job['metrics']['best']['val_loss']:.4f}")


def ended(server: httpx.Client, job: dict[str, Any]) -> dict[str, Any]:
    while job["state"] not in ("succeeded", "failed", "cancelled"):
        time.sleep(0.5)
        job = checked(server.get(f"/v1/jobs/{job['id']}"))
    if job["state"] != "succeeded":
        raise SystemExit(f"{job['name']} ended {job['state']}: {job['message']}")
    return job


def checked(answer: httpx.Response) -> dict[str, Any]:
    if answer.is_error:
        raise SystemExit(f"{answer.status_code}: {answer.text}")
    content: dict[str, Any] = answer.json()
    return content


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "torch")
