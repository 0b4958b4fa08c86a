"""Case C10: a job that ends by itself while its worker leaves is done once, and keeps nobody waiting."""

import threading
from pathlib import Path

from app.jobs.models import Attempt
from app.jobs.states import JobState
from tests.workers.eventually import eventually
from tests.workers.host.bench import HostBench
from workers.protocol import Artifact, Done

GRACE_S = 3_600.0
"""So long that the test would not end if the worker used it up."""


def attempts(bench: HostBench) -> list[tuple[int, str | None]]:
    with bench.database.read() as session:
        return [(row.number, row.cause) for row in session.query(Attempt).order_by(Attempt.number)]


class TestJobThatEndsWhileItsWorkerLeaves:
    def test_it_succeeds_once_and_the_worker_goes_with_it(self, bench: HostBench) -> None:
        host = bench.make(stop_grace_s=GRACE_S)
        run = bench.place_and_run(host)
        eventually(lambda: bench.scene.state() is JobState.RUNNING)
        leaving = threading.Thread(target=host.stop, daemon=True)
        leaving.start()
        eventually(lambda: bool(run.heard))  # told to stop; it was through before it came to a safe point
        Path(run.request.assignment.work_dir, "model.safetensors").write_bytes(b"weights")
        run.says(Artifact(name="model.safetensors", path="model.safetensors", media_type="x/y", kind="model"))
        run.says(Done(metrics={"loss": 0.25}))
        run.end(code=0)
        leaving.join(20)

        assert not leaving.is_alive(), "the grace was not used up"
        assert bench.scene.state() is JobState.SUCCEEDED
        assert attempts(bench) == [(1, None)]

    def test_the_message_that_comes_again_does_nothing(self, bench: HostBench) -> None:
        self.test_it_succeeds_once_and_the_worker_goes_with_it(bench)
        after = bench.make("start-2")
        for _ in range(3):
            after.wake()
            after.attend()

        assert bench.scene.place() == []
        assert bench.scene.state() is JobState.SUCCEEDED
        assert attempts(bench) == [(1, None)]
