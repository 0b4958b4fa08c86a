"""Who a host is."""

import socket
import uuid
from pathlib import Path

import pytest

from workers.identity import boot_id, host_id


class TestHostId:
    def test_the_setting_goes_first(self, tmp_path: Path) -> None:
        (tmp_path / "machine-id").write_text("abc\n")
        assert host_id(" gpu-box-2 ", tmp_path / "machine-id") == "gpu-box-2"

    def test_then_the_machine_id(self, tmp_path: Path) -> None:
        (tmp_path / "machine-id").write_text("abc\n")
        assert host_id("", tmp_path / "machine-id") == "abc"

    @pytest.mark.parametrize("content", [None, "", "\n"])
    def test_then_the_name(self, tmp_path: Path, content: str | None) -> None:
        if content is not None:
            (tmp_path / "machine-id").write_text(content)
        assert host_id("", tmp_path / "machine-id") == socket.gethostname()

    def test_a_device_id_made_of_it_fits_its_column(self) -> None:
        assert len(f"cpu-1023@{host_id('x' * 500)}") <= 120


class TestBootId:
    def test_it_is_the_kernels(self) -> None:
        assert str(uuid.UUID(boot_id())) == boot_id()

    def test_a_kernel_that_does_not_tell_gives_nothing(self, tmp_path: Path) -> None:
        assert boot_id(tmp_path / "nowhere") == ""
