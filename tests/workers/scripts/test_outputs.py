"""What a command leaves becomes artifacts: every file of it, under names that can be kept, or a clear refusal."""

import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from app.archives import Limits, check
from app.artifacts.repository import valid_name
from app.errors import Cause
from tests.workers.scripts.hosted import Hosted, assignment, run
from workers.protocol import Artifact
from workers.scripts.outputs import is_name

BEGIN = """
import os, pathlib
out = pathlib.Path(os.environ["TRAINSHED_OUTPUT_DIR"])
def keep(name, text="x"):
    path = out / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
"""


def left(work_dir: Path, text: str, **changes: Any) -> Hosted:
    return run(work_dir, {"train.py": BEGIN + text, "lib/tool.py": "", "data.txt": "old"}, **changes)


def inside(path: Path) -> dict[str, bytes]:
    check(path, Limits())
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


class TestFiles:
    def test_file_is_an_artifact_as_it_is(self, tmp_path: Path) -> None:
        found = left(tmp_path, "keep('model.txt', 'weights')")

        (artifact,) = found.of(Artifact)
        assert (artifact.name, artifact.path, artifact.kind) == ("model.txt", "outputs/model.txt", "output")
        assert artifact.media_type == "text/plain"
        assert found.outputs["model.txt"].read_text() == "weights"

    def test_folder_is_an_archive_of_its_own(self, tmp_path: Path) -> None:
        found = left(tmp_path, "keep('model/config.json', '{}'); keep('model/parts/one', '1'); keep('log.txt')")

        assert sorted(found.outputs) == ["log.txt", "model.zip"]
        assert inside(found.outputs["model.zip"]) == {"config.json": b"{}", "parts/one": b"1"}

    def test_names_that_no_artifact_has_go_into_one_archive(self, tmp_path: Path) -> None:
        found = left(tmp_path, "keep('my model.bin', '1'); keep('best run/a', '2'); keep('.hidden', '3'); keep('good')")

        assert sorted(found.outputs) == ["files.zip", "good"]
        assert inside(found.outputs["files.zip"]) == {"my model.bin": b"1", "best run/a": b"2", ".hidden": b"3"}

    def test_links_alone_are_no_files_and_that_is_told(self, tmp_path: Path) -> None:
        found = left(tmp_path, "os.symlink('/etc/hostname', out / 'a'); os.symlink('data.txt', out / 'b')")

        assert (found.outputs, found.notices) == ({}, ["output_skipped"])

    def test_output_folder_that_became_a_link_is_refused_with_what_to_do(self, tmp_path: Path) -> None:
        failed = left(tmp_path, "out.rmdir(); os.symlink('/etc', out)").failed

        assert failed.cause is Cause.ARTIFACT_UNREADABLE
        assert "leaves the folder itself in its place" in failed.message

    def test_names_that_are_taken_are_not_overwritten(self, tmp_path: Path) -> None:
        found = left(tmp_path, "keep('files.zip', 'mine'); keep('model.zip', 'mine'); keep('model/a', '1')")

        assert found.outputs["files.zip"].read_text() == "mine"
        assert found.outputs["model.zip"].read_text() == "mine"
        assert inside(found.outputs["files-2.zip"]) == {"model/a": b"1"}

    def test_more_files_than_artifacts_go_into_one_archive(self, tmp_path: Path) -> None:
        found = left(tmp_path, "for n in range(101): keep(f'{n}.txt', str(n))")

        assert list(found.outputs) == ["files.zip"]
        assert inside(found.outputs["files.zip"])["100.txt"] == b"100"

    def test_as_many_files_as_artifacts_stay_what_they_are(self, tmp_path: Path) -> None:
        assert len(left(tmp_path, "for n in range(100): keep(f'{n}.txt')").outputs) == 100

    def test_nothing_is_nothing(self, tmp_path: Path) -> None:
        assert left(tmp_path, "(out / 'empty').mkdir()").outputs == {}

    @pytest.mark.parametrize(
        "name", ["a", "a.b-c_d", "x" * 120, "x" * 121, ".a", "a..b", "a/b", "", "ä", "a b", "-a", "a\n", "9"]
    )
    def test_names_are_those_of_the_storage(self, name: str) -> None:
        assert is_name(name) == valid_name(name)


