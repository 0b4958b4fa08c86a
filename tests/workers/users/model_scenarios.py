"""Python models asked and exported as users of their own, under a worker that is root with four capabilities alone.

Run by `confined`, as `scenarios` are.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from app.clock import SystemClock
from app.spec import Code, Environment
from tests.workers.user_code.models import BUNDLE, ROWS, TORCH, write_python_model
from tests.workers.users.scenarios import Worker, owner, processes, uids
from workers.exports import Limits, run
from workers.launch import ColdLauncher
from workers.predictor_handle import PredictionRefused
from workers.user_exporter import UserExporter
from workers.user_launch import UserCode, UserLaunch
from workers.user_predictor_handle import UserPredictors

LIMIT_S = 100.0
CODE = UserCode("torch", Code(BUNDLE, Environment(), network=False, place="model"))
TELLING = """
import json, os
def build():
    found = {"users": list(os.getresuid()), "here": os.getcwd(), "mode": oct(os.stat(".").st_mode)}
    for name, path in (("secret", SECRET), ("model store", STORE)):
        try:
            found[name] = os.listdir(path) if os.path.isdir(path) else open(path).read()
        except OSError as error:
            found[name] = type(error).__name__
    raise ValueError("facts" + json.dumps(found))
"""


def launch(worker: Worker) -> UserLaunch:
    """With this Python, which finds its packages only by a variable that no trainer is given."""
    python = worker.folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={os.environ["PYTHONPATH"]} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return UserLaunch(
        launcher=ColdLauncher(users=worker.users),
        interpreters={"torch": python},
        run_dir=worker.run_dir,
        clock=SystemClock(),
        base={"PATH": os.environ["PATH"]},
        onnx=python,
    )


def left(worker: Worker) -> dict[str, Any]:
    notes = [path.name for path in (worker.run_dir / "locks").glob("user-*")]
    return {"work": [path.name for path in worker.users.work.iterdir()], "processes": processes(), "notes": notes}


def model_asked(folder: Path) -> object:
    worker = Worker(folder)
    store = folder / "store"
    store.mkdir(mode=0o700)
    source = TELLING.replace("SECRET", repr(str(worker.secret))).replace("STORE", repr(str(store)))
    telling = write_python_model(store / "telling", {"net.py": source})
    good = write_python_model(store / "good", {"net.py": TORCH})
    pool = UserPredictors(launch(worker))
    try:
        pool.predict(CODE, telling.folder, {"rows": ROWS}, LIMIT_S)
        told = ""
    except PredictionRefused as refused:
        told = str(refused)
    answer = pool.predict(CODE, good.folder, {"rows": ROWS}, LIMIT_S)
    running = [pid for uid in uids() for pid in processes_of_user(uid)]
    pool.stop()
    facts, _ = json.JSONDecoder().raw_decode(told.partition("facts")[2])
    return {
        "facts": facts,
        "labels": answer["labels"],
        "expected": good.labels(ROWS),
        "running": len(running),
        "uids": list(uids()),
        "left": left(worker),
    }


def processes_of_user(uid: int) -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if path.stat().st_uid == uid]


def model_exported(folder: Path) -> object:
    worker = Worker(folder)
    store = folder / "store"
    store.mkdir(mode=0o700)
    saved = write_python_model(store / "model", {"net.py": TORCH})
    exporter = UserExporter(launch(worker), CODE, run)
    (made,) = exporter("onnx", saved.folder, folder / "out", limits=Limits(timeout_s=LIMIT_S))
    return {"made": made.name, "owner": owner(made.path), "left": left(worker)}


SCENARIOS = {"model_asked": model_asked, "model_exported": model_exported}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(SCENARIOS[sys.argv[1]](Path(sys.argv[2]))) + "\n")
    sys.stdout.flush()
