"""`.ci/run` in a small checkout whose Makefile plays each outcome."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PASSED = "=================== 12 passed, 1 skipped in 3.45s ==================="
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}
FAILED = "=================== 1 failed, 11 passed in 3.45s ==================="


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    return tmp_path


def run(checkout: Path, *, setup: str = "@true", check: str = "@true", test: str) -> subprocess.CompletedProcess[str]:
    text = f"setup:\n\t{setup}\ncheck:\n\t{check}\ntest:\n\t{test}\n"
    (checkout / "Makefile").write_text(text, encoding="utf-8")
    return subprocess.run(
        ["/bin/bash", ".ci/run"],
        cwd=checkout,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=ENVIRONMENT,
        text=True,
        check=False,
    )


class TestOutcome:
    def test_passes_when_all_pass_and_closes_with_the_runner_s_line(self, checkout: Path) -> None:
        done = run(checkout, test=f"@echo '{PASSED}'")
        assert done.returncode == 0
        assert done.stdout.splitlines()[-1] == PASSED

    def test_failing_test_fails_and_closes_with_the_runner_s_line(self, checkout: Path) -> None:
        done = run(checkout, test=f"@echo '{FAILED}'; exit 1")
        assert done.returncode == 1
        assert done.stdout.splitlines()[-1] == FAILED

    def test_failing_check_fails_and_the_tests_run_all_the_same(self, checkout: Path) -> None:
        done = run(checkout, check="@exit 1", test=f"@echo '{PASSED}'")
        assert done.returncode == 1
        assert done.stdout.splitlines()[-1] == PASSED

    def test_failing_setup_ends_it(self, checkout: Path) -> None:
        done = run(checkout, setup="@exit 1", test=f"@echo '{PASSED}'")
        assert done.returncode == 1
        assert PASSED not in done.stdout

    def test_runner_that_ran_no_test_fails(self, checkout: Path) -> None:
        # pytest exits with 5 when it collected nothing.
        done = run(checkout, test="@echo '======== no tests ran in 0.01s ========'; exit 5")
        assert done.returncode == 1
        assert done.stdout.splitlines()[-1] == "======== no tests ran in 0.01s ========"

    def test_log_is_kept_and_starts_anew(self, checkout: Path) -> None:
        run(checkout, test="@echo first")
        run(checkout, test="@echo second")
        log = (checkout / "build/ci.log").read_text(encoding="utf-8")
        assert "second" in log
        assert "first" not in log

    def test_works_from_any_folder(self, checkout: Path) -> None:
        (checkout / "Makefile").write_text("setup check test:\n\t@true\n", encoding="utf-8")
        done = subprocess.run(["/bin/bash", str(checkout / ".ci/run")], cwd="/", check=False, capture_output=True)
        assert done.returncode == 0


class TestFile:
    def test_is_executable(self) -> None:
        assert (ROOT / ".ci/run").stat().st_mode & stat.S_IXUSR

    def test_is_strict_bash(self) -> None:
        lines = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
        assert lines[0] == "#!/usr/bin/env bash"
        assert "set -euo pipefail" in lines

    def test_runs_the_real_targets(self) -> None:
        text = (ROOT / ".ci/run").read_text(encoding="utf-8")
        assert "for target in setup check test" in text

    def test_pre_commit_is_the_same_gate(self) -> None:
        config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
        (repository,) = config["repos"]
        (hook,) = repository["hooks"]
        assert repository["repo"] == "local"
        assert hook["entry"] == "make check"
