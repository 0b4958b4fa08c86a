"""One attempt in its process: verified, trained, and ended with exactly one last word."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.errors import Cause
from tests.workers.fake_backend import FakeBackend, FrameworkError
from tests.workers.launcher.attempt import assignment, simulated
from workers.backends.base import Backend, DeviceUnavailable, Diverged
from workers.channel import Channel, WorkerGone
from workers.context import Context
from workers.protocol import Assignment, Decoder, Device, Done, Failed, Message, Started, Stop, encode
from workers.trainer import attempt, exec_environment, verify_devices, verify_environment

CARD = Device(id="GPU-aaaaaaaa-0000-0000-0000-000000000001", kind="cuda", name="Card")
ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "GPU-9", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
CPU = Device(id="cpu-0@host", kind="cpu", name="CPU")


class TestVerifyEnvironment:
    @pytest.mark.parametrize(
        ("devices", "visible"), [([CARD], CARD.id), ([CPU], ""), ([simulated("GPU-9")], "GPU-9"), ([], "")]
    )
    def test_lease_and_environment_agree(self, devices: list[Device], visible: str) -> None:
        verify_environment({"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, devices)

    @pytest.mark.parametrize("devices", [[CARD], [CPU]])
    def test_absent_variable_shows_every_card_so_it_is_refused(self, devices: list[Device]) -> None:
        with pytest.raises(DeviceUnavailable, match="CUDA_VISIBLE_DEVICES absent where the lease says") as caught:
            verify_environment({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, devices)

        assert caught.value.cause == Cause.DEVICE_UNAVAILABLE

    def test_another_card_is_refused(self) -> None:
        with pytest.raises(DeviceUnavailable, match=f"'GPU-other' where the lease says '{CARD.id}'"):
            verify_environment({"CUDA_VISIBLE_DEVICES": "GPU-other", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [CARD])

    def test_order_of_the_driver_is_demanded(self) -> None:
        with pytest.raises(DeviceUnavailable, match="CUDA_DEVICE_ORDER 'FASTEST_FIRST'"):
            verify_environment({"CUDA_VISIBLE_DEVICES": CARD.id, "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, [CARD])

    def test_what_python_changed_later_is_not_what_was_there_at_exec(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRAINSHED_SET_LATER", "1")

        assert "TRAINSHED_SET_LATER" not in exec_environment()
        assert exec_environment()["PATH"]


class TestVerifyDevices:
    @pytest.mark.parametrize("devices", [[CPU], [CARD, CPU], []])
    def test_job_for_cards_is_never_given_a_cpu(self, devices: list[Device]) -> None:
        with pytest.raises(
            DeviceUnavailable, match=r"was given (cpu-0@host|no device)\. Nothing was trained on the CPU"
        ):
            verify_devices("cuda", devices)

    @pytest.mark.parametrize("devices", [[CARD], [simulated("GPU-9")]])
    def test_cards_real_or_simulated_are_right_for_it(self, devices: list[Device]) -> None:
        verify_devices("cuda", devices)

    def test_job_for_the_cpu_has_a_slot(self) -> None:
        verify_devices("cpu", [CPU])


class Stage:
    """The trainer's surroundings in this process: an assignment, a channel, and the worker's end of it."""

    def __init__(self, job: Assignment, trainer: socket.socket, worker: socket.socket) -> None:
        self._job = job
        self._worker = worker
        self.channel = Channel(trainer)

    def run(
        self, train: Callable[[Assignment, Backend, Context], Done], backend: Backend | None = None
    ) -> Done | Failed:
        read = self._memory_file(self._job.model_dump_json().encode())
        return attempt(self.channel, read, ENVIRONMENT, lambda _name: backend or FakeBackend(), train)

    def run_raw(self, text: bytes) -> Done | Failed:
        return attempt(self.channel, self._memory_file(text), ENVIRONMENT, lambda _name: FakeBackend(), train_nothing)

    def send(self, message: Message) -> None:
        self._worker.sendall(encode(message))

    def received(self) -> list[Message]:
        try:
            return Decoder().feed(self._worker.recv(1 << 20, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return []

    def close_worker(self) -> None:
        self._worker.close()

    @staticmethod
    def _memory_file(data: bytes) -> int:
        descriptor = os.memfd_create("assignment")
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor


def train_nothing(_job: Assignment, _backend: Backend, context: Context) -> Done:
    return Done(metrics={}, stopped="stop" if context.stop_reason() else None)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    trainer, worker = socket.socketpair()
    with closing(trainer), closing(worker):
        yield Stage(assignment(tmp_path, [simulated("GPU-9")]), trainer, worker)


class TestAttempt:
    def test_started_says_what_it_runs_on(self, stage: Stage) -> None:
        stage.run(train_nothing)

        assert stage.received() == [
            Started(
                framework="fake",
                framework_version="1.0",
                device_kind="cpu",
                devices=["GPU-9"],
                simulated=True,
                environment=ENVIRONMENT,
                pid=os.getpid(),
                pgid=os.getpgid(0),
                threads=1,
            )
        ]

    def test_last_word_is_what_the_training_returned(self, stage: Stage) -> None:
        done = Done(metrics={"val_accuracy": 0.5}, samples_per_s=10.0)

        assert stage.run(lambda _job, _backend, _context: done) == done

    def test_log_says_what_it_computes_on(self, stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
        stage.run(train_nothing)

        assert capsys.readouterr().out == "fake 1.0 computes on the CPU in place of the simulated GPU-9, 1 thread.\n"

    def test_log_ends_with_why_it_failed(self, stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
        def train(_job: Assignment, _backend: Backend, _context: Context) -> Done:
            raise Diverged("The loss is NaN at step 3.")

        stage.run(train)

        assert capsys.readouterr().out.endswith("Failed: The loss is NaN at step 3.\n")

    def test_training_hears_a_stop(self, stage: Stage) -> None:
        stage.send(Stop(reason="cancel"))

        assert stage.run(train_nothing) == Done(metrics={}, stopped="stop")

    @pytest.mark.parametrize(
        ("error", "cause"),
        [
            (Diverged("The loss is NaN at step 3."), Cause.DIVERGED),
            (FrameworkError("full"), Cause.DEVICE_OUT_OF_MEMORY),
            (RuntimeError("broken"), Cause.USER_CODE),
        ],
    )
    def test_error_becomes_the_last_word(self, stage: Stage, error: Exception, cause: Cause) -> None:
        def train(_job: Assignment, _backend: Backend, _context: Context) -> Done:
            raise error

        last = stage.run(train)

        assert isinstance(last, Failed)
        assert last.cause == cause

    def test_framework_that_sees_no_card_fails_before_it_is_started(self, stage: Stage) -> None:
        # shared case C28: asked for a device, and the framework would quietly use the CPU.
        last = stage.run(train_nothing, FakeBackend(sees=[]))

        assert isinstance(last, Failed)
        assert last.cause == Cause.DEVICE_UNAVAILABLE
        assert last.message == "The framework sees [], not ['GPU-9']."
        assert stage.received() == []

    def test_assignment_of_another_version_is_an_error_too(self, stage: Stage) -> None:
        last = stage.run_raw(b'{"job_id": "job_1"}')

        assert isinstance(last, Failed)
        assert "ValidationError" in last.message

    def test_without_a_worker_it_leaves(self, stage: Stage) -> None:
        stage.close_worker()
        with pytest.raises(WorkerGone):
            stage.run(train_nothing)
