"""The worker's side of an export, with real processes; interpreters that misbehave stand for what can go wrong."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from safetensors.numpy import load_file, save_file

from tests.workers.exports.models import MODELS, random_rows, write_model
from workers.exports import ExportedFile, ExportFailed, Limits, run
from workers.model_file import PROBE_NAME

SERIES = {"loss": {"step": [10, 20], "epoch": [1, 2], "value": [0.5, "NaN"], "attempt": [1, 1], "total": 2}}
"""As `asdict(app.jobs.metrics.Series)` gives it."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shape, layers = MODELS["dense"]
    return write_model(tmp_path / "model", layers, shape, x=random_rows("dense"))


def interpreter(tmp_path: Path, lines: str) -> Path:
    """A Python that runs these lines first, with `arguments`; unless they end it, it goes on as it should."""
    path = tmp_path / "python"
    path.write_text(
        f"#!{sys.executable}\n"
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "arguments = sys.argv[1:]\n"
        f"{lines}\n"
        f"os.execv({sys.executable!r}, [{sys.executable!r}, *arguments])\n"
    )
    path.chmod(0o755)
    return path


class TestRun:
    def test_file_is_made_checked_and_left_alone_in_the_folder(self, folder: Path, tmp_path: Path) -> None:
        files = run("onnx", folder, tmp_path / "out")

        expected = tmp_path / "out" / "model.onnx"
        assert files == [ExportedFile("model.onnx", expected, "application/octet-stream", "model")]
        assert list((tmp_path / "out").iterdir()) == [expected]
        assert onnxruntime.InferenceSession(expected).get_inputs()[0].name == "x"

    def test_report_and_events_take_the_jobs_series(self, folder: Path, tmp_path: Path) -> None:
        evaluation = tmp_path / "evaluation.json"
        evaluation.write_text(json.dumps({"epoch": 1, "step": 10, "validation": {"rows": 0}, "test": {"rows": 0}}))

        report = run("report", folder, tmp_path, series=SERIES, evaluation=evaluation)
        events = run("tensorboard", folder, tmp_path, series=SERIES)

        assert [(file.name, file.media_type, file.kind) for file in report] == [
            ("report.png", "image/png", "report"),
            ("metrics.csv", "text/csv", "report"),
        ]
        assert (tmp_path / "metrics.csv").read_text() == "step,epoch,loss\n10,1,0.5\n20,2,NaN\n"
        assert [file.name for file in events] == ["events.out.tfevents.trainshed"]

    def test_names_in_any_script_reach_the_report(self, tmp_path: Path) -> None:
        shape, layers = MODELS["dense"]
        folder = write_model(tmp_path / "模型", layers, shape)
        labels = ["$x^{", "赤い花", "blå"]
        classes = [{"label": label, "rows": 1, "f1": 1.0} for label in labels]
        part = {"rows": 3, "metrics": {}, "classes": classes, "confusion_matrix": np.eye(3, dtype=int).tolist()}
        (tmp_path / "evaluation.json").write_text(json.dumps({"test": part}))

        files = run("report", folder, tmp_path / "out", evaluation=tmp_path / "evaluation.json")

        assert [file.name for file in files] == ["report.png", "metrics.csv"]

    def test_another_export_into_the_same_folder_replaces_the_file(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "metrics.csv").write_text("old")

        run("report", folder, tmp_path / "out", series=SERIES)

        assert (tmp_path / "out" / "metrics.csv").read_text().startswith("step,epoch")


