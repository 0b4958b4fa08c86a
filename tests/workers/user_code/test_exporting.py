"""Files made of python models by real processes; a linear model's right outputs are products of matrices."""

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.testing import assert_allclose
from safetensors.numpy import load_file, save_file

from tests.workers.user_code.conftest import code_of, launch_in
from tests.workers.user_code.models import KERAS, MEAN, ROWS, SCALE, TORCH, Saved, write_python_model
from workers.exports import ExportedFile, ExportFailed, Limits, run
from workers.exports.onnx_file.names import INPUT, LOGITS, NAME, PROBABILITIES, VALUES
from workers.model_file import PROBE_NAME, softmax
from workers.user_exporter import UserExporter

LIMITS = Limits(timeout_s=240.0)
ON_DATA = TORCH.replace("nn.Linear(*", "Net(*") + (
    "class Net(nn.Linear):\n"
    "    def forward(self, x):\n"
    "        if float(x.sum()) > 1e9:\n"
    "            x = x * 2\n"
    "        return super().forward(x)\n"
)
OWN_LAYER = KERAS.replace("keras.layers.Dense(", "Mine(") + "class Mine(keras.layers.Dense):\n    pass\n"
LIAR = """
import json, os, shutil, time

def build(*, input_shape, output_units):
    os.mkdir("made")
    {make}
    made = {{"name": "model.onnx", "media_type": "application/octet-stream", "kind": "model"}}
    line = json.dumps({{"made": made}}).encode()
    for number in range(3, 100):
        path = f"/proc/self/fd/{{number}}"
        if os.path.lexists(path) and os.readlink(path).startswith("socket:"):
            os.write(number, line + bytes([10]))
    time.sleep(1000)
"""


def export(folder: Path, saved: Saved, form: Any = "onnx", framework: str = "torch", **options: Any) -> ExportedFile:
    (made,) = UserExporter(launch_in(folder), code_of(framework), run, **options)(
        form, saved.folder, folder / "out", limits=LIMITS
    )
    assert list((folder / "run" / "work").iterdir()) == []
    return made


def reason(folder: Path, saved: Saved, form: Any = "onnx", framework: str = "torch", **options: Any) -> str:
    with pytest.raises(ExportFailed) as caught:
        export(folder, saved, form, framework, **options)
    assert not (folder / "out").exists() or list((folder / "out").iterdir()) in ([], [folder / "out" / f"model.{form}"])
    assert list((folder / "run" / "work").iterdir()) == []
    return str(caught.value)


def answers(path: Path, rows: int) -> Mapping[str, Any]:
    session = onnxruntime.InferenceSession(path)
    x = np.array([list(row.values()) for row in ROWS[:rows]], np.float32)
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, {INPUT: x}), strict=True))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Saved, ExportedFile]:
    """A model, and what was made of it."""
    folder = tmp_path_factory.mktemp("exported")
    saved = write_python_model(folder / "model")
    return saved, export(folder, saved)


class TestOnnx:
    def test_another_program_gives_the_models_own_answers(self, exported: tuple[Saved, ExportedFile]) -> None:
        saved, made = exported
        assert (made.name, made.kind) == (NAME, "model")
        for rows in (1, 2):
            found, expected = answers(made.path, rows), saved.logits(ROWS[:rows])
            assert_allclose(found[LOGITS], expected, rtol=1e-5)
            assert_allclose(found[PROBABILITIES], softmax(expected), rtol=1e-5)

    def test_values_are_in_the_targets_unit_and_the_metadata_say_how_rows_are_encoded(self, tmp_path: Path) -> None:
        saved = write_python_model(tmp_path / "model", task="regression")

        made = export(tmp_path, saved)

        assert_allclose(answers(made.path, 2)[VALUES], saved.logits(ROWS) * SCALE + MEAN, rtol=1e-5)
        metadata = {item.key: item.value for item in onnx.load(made.path).metadata_props}
        description = json.loads((saved.folder / "model.json").read_text())
        assert json.loads(metadata["encoder"]) == description["encoder"]
        assert metadata["format"] == "trainshed-model/3"

    def test_a_model_that_looks_at_its_data_is_refused_with_the_exporters_reason(self, tmp_path: Path) -> None:
        saved = write_python_model(tmp_path / "model", {"net.py": ON_DATA})
        assert "torch's exporter cannot follow the module" in reason(tmp_path, saved)

    def test_a_model_that_answers_otherwise_than_it_was_trained_is_refused(self, tmp_path: Path) -> None:
        saved = write_python_model(tmp_path / "model")
        probe = load_file(saved.folder / PROBE_NAME)
        save_file({**probe, "outputs": probe["outputs"] + np.float32(0.01)}, saved.folder / PROBE_NAME)
        assert "its logits differ from the framework's own by 1.0e-02" in reason(tmp_path, saved)

    def test_without_a_probe_there_is_nothing_to_compare_with(self, tmp_path: Path) -> None:
        assert "no probe" in reason(tmp_path, write_python_model(tmp_path / "model", probe=False))

    def test_code_that_fails_is_told(self, tmp_path: Path) -> None:
        saved = write_python_model(tmp_path / "model", {"net.py": "def build(): raise ValueError('seven')"})
        assert "ValueError: seven" in reason(tmp_path, saved)

    def test_a_file_that_is_larger_than_may_be_stored(self, tmp_path: Path) -> None:
        saved = write_python_model(tmp_path / "model")
        assert "at most 10 are stored" in reason(tmp_path, saved, most_bytes=10)


