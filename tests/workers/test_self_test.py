"""Case C70: a framework is offered when it computes rightly on the device, and not otherwise."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.fleet.devices import DeviceFacts
from workers import self_test, self_test_child
from workers.backends.base import Backend, load_backend
from workers.model_file.forward import forward
from workers.protocol import Device

ROOT = Path(__file__).parents[2]
SLOT = DeviceFacts(id="cpu-0@host", kind="cpu", name="CPU slot", position=0)
SIMULATED = DeviceFacts(id="GPU-0", kind="cuda", name="Simulated", position=1, simulated=True)
SICK = DeviceFacts(id="GPU-1", kind="cuda", name="Card", position=2, health="unhealthy")
CARD = DeviceFacts(id="GPU-2", kind="cuda", name="Card", position=3)
OTHER = DeviceFacts(id="GPU-3", kind="cuda", name="Card", position=4)
CPU = Device(id="cpu-0@host", kind="cpu", name="CPU")

Program = Callable[[str], Path]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """An interpreter that does something else."""

    def write(lines: str) -> Path:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o755)
        return path

    return write


def environment() -> dict[str, str]:
    return dict(os.environ)


class TestWanted:
    @pytest.mark.parametrize(
        ("choice", "devices", "expected"),
        [
            ("auto", [SLOT, SIMULATED, SICK, CARD, OTHER], [CARD]),
            ("auto", [SLOT, SIMULATED], []),
            ("auto", [SICK], []),
            ("on", [SLOT, SIMULATED, CARD], [CARD]),
            ("on", [SLOT, SIMULATED], [SLOT]),
            ("on", [], []),
            ("off", [CARD], []),
        ],
    )
    def test_a_real_card_that_works_or_with_on_whatever_there_is(
        self, choice: str, devices: list[DeviceFacts], expected: list[DeviceFacts]
    ) -> None:
        assert self_test.wanted(choice, devices) == expected


class TestRun:
    def test_without_a_device_every_framework_is_offered(self) -> None:
        assert self_test.run({"torch": Path("/nowhere"), "tensorflow": Path("/nowhere")}, []) == {
            "torch": None,
            "tensorflow": None,
        }

    def test_torch_computes_here(self) -> None:
        python = {"torch": Path(sys.executable)}
        assert self_test.run(python, [SLOT], environment=environment()) == {"torch": None}

    @pytest.mark.slow
    def test_so_does_tensorflow(self) -> None:
        python = {"tensorflow": Path(sys.executable)}
        assert self_test.run(python, [SLOT], environment=environment()) == {"tensorflow": None}

    def test_card_that_torch_does_not_see_is_a_reason_and_not_a_run_on_the_cpu(self) -> None:
        card = DeviceFacts(id="GPU-aaaaaaaa-0000-0000-0000-000000000001", kind="cuda", name="Card", position=0)
        fault = self_test.run({"torch": Path(sys.executable)}, [card], environment=environment())["torch"]

        assert fault is not None
        assert fault.startswith("The self-test of torch on Card (GPU-aaaaaaaa-0000-0000-0000-000000000001) failed: it ")
        assert "left with exit code 1. DeviceUnavailable: The job holds 1 CUDA device, but torch sees no CUDA" in fault

    def test_it_is_pinned_like_a_trainer(self, program: Program) -> None:
        python = program('echo "$CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER $TF_FORCE_GPU_ALLOW_GROWTH $SECRET"; exit 1')
        base = {"PATH": os.environ["PATH"], "SECRET": "not for trainers"}
        fault = self_test.run({"tensorflow": python}, [CARD], environment=base)["tensorflow"]

        assert str(fault).endswith("exit code 1. GPU-2 PCI_BUS_ID true")

    def test_one_that_hangs_is_ended(self, program: Program) -> None:
        fault = self_test.run({"torch": program("sleep 600")}, [CARD], 0.2, environment=environment())["torch"]

        assert fault == "The self-test of torch on Card (GPU-2) failed: it took longer than 0.2 s."

    def test_one_that_crashes_is_told_by_its_signal_and_its_last_lines(self, program: Program) -> None:
        python = program("for n in 1 2 3 4; do echo line $n; done; kill -SEGV $$")
        fault = self_test.run({"torch": python}, [CARD], environment=environment())["torch"]

        assert str(fault).endswith("failed: it ended by signal SIGSEGV. line 2 line 3 line 4")

    def test_interpreter_that_is_not_there_is_a_reason(self) -> None:
        fault = self_test.run({"torch": Path("/nowhere/python")}, [CARD], environment=environment())["torch"]

        assert str(fault).startswith("The self-test of torch could not be started: [Errno 2]")

    def test_one_framework_does_not_spoil_the_other(self, program: Program) -> None:
        pythons = {"torch": Path(sys.executable), "tensorflow": program("exit 3")}
        found = self_test.run(pythons, [SLOT], environment=environment())

        assert found["torch"] is None
        assert "exit code 3" in str(found["tensorflow"])


class TestCheck:
    """What the child compares: the framework's own answers with those of NumPy (workers.model_file.forward)."""

    @pytest.fixture
    def torch(self) -> Backend:
        return load_backend("torch")

    def test_right_answers_are_no_fault(self, torch: Backend) -> None:
        assert self_test_child.check(torch, CPU, 1) is None

    def test_wrong_answers_are_told(self, torch: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(self_test_child, "forward", lambda *given: forward(*given) * 1.5)

        assert str(self_test_child.check(torch, CPU, 1)).startswith(
            "Its answers differ from NumPy's by 0.33 of the largest."
        )

    def test_answers_that_are_no_numbers_are_told(self, torch: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(self_test_child, "forward", lambda *given: forward(*given) * np.float32("nan"))

        assert str(self_test_child.check(torch, CPU, 1)).startswith("Its answers differ from NumPy's by nan")