class TestFailures:
    def test_outputs_unlike_the_frameworks_leave_no_file(self, folder: Path, tmp_path: Path) -> None:
        probe = load_file(folder / PROBE_NAME)
        save_file({**probe, "outputs": probe["outputs"] + np.float32(0.01)}, folder / PROBE_NAME)

        with pytest.raises(
            ExportFailed, match=r"The export 'onnx' failed: Loaded in onnxruntime, its outputs differ"
        ) as e:
            run("onnx", folder, tmp_path / "out")
        assert e.value.code == "artifact_unreadable"
        assert list((tmp_path / "out").iterdir()) == []

    def test_file_that_does_not_load_afterwards_leaves_no_file(self, folder: Path, tmp_path: Path) -> None:
        """Case C52: a load that fails in the fresh process fails the export, with the reason."""
        breaking = interpreter(
            tmp_path,
            "if '--check' in arguments:\n"
            "    Path(arguments[arguments.index('--output') + 1], 'model.onnx').write_bytes(b'broken')",
        )

        with pytest.raises(ExportFailed, match="onnxruntime does not load it"):
            run("onnx", folder, tmp_path / "out", interpreter=breaking)
        assert list((tmp_path / "out").iterdir()) == []

    def test_model_that_cannot_be_read_says_why(self, folder: Path, tmp_path: Path) -> None:
        (folder / "model.safetensors").unlink()

        with pytest.raises(ExportFailed, match=r"cannot be used: No such file or directory: 'model\.safetensors'"):
            run("onnx", folder, tmp_path)

    def test_evaluation_that_is_none_says_so(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "evaluation.json").write_text("[]")

        with pytest.raises(ExportFailed, match="evaluation of the model cannot be read"):
            run("report", folder, tmp_path, evaluation=tmp_path / "evaluation.json")

    def test_interpreter_that_is_not_there_is_named(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(ExportFailed, match=r"The interpreter .*absent does not start: No such file"):
            run("onnx", folder, tmp_path, interpreter=tmp_path / "absent")

    def test_interpreter_without_the_package_names_it(self, folder: Path, tmp_path: Path) -> None:
        lacking = interpreter(
            tmp_path,
            "code = 'import sys; sys.modules[\"onnx\"] = None; sys.argv[1:] = sys.argv[1:]; '"
            "       'from workers.exports.__main__ import main; sys.exit(main(sys.argv[1:]))'\n"
            "arguments = ['-P', '-c', code, *arguments[3:]]",
        )

        with pytest.raises(ExportFailed, match=r"The package 'onnx' is not installed in .* the extra 'worker'"):
            run("onnx", folder, tmp_path, interpreter=lacking)

    def test_process_that_takes_too_long_is_ended(self, folder: Path, tmp_path: Path) -> None:
        slow = interpreter(tmp_path, "time.sleep(60)")

        with pytest.raises(ExportFailed, match=r"It took longer than 0\.2 s"):
            run("onnx", folder, tmp_path / "out", interpreter=slow, limits=Limits(timeout_s=0.2))
        assert list((tmp_path / "out").iterdir()) == []  # and no process: the leak police looks

    def test_process_that_is_killed_is_told(self, folder: Path, tmp_path: Path) -> None:
        killed = interpreter(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")

        with pytest.raises(ExportFailed, match="ended by SIGKILL; perhaps the memory was full"):
            run("onnx", folder, tmp_path, interpreter=killed)

    @pytest.mark.parametrize(
        ("lines", "reason"),
        [
            ("sys.exit('broken here')", "Its process ended with status 1: broken here"),
            ("os._exit(3)", "Its process ended with status 3: it said nothing"),
        ],
    )
    def test_last_words_of_a_process_are_told(self, folder: Path, tmp_path: Path, lines: str, reason: str) -> None:
        with pytest.raises(ExportFailed, match=reason):
            run("onnx", folder, tmp_path, interpreter=interpreter(tmp_path, lines))

    @pytest.mark.parametrize(
        ("instead", "reason"),
        [
            ("bytearray(2**32)", r"It needs more than 1\.0 GiB of memory"),
            ("socket.socket(socket.AF_INET)", r"PermissionError: .* Operation not permitted"),
            ("{}['absent' if 'TRAINSHED_SECRET' not in os.environ else 'there']", "KeyError: 'absent'"),
        ],
    )
    def test_process_has_limits_no_network_and_no_secrets(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instead: str, reason: str
    ) -> None:
        """The process does this in place of an export."""
        monkeypatch.setenv("TRAINSHED_SECRET", "s3cret")
        lines = (
            "import os, socket, sys; import workers.exports.__main__ as m; "
            f"m._do = lambda *a, **k: {instead}; sys.exit(m.main(sys.argv[1:]))"
        )
        other = interpreter(tmp_path, f"arguments = ['-P', '-c', {lines!r}, *arguments[3:]]")

        with pytest.raises(ExportFailed, match=reason):
            run("onnx", folder, tmp_path, interpreter=other, limits=Limits(memory_bytes=2**30))
