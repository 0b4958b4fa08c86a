"""POST to `succeeded`, cold, beside the plain script of the same work and Ray Jobs running that script.

Digits, an MLP of 64, three epochs: once declared, and once as that very script in a script job. All take turns, so that
a busy moment of the machine hits all of them.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.harness.client import Client
from benchmarks.harness.script_job import script_spec, to_the_end, upload
from benchmarks.harness.servers import Server, ray_jobs, trainshed
from benchmarks.harness.table import Row, arguments, at_most, at_most_plus, show

ROUNDS: Final = 5
PLAIN: Final = {"torch": "torch_digits.py", "tensorflow": "keras_digits.py"}
WEIGHTS: Final = {"torch": "model.pt", "tensorflow": "model.weights.h5"}


def ours(server: Server, framework: str) -> float:
    """Seconds from the POST of a declared model to its end."""
    spec = {
        "framework": framework,
        "model": {"type": "mlp", "hidden": [64]},
        "data": "digits",
        "device_count": 1,
        "device_type": "cpu",
        "hyperparameters": {"epochs": 3, "batch_size": 64, "learning_rate": 0.001},
    }
    return to_the_end(server, spec)


def as_script(server: Server, framework: str, bundle: str) -> float:
    """Seconds from the POST of the plain script as a job of ours to its end."""
    command = ["python", PLAIN[framework], f"../outputs/{WEIGHTS[framework]}"]
    return to_the_end(server, script_spec(framework, bundle, command))


def plain(framework: str, folder: Path) -> float:
    """Seconds for the script by itself; its output is shown only when it fails."""
    command = _command(framework, folder)
    started = time.perf_counter()
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    took = time.perf_counter() - started
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return took


def on_ray(server: Server, framework: str, folder: Path) -> float:
    """Seconds from the POST to the job server until it says SUCCEEDED, asked every 20 ms."""
    client = Client(server.url)
    started = time.perf_counter()
    made = client.call("POST", "/api/jobs/", {"entrypoint": " ".join(_command(framework, folder))})
    while True:
        status = client.call("GET", f"/api/jobs/{made['submission_id']}")["status"]
        if status == "SUCCEEDED":
            return time.perf_counter() - started
        if status in {"FAILED", "STOPPED"}:
            raise RuntimeError(f"Ray's job ended {status}")
        time.sleep(0.02)


def _command(framework: str, folder: Path) -> list[str]:
    return [sys.executable, str(_script(framework)), str(folder / WEIGHTS[framework])]


def _script(framework: str) -> Path:
    return Path(__file__).parent / "plain" / PLAIN[framework]


def main() -> None:
    options = arguments(__doc__ or "")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    taken: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="tsb") as name, ExitStack() as stack:
        folder = Path(name)
        service = stack.enter_context(trainshed(folder / "home", "--code"))
        ray = stack.enter_context(ray_jobs(options.peer_python, folder)) if options.peer_python else None
        bundles = {framework: upload(service, _script(framework)) for framework in PLAIN}
        for framework in PLAIN:
            # One round to fill the page cache for all.
            for measured in range(ROUNDS + 1):
                found = {
                    "ours": ours(service, framework),
                    "script": as_script(service, framework, bundles[framework]),
                    "plain": plain(framework, folder),
                }
                if ray is not None:
                    found["ray"] = on_ray(ray, framework, folder)
                if measured:
                    for who, seconds in found.items():
                        taken.setdefault((framework, who), []).append(seconds)
    medians = {key: statistics.median(values) for key, values in taken.items()}
    rows: list[Row] = []
    for framework in PLAIN:
        work = f"{framework}: POST to succeeded, cold, s"
        mine, ray_s = medians[framework, "ours"], medians.get((framework, "ray"))
        rows.append(at_most_plus(work, mine, medians[framework, "plain"], "plain script", 0.5))
        rows.append(at_most(work, mine, ray_s, "Ray Jobs, same script", 1.0))
        work, mine = f"{framework}: script job, POST to succeeded, s", medians[framework, "script"]
        rows.append(at_most_plus(work, mine, medians[framework, "plain"], "plain script", 0.5))
        rows.append(at_most(work, mine, ray_s, "Ray Jobs, same script", 1.0))
    show("Latency (median of 5, seconds)", rows, options.json)


if __name__ == "__main__":
    main()
