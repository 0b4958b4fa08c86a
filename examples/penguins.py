"""Upload a table with texts and gaps, train on it, follow the job live, and predict: all over HTTP.

    TRAINSHED_URL=http://127.0.0.1:8000 TRAINSHED_KEY=ts_… python examples/penguins.py penguins.csv [tensorflow]

It needs `httpx` alone; nothing of Trainshed is imported.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx

ROWS: list[dict[str, Any]] = [
    {"island": "Torgersen", "bill_length_mm": 39.1, "bill_depth_mm": 18.7, "flipper_length_mm": 181, "sex": "male"},
    {"island": "Biscoe", "bill_length_mm": 46.1, "bill_depth_mm": 13.2, "flipper_length_mm": 211, "sex": "female"},
    {"island": "Dream", "bill_length_mm": 46.5, "bill_depth_mm": 17.9, "flipper_length_mm": 192, "sex": None},
]


def main(file: Path, framework: str) -> None:
    server = httpx.Client(
        base_url=os.environ["TRAINSHED_URL"],
        headers={"Authorization": f"Bearer {os.environ['TRAINSHED_KEY']}"},
        timeout=60,
    )
    with server:
        dataset = upload(server, file)
        job = submit(server, dataset, framework)
        follow(server, job)
        print_predictions(server, job)


def upload(server: httpx.Client, file: Path) -> str:
    headers = {"Content-Type": "text/csv"}
    answer = checked(
        server.post("/v1/datasets", params={"name": file.name}, headers=headers, content=file.read_bytes())
    )
    for note in answer["problems"]:
        print(f"  {note['message']}")
    return str(answer["id"])


def submit(server: httpx.Client, dataset: str, framework: str) -> str:
    spec = {
        "name": "penguins",
        "framework": framework,
        "model": {"type": "mlp", "hidden": [32], "dropout": 0.1},
        "data": {
            "source": dataset,
            "target": "species",
            "features": ["island", "bill_length_mm", "bill_depth_mm", "flipper_length_mm", "sex"],
            "missing": "impute",
            "split": {"validation": 0.1, "test": 0.2},
        },
        "hyperparameters": {"epochs": 40, "batch_size": 16, "learning_rate": 0.01, "schedule": "cosine"},
        "device_count": 1,
    }
    return str(checked(server.post("/v1/jobs", json=spec))["id"])


def follow(server: httpx.Client, job: str) -> None:
    """Read the event stream to its end: the server closes it behind the last state."""
    with server.stream("GET", f"/v1/jobs/{job}/events", headers={"Accept": "text/event-stream"}) as events:
        for line in events.iter_lines():
            if not line.startswith("data:"):
                continue
            event = json.loads(line.removeprefix("data:"))
            if event["kind"] == "state":
                print(f"{event['at']} {event['state']} {event.get('message') or ''}")
    done = checked(server.get(f"/v1/jobs/{job}"))
    if done["state"] != "succeeded":
        raise SystemExit(f"The job ended {done['state']}: {done['message']}")
    print(f"accuracy of the test part: {done['metrics']['last']['test_accuracy']:.3f}")


def print_predictions(server: httpx.Client, job: str) -> None:
    found = checked(server.post(f"/v1/jobs/{job}/predict", json={"rows": ROWS}))
    for row, label, shares in zip(ROWS, found["labels"], found["probabilities"], strict=True):
        print(f"{row['island']}, bill {row['bill_length_mm']} mm: {label} ({shares[label]:.0%})")


def checked(answer: httpx.Response) -> Any:
    """The content of an answer; a refusal is printed as the server wrote it."""
    if answer.is_error:
        raise SystemExit(f"{answer.status_code}: {answer.text}")
    return answer.json()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "torch")
