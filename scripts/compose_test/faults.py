"""What happens to running services, and jobs that must come through."""

from typing import Final

from scripts.compose_test.jobs import Drill, begin, came_through, digits, went_on_without_loss
from scripts.compose_test.service import UnexpectedAnswer
from scripts.compose_test.stack import until

READY_S: Final = 120.0
# A worker that lost sight of Redis must take a job without help within this time (C08 of the collected cases).
TAKEN_S: Final = 60.0
_QUICK_EPOCHS: Final = 3


def await_ready(drill: Drill) -> None:
    until(lambda: drill.service.is_ready() or None, "the service is ready", READY_S)


def restart_redis(drill: Drill) -> str:
    """Redis goes and comes back under a running job: nothing is run twice, nothing is missing."""
    job_id = begin(drill, "torch")
    drill.stack.compose("restart", "redis")
    job = came_through(drill, job_id, [None])
    return f"one attempt, {job['effective_spec']['hyperparameters']['epochs']} epochs, each told once"


def restart_redis_twice(drill: Drill) -> str:
    """After two restarts in a row an idle worker still takes the next job, with nobody's help."""
    drill.stack.compose("restart", "redis")
    drill.stack.compose("restart", "redis")
    job_id = drill.service.submit(digits("torch", _QUICK_EPOCHS, exports=[]))
    drill.service.wait(job_id, "starting", "running", "succeeded", limit_s=TAKEN_S)
    came_through(drill, job_id, [None])
    return "the next job was taken and succeeded"


def restart_postgres(drill: Drill) -> str:
    """The database goes and comes back under a running job, which does not notice."""
    job_id = begin(drill, "tensorflow")
    drill.stack.compose("restart", "postgres")
    await_ready(drill)
    job = came_through(drill, job_id, [None])
    return f"one attempt, {job['effective_spec']['hyperparameters']['epochs']} epochs, each told once"


def restart_worker(drill: Drill, framework: str) -> str:
    """The worker is stopped in order: it saves, and the job goes on at the very step, at no cost to its budgets."""
    job_id = begin(drill, framework)
    drill.stack.compose("restart", "worker")
    await_ready(drill)
    job = came_through(drill, job_id, ["drained", None])
    if (job["losses"], job["failures"]) != (0, 0):
        raise UnexpectedAnswer(f"it cost {job['losses']} losses and {job['failures']} failures")
    return f"saved, stopped and went on at step {went_on_without_loss(drill, job)}; no budget spent"


def kill_worker(drill: Drill) -> str:
    """The worker dies at once: the engine starts it again, and the job goes on from its newest checkpoint."""
    job_id = begin(drill, "torch")
    before = drill.stack.state("worker")["StartedAt"]
    drill.stack.inside("worker", *KILL_WORKER, options=("--user", "0"))
    until(lambda: drill.stack.state("worker")["StartedAt"] != before or None, "the engine starts the worker", 60)
    await_ready(drill)
    job = came_through(drill, job_id, ["worker_lost", None])
    if job["losses"] != 1:
        raise UnexpectedAnswer(f"it cost {job['losses']} losses instead of one")
    return f"started again by the engine; went on at step {job['attempts'][1]['resumed_from_step']}; one loss spent"


# The first process that init started, and nothing else: what it leaves behind is part of the fault.
KILL_WORKER: Final = (
    "python",
    "-c",
    """
import os, pathlib, signal
for status in pathlib.Path("/proc").glob("[0-9]*/status"):
    if "\\nPPid:\\t1\\n" in status.read_text():
        os.kill(int(status.parent.name), signal.SIGKILL)
        break
""",
)
