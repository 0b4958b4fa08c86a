"""Faults of driver, toolkit and frameworks, with NVIDIA's library replaced by a stand-in."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from app.cli.doctor.findings import Status
from app.cli.doctor.frameworks import NoAnswer, ask
from tests.cli.doctor.planting import H200, Host


class TestDriver:
    def test_its_version_and_cards_are_told(self, host: Host) -> None:
        host.with_cards()
        found = host.examine()["driver"]
        assert found.status is Status.OK
        assert found.message == "The driver 580.65 (CUDA 13.0) lists 1 devices."

    @pytest.mark.parametrize("container", [False, True])
    def test_cards_that_were_asked_for_and_are_not_there(self, host: Host, *, container: bool) -> None:
        host.environ["TRAINSHED_DEVICES"] = "cuda"
        host.environ["TRAINSHED_HOST_ID"] = "gpu-box"
        host.with_cards(driver="Driver Not Loaded")
        if container:
            host.write(".dockerenv")
        found = host.examine()["driver"]
        assert found.status is Status.FAULT
        assert "Driver Not Loaded" in found.message
        assert ("docker-compose.gpu.yml" in found.advice) is container

    def test_a_sign_of_cards_without_a_driver_that_answers(self, host: Host) -> None:
        host.write("proc/driver/nvidia/version")
        host.with_cards(driver="Unknown Error")
        assert "should have NVIDIA cards (/proc/driver/nvidia exists)" in host.faults()["driver"]

    def test_a_card_on_the_bus_without_any_driver(self, host: Host) -> None:
        # 0x10de is NVIDIA's vendor number, 0x030200 a 3D controller: the PCI ID repository.
        host.write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
        host.write("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n")
        host.with_cards(driver="NVML Shared Library Not Found")
        assert "has an NVIDIA card (0000:01:00.0), but no driver" in host.faults()["driver"]

    def test_a_host_without_any_card_is_well(self, host: Host) -> None:
        host.write("sys/bus/pci/devices/0000:02:00.0/vendor", "0x8086\n")
        host.write("sys/bus/pci/devices/0000:02:00.0/class", "0x030000\n")
        host.with_cards(driver="NVML Shared Library Not Found")
        assert host.faults() == {}

    def test_one_that_hangs_is_not_waited_for(self, host: Host) -> None:
        host.environ["TRAINSHED_DEVICES"] = "cuda"
        host.with_cards()
        host.driver_s = 0.05
        answers = host.nvml.answers
        host.nvml.nvmlDeviceGetCount = lambda: int(answers.wait(20))
        answers.clear()
        try:
            assert "has not answered for 0.05 s" in host.faults()["driver"]
        finally:
            answers.set()

    def test_a_sick_card_is_named_with_its_reason(self, host: Host) -> None:
        host.with_cards(replace(H200, ecc_errors=3))
        assert "3 uncorrectable memory errors" in host.faults()["device.GPU-0"]

    def test_a_card_that_is_lost(self, host: Host) -> None:
        host.with_cards(H200, replace(H200, uuid="GPU-1", pci="00000000:02:00.0", lost=True))
        assert "card 1 does not answer" in host.faults()["driver.cards"]

    def test_simulated_devices_are_a_warning(self, host: Host, tmp_path: Path) -> None:
        host.environ["TRAINSHED_SIMULATED_INVENTORY"] = str(tmp_path / "cards.json")
        assert host.warnings().keys() == {"driver"}


class TestToolkit:
    @pytest.fixture(autouse=True)
    def _docker(self, host: Host, tmp_path: Path) -> None:
        host.with_cards()
        (tmp_path / "bin").mkdir()
        self.tool(tmp_path, "docker")
        host.environ["PATH"] += f":{tmp_path / 'bin'}"

    @staticmethod
    def tool(folder: Path, name: str) -> None:
        path = folder / "bin" / name
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)

    def test_docker_without_it_is_a_warning(self, host: Host) -> None:
        assert host.warnings().keys() == {"toolkit"}

    def test_its_program_is_enough(self, host: Host, tmp_path: Path) -> None:
        self.tool(tmp_path, "nvidia-ctk")
        assert host.examine()["toolkit"].status is Status.OK

    @pytest.mark.parametrize(
        ("path", "text"),
        [("etc/docker/daemon.json", '{"runtimes": {"nvidia": {}}}'), ("etc/cdi/nvidia.yaml", "cdiVersion: 0.6.0\n")],
    )
    def test_docker_s_settings_are_enough(self, host: Host, path: str, text: str) -> None:
        host.write(path, text)
        assert host.examine()["toolkit"].status is Status.OK


class TestFrameworks:
    def test_both_are_told_with_their_versions(self, host: Host) -> None:
        host.interpreter("tensorflow")
        found = host.examine()
        assert [found[f"framework.{name}"].status for name in ("torch", "tensorflow")] == [Status.OK, Status.OK]
        assert "torch 99.1 in " in found["framework.torch"].message

    def test_a_program_that_is_not_there(self, host: Host) -> None:
        host.environ["TRAINSHED_INTERPRETERS"] = '{"torch": "/nonexistent/python"}'
        assert "is not a program" in host.faults()["frameworks"]

    def test_one_that_cannot_be_imported_says_why(self, host: Host) -> None:
        host.program("torch", "echo 'ModuleNotFoundError: No module named torch' >&2; exit 1")
        assert "No module named torch" in host.faults()["framework.torch"]

    def test_another_trainshed_beside_it(self, host: Host) -> None:
        host.interpreter("torch", ours="0.0.1")
        assert "has Trainshed 0.0.1" in host.faults()["framework.torch"]

    def test_no_trainshed_beside_it(self, host: Host) -> None:
        host.interpreter("torch", ours=None)
        assert "has Trainshed not at all" in host.faults()["framework.torch"]

    def test_one_that_is_too_old(self, host: Host) -> None:
        host.interpreter("torch", version="1.13.1+cu117")
        assert "torch 1.13.1+cu117 is installed; this version of Trainshed needs >=" in host.faults()["framework.torch"]

    def test_a_build_without_cuda_where_there_are_cards(self, host: Host) -> None:
        host.with_cards()
        host.interpreter("torch", cuda=None, devices=0)
        assert "built for the CPU alone" in host.faults()["cuda.torch"]

    def test_a_build_without_cuda_is_right_on_a_host_without_cards(self, host: Host) -> None:
        host.interpreter("torch", cuda=None, devices=0)
        assert host.faults() == {}

    def test_a_driver_that_is_too_old_for_it(self, host: Host) -> None:
        # A driver serves every CUDA up to its own major version: CUDA Compatibility, "Minor Version Compatibility".
        host.with_cards(cuda=12040)
        host.interpreter("torch", devices=0)
        assert "built for CUDA 13.0, and driver 580.65 goes up to CUDA 12.4" in host.faults()["cuda.torch"]
        host.interpreter("torch", cuda="12.8")
        assert host.faults() == {}

    def test_cards_that_the_driver_lists_and_it_does_not_see(self, host: Host) -> None:
        host.with_cards()
        host.interpreter("torch", devices=0)
        assert host.faults()["cuda.torch"] == "The driver lists 1 devices, torch sees none."
        host.environ["CUDA_VISIBLE_DEVICES"] = ""
        assert "CUDA_VISIBLE_DEVICES is ''" in host.faults()["cuda.torch"]

    def test_cards_that_it_sees_and_cannot_start(self, host: Host) -> None:
        host.with_cards()
        host.interpreter("torch", error="CUDA driver initialization failed")
        assert "initialization failed" in host.faults()["cuda.torch"]

    def test_a_card_fewer_is_a_warning(self, host: Host) -> None:
        host.with_cards(H200, replace(H200, uuid="GPU-1", pci="00000000:02:00.0"))
        assert "sees 1 of 2" in host.warnings()["cuda.torch"]

    def test_nothing_is_asked_of_cuda_where_it_is_not_used(self, host: Host) -> None:
        host.with_cards()
        host.environ["TRAINSHED_DEVICES"] = "cpu"
        assert "cuda.torch" not in host.examine()


class TestAsk:
    def test_a_real_framework_answers(self) -> None:
        answer = ask("torch", Path(sys.executable), {})
        assert (answer.ours is not None, answer.devices >= 0, answer.error) == (True, True, None)

    def test_one_that_never_answers_is_ended(self, host: Host) -> None:
        path = host.program("torch", "exec sleep 60")
        with pytest.raises(NoAnswer, match=r"no answer within 0\.2 s"):
            ask("torch", path, {"PATH": "/usr/bin:/bin"}, limit_s=0.2)

    def test_an_answer_of_another_shape_is_none(self, host: Host) -> None:
        with pytest.raises(NoAnswer, match="exit code 0"):
            ask("torch", host.program("torch", "echo '[1]'"), {})