class TestHostileMakers:
    """The process that runs the user's code says that a file is there, and has put something else in its place."""

    @pytest.mark.parametrize(
        ("make", "told"),
        [
            pytest.param("os.symlink('/etc/passwd', 'made/model.onnx')", "something else than files", id="link"),
            pytest.param("os.mkfifo('made/model.onnx')", "something else than files", id="pipe"),
            pytest.param("os.mkdir('made/model.onnx')", "something else than files", id="folder"),
            pytest.param("os.rmdir('made')", "No such file", id="nothing"),
            pytest.param("os.rmdir('made'); os.symlink('/etc', 'made')", "not a folder", id="folder by a link"),
            pytest.param("open('made/model.onnx', 'wb').write(bytes(100))", "does not load it", id="no model"),
        ],
    )
    def test_it_is_not_taken(self, tmp_path: Path, make: str, told: str) -> None:
        saved = write_python_model(tmp_path / "model", {"net.py": LIAR.format(make=make)})
        assert told in reason(tmp_path, saved)

    def test_the_model_of_somebody_else_is_not_taken_for_this_one(
        self, tmp_path: Path, exported: tuple[Saved, ExportedFile]
    ) -> None:
        _, other = exported
        make = "shutil.copy(os.path.join(os.path.dirname(__file__), 'data'), 'made/model.onnx')"
        saved = write_python_model(tmp_path / "model", {"net.py": LIAR.format(make=make)}, seed=1)
        with zipfile.ZipFile(saved.folder / "code.zip", "a") as archive:
            archive.write(other.path, "data")
        _sign(saved)
        assert "differ from the framework's own" in reason(tmp_path, saved)


@pytest.mark.slow
class TestKeras:
    def test_keras_loads_it_in_safe_mode_with_the_models_own_answers(self, tmp_path: Path) -> None:
        made = export(tmp_path, write_python_model(tmp_path / "model", framework="tensorflow"), "keras", "tensorflow")

        with zipfile.ZipFile(made.path) as archive:  # loaded and compared already, by the process that checks
            layers = [layer["class_name"] for layer in json.loads(archive.read("config.json"))["config"]["layers"]]
        assert layers == ["InputLayer", "Dense"]

    @pytest.mark.full
    def test_a_class_of_the_users_is_not_in_the_file(self, tmp_path: Path) -> None:
        saved = write_python_model(tmp_path / "model", {"net.py": OWN_LAYER}, framework="tensorflow")
        with zipfile.ZipFile(saved.folder / "code.zip") as archive:
            assert b"class Mine" in archive.read("net.py")
        # The layer is called `mine` after its class, and so are its weights.
        weights = load_file(saved.folder / "model.safetensors")
        named = {name.replace("dense", "mine"): value for name, value in weights.items()}
        save_file(named, saved.folder / "model.safetensors")
        _sign(saved)

        told = reason(tmp_path, saved, "keras", "tensorflow")

        assert "Keras does not load it" in told
        assert "a class or a function of yours is not in the file" in told


class TestPlainFormats:
    def test_no_code_is_run_for_what_was_measured(self, tmp_path: Path) -> None:
        saved = write_python_model(tmp_path / "model", {"net.py": "raise RuntimeError"})
        made = UserExporter(launch_in(tmp_path), code_of(), run)("report", saved.folder, tmp_path / "out", series={})
        assert {file.name for file in made} == {"report.png", "metrics.csv"}
        made = run("tensorboard", saved.folder, tmp_path / "out", series={})
        assert [file.name for file in made] == ["events.out.tfevents.trainshed"]
        assert not (tmp_path / "run").exists()

    def test_nor_for_what_is_made_of_our_own_layers(self, tmp_path: Path) -> None:
        saved = write_python_model(tmp_path / "model", {"net.py": "raise RuntimeError"})
        with pytest.raises(ExportFailed, match="the user's own code"):
            run("onnx", saved.folder, tmp_path / "out")


def _sign(saved: Saved) -> None:
    """Write the digests of changed files into the description, as whoever runs in the trainer could."""
    path = saved.folder / "model.json"
    description = json.loads(path.read_text())
    description["python"]["code"]["sha256"] = hashlib.sha256((saved.folder / "code.zip").read_bytes()).hexdigest()
    description["weights"]["sha256"] = hashlib.sha256((saved.folder / "model.safetensors").read_bytes()).hexdigest()
    path.write_text(json.dumps(description))
