"""How a host's means are found out, and what is said about them."""

import os
import sys
from pathlib import Path

import pytest

from tests.workers.sandboxed import SHUT_IN, sandboxed
from workers.sandbox import FILTER, NAMESPACE, USER_NAMESPACE
from workers.sandbox_probe import isolation, lacking


class TestIsolation:
    def test_it_is_what_a_sandbox_gets_here(self, tmp_path: Path) -> None:
        assert isolation() == sandboxed("how", tmp_path)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
    def test_also_as_a_trainers_user(self) -> None:
        assert isolation(64_322) in (NAMESPACE, USER_NAMESPACE, FILTER)

    def test_interpreter_that_is_none_has_none(self) -> None:
        assert isolation(python=Path("/nowhere/python")) is None

    def test_one_that_fails_has_none(self, tmp_path: Path) -> None:
        broken = tmp_path / "python"
        broken.write_text("#!/bin/sh\nexit 3\n")
        broken.chmod(0o755)

        assert isolation(python=broken) is None

    def test_one_that_hangs_has_none(self, tmp_path: Path) -> None:
        slow = tmp_path / "python"
        slow.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(600)\n")
        slow.chmod(0o755)

        assert isolation(python=slow, timeout_s=0.2) is None

    def test_without_namespaces_the_filter_is_left(self, tmp_path: Path) -> None:
        assert sandboxed("how", tmp_path, SHUT_IN) == FILTER


class TestWhatIsSaid:
    @pytest.mark.parametrize("means", [NAMESPACE, USER_NAMESPACE])
    def test_nothing_is_lacking_with_a_network_of_its_own(self, means: str) -> None:
        assert lacking(means) is None

    def test_filter_has_no_loopback_device(self) -> None:
        said = lacking(FILTER)

        assert said is not None
        assert "no loopback device" in said

    def test_without_any_means_jobs_end(self) -> None:
        said = lacking(None)

        assert said is not None
        assert "environment_failed" in said
