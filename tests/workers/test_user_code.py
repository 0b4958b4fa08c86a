"""What a trainer does before it imports anything of a user's."""

import os
import sys
from pathlib import Path

import pytest

from app.archives import ArchiveTooLarge
from tests.e2e.scripts import bundle
from tests.workers.training_jobs import builtin_job
from workers.protocol import ArchiveLimits, Assignment
from workers.user_code import prepare_user_code

LIMITS = ArchiveLimits(entries=10, total_bytes=1000, file_bytes=1000, ratio=200)


def job(work_dir: Path, **changes: object) -> Assignment:
    return builtin_job(work_dir).model_copy(update=changes)


def archive(folder: Path, files: dict[str, str | bytes]) -> str:
    path = folder / "bundle.zip"
    path.write_bytes(bundle(files))
    return str(path)


class TestCode:
    def test_bundle_is_unpacked_into_its_folder(self, tmp_path: Path) -> None:
        packed = archive(tmp_path, {"nets/__init__.py": "", "nets/small.py": "x = 1\n"})

        prepare_user_code(job(tmp_path, bundle=packed, archive=LIMITS, code=str(tmp_path / "code")))

        assert (tmp_path / "code" / "nets" / "small.py").read_text() == "x = 1\n"

    def test_limits_of_the_host_hold(self, tmp_path: Path) -> None:
        packed = archive(tmp_path, {"large.bin": bytes(2000)})

        with pytest.raises(ArchiveTooLarge):
            prepare_user_code(job(tmp_path, bundle=packed, archive=LIMITS, code=str(tmp_path / "code")))

        assert not (tmp_path / "code").exists()

    def test_job_without_code_is_left_alone(self, tmp_path: Path) -> None:
        before = (dict(os.environ), list(sys.path))

        prepare_user_code(job(tmp_path))

        assert (dict(os.environ), sys.path) == before
        assert list(tmp_path.iterdir()) == []


class TestVariables:
    def test_they_are_set(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GREETING", "before")

        prepare_user_code(job(tmp_path, variables={"GREETING": "hello"}))

        assert os.environ["GREETING"] == "hello"


class TestPackages:
    def test_those_of_the_environment_are_found_before_the_trainers_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        packages = tmp_path / "lib" / version / "site-packages"
        packages.mkdir(parents=True)
        monkeypatch.setattr(sys, "path", [*sys.path])
        own = next(index for index, path in enumerate(sys.path) if path.endswith("site-packages"))

        prepare_user_code(job(tmp_path, packages=str(tmp_path / "bin" / "python")))

        assert sys.path.index(str(packages)) == own

    def test_environment_that_is_gone_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            prepare_user_code(job(tmp_path, packages=str(tmp_path / "bin" / "python")))
