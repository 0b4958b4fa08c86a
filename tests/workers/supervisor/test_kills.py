"""C35 of the collected failure cases on the worker's side: killed at any point, what is recorded is whole.

The trainer's side of it, the writing, is in tests/workers/test_checkpoints.py.
"""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from app.checkpoints.repository import newest
from app.db import Database
from app.jobs.claims import claim
from app.jobs.endings import Ending, end_attempt
from app.storage import LocalStorage
from tests.fakes import FakeClock
from tests.jobs.placing import TIMES, Scene, make_scene
from tests.workers.supervisor.storing import STEPS
from workers.beginning import fetch_beginning, remove_left_overs
from workers.checkpoints import read
from workers.fault_points import VARIABLE


@pytest.fixture
def scene(database: Database, clock: FakeClock) -> Scene:
    scene = make_scene(database, clock)
    scene.run()
    return scene


def store_until_killed(scene: Scene, folder: Path, point: str) -> None:
    (folder / "work").mkdir()
    url = scene.database.url
    command = [sys.executable, "-m", "tests.workers.supervisor.storing"]
    ended = subprocess.run(
        [*command, url, str(folder / "storage"), str(folder / "work"), scene.job_id],
        env={**os.environ, VARIABLE: point},
        cwd=Path(__file__).parents[3],
        check=False,
        timeout=120,
    )
    assert ended.returncode == -signal.SIGKILL, "it was to be killed on its way"


# Where, the how many-th time, and how many checkpoints are recorded by then.
@pytest.mark.parametrize(
    ("point", "recorded"),
    [
        ("checkpoint.before_store:1", 0),
        ("checkpoint.stored:2", 1),
        ("checkpoint.recorded:2", 2),
        ("checkpoint.stored:3", 2),
        ("checkpoint.recorded:3", 3),
    ],
)
def test_the_next_attempt_goes_on_from_the_newest_that_was_recorded(
    scene: Scene, tmp_path: Path, point: str, recorded: int
) -> None:
    store_until_killed(scene, tmp_path, point)
    storage = LocalStorage(tmp_path / "storage")
    expected = list(STEPS[:recorded])
    with scene.database.write() as session:
        end_attempt(session, scene.job_id, 1, Ending(succeeded=False), scene.clock.now())
    scene.place()
    with scene.database.write() as session:
        now = scene.clock.now()
        taken = claim(session, scene.worker_id, "instance-1", scene.job_id, 2, now, TIMES.lease_s)
    assert taken is not None
    assert [facts.step for facts in taken.resume] == expected[::-1][:2]

    said: list[str] = []
    for number, facts in enumerate(taken.resume):  # every one that is recorded is whole
        (tmp_path / str(number)).mkdir()
        only = replace(taken, resume=(facts,))
        found = fetch_beginning(only, tmp_path / str(number), storage, lambda code, _: said.append(code))
        assert found.resume is not None
        assert read(found.resume).position.step == facts.step
    assert set(said) <= {"resumed"}

    remove_left_overs(taken, scene.database, storage)
    with scene.database.read() as session:
        named = {key for facts in newest(session, scene.job_id) for key in facts.keys}
    assert set(storage.list("checkpoints")) == named, "what was stored and not recorded is gone, and nothing else"