class TestBesideTheCode:
    def test_new_and_changed_files_count_when_the_output_folder_is_empty(self, tmp_path: Path) -> None:
        text = """
code = pathlib.Path(".")
(code / "model.txt").write_text("new")
(code / "data.txt").write_text("new and longer")
(code / "runs").mkdir()
(code / "runs" / "log").write_text("1")
(code / "__pycache__").mkdir()
(code / "__pycache__" / "train.cpython-311.pyc").write_text("x")
(code / ".cache").write_text("x")
import lib.tool
"""
        found = left(tmp_path, text)

        assert sorted(found.outputs) == ["data.txt", "model.txt", "runs.zip"]
        assert inside(found.outputs["runs.zip"]) == {"log": b"1"}
        assert found.notices == ["outputs_from_code"]

    def test_changed_file_of_the_same_size_counts(self, tmp_path: Path) -> None:
        found = left(tmp_path, "import time; time.sleep(0.02); pathlib.Path('data.txt').write_text('new')")

        assert list(found.outputs) == ["data.txt"]

    def test_they_do_not_count_beside_outputs(self, tmp_path: Path) -> None:
        found = left(tmp_path, "keep('model.txt'); pathlib.Path('beside.txt').write_text('x')")

        assert (list(found.outputs), found.notices) == (["model.txt"], [])

    @pytest.mark.parametrize("text", ["open('huge', 'wb').truncate(1 << 40)", "open('weights.npz', 'wb')"])
    def test_what_nobody_called_an_output_does_not_fail_the_job(self, text: str, tmp_path: Path) -> None:
        found = left(tmp_path, text, success="exit")

        assert (found.done.stopped, found.outputs, found.notices) == (None, {}, ["outputs_from_code"])

    def test_without_a_bundle_everything_there_is_new(self, tmp_path: Path) -> None:
        tmp_path.mkdir(exist_ok=True)
        told = assignment(tmp_path, ["python", "-c", "open('model.txt', 'w').write('x')"])
        host = Hosted(told, {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": ""})
        try:
            assert list(host.finish().outputs) == ["model.txt"]
        finally:
            host.close()


class TestRefused:
    def test_file_that_was_cut_off_is_named(self, tmp_path: Path) -> None:
        text = """
import io, zipfile
buffer = io.BytesIO()
with zipfile.ZipFile(buffer, "w") as archive: archive.writestr("weights", b"1" * 5000)
(out / "model.keras").write_bytes(buffer.getvalue()[:3000])
"""
        found = left(tmp_path, text)

        assert found.failed.cause is Cause.ARTIFACT_UNREADABLE
        assert "'model.keras' is cut off" in found.failed.message
        assert found.outputs == {}

    def test_sparse_terabyte_is_not_read(self, tmp_path: Path) -> None:
        found = left(tmp_path, "keep('a'); open(out / 'huge', 'wb').truncate(1 << 40)")

        assert found.failed.cause is Cause.ARTIFACT_UNREADABLE
        assert "over the limit of 268,435,456; the largest is 'huge'" in found.failed.message

    def test_folder_of_too_many_files_is_not_gone_through(self, tmp_path: Path) -> None:
        text = "(out / 'many').mkdir()\nfor n in range(100_001): os.close(os.open(f'{out}/many/{n}', os.O_CREAT))"
        found = left(tmp_path, text)

        assert found.failed.cause is Cause.ARTIFACT_UNREADABLE
        assert "more than 100,000 output files, seen in 'many'" in found.failed.message

    @pytest.mark.parametrize("how", ["os.symlink('/etc', out)", "os.mkfifo(out)", "None"])
    def test_output_folder_that_was_replaced_is_not_read(self, how: str, tmp_path: Path) -> None:
        found = left(tmp_path, f"out.rmdir()\n{how}")

        assert found.failed.cause is Cause.ARTIFACT_UNREADABLE
        assert "'outputs' cannot be read" in found.failed.message

    def test_links_and_pipes_are_left_out_and_said(self, tmp_path: Path) -> None:
        text = "keep('good'); os.symlink('/etc/passwd', out / 'link'); os.mkfifo(out / 'pipe')"
        found = left(tmp_path, text)

        assert (list(found.outputs), found.notices) == (["good"], ["output_skipped"])

    def test_outputs_of_a_command_that_failed_are_none(self, tmp_path: Path) -> None:
        assert left(tmp_path, "keep('half'); raise SystemExit(1)").outputs == {}
