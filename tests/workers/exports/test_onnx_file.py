"""Our layers as ONNX operators, run by onnxruntime; what it must give is Keras' answer in float64."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.testing import assert_allclose
from safetensors.numpy import load_file

from tests.workers.exports.models import MODELS, VOCABULARY, random_rows, write_model
from workers.exports.onnx_file import check, make
from workers.exports.reference import TOLERANCE
from workers.exports.request import CannotExport, Request
from workers.model_file import encoder_of, predict_rows, read, read_probe


def session_of(folder: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])


def made(folder: Path, output: Path) -> Path:
    assert [vars(file) for file in make.make(Request(folder, output))] == [
        {"name": "model.onnx", "media_type": "application/octet-stream", "kind": "model"}
    ]
    return output


class TestLayers:
    @pytest.mark.parametrize("name", MODELS)
    def test_every_layer_gives_what_keras_gives(self, every_model: dict[str, Path], tmp_path: Path, name: str) -> None:
        folder = every_model[name]
        probe = read_probe(folder)
        assert probe is not None
        expected = load_file(folder / "keras.safetensors")["outputs"]

        (logits,) = session_of(made(folder, tmp_path)).run(["logits"], {"x": probe.x})

        assert_allclose(logits, expected, rtol=0, atol=TOLERANCE * max(1.0, float(np.abs(expected).max())))

    @pytest.mark.parametrize("name", MODELS)
    def test_batch_is_free(self, tmp_path: Path, name: str) -> None:
        shape, layers = MODELS[name]
        session = session_of(made(write_model(tmp_path, layers, shape), tmp_path))
        rows = random_rows(name, 7).astype(np.float32)

        (whole,) = session.run(["logits"], {"x": rows})
        single = [session.run(["logits"], {"x": rows[place : place + 1]})[0][0] for place in range(7)]

        assert_allclose(single, whole, rtol=1e-4, atol=1e-5)

    def test_large_numbers_do_not_overflow_in_softplus(self, tmp_path: Path) -> None:
        shape, layers = MODELS["activation softplus"]
        session = session_of(made(write_model(tmp_path, layers, shape), tmp_path))

        (logits,) = session.run(["logits"], {"x": np.full((1, *shape), 500, np.float32)})

        assert np.isfinite(logits).all()


class TestFile:
    def test_says_what_goes_in_and_comes_out(self, tmp_path: Path) -> None:
        shape, layers = MODELS["conv2d same"]
        model = onnx.load(made(write_model(tmp_path, layers, shape), tmp_path) / "model.onnx")

        def shape_of(value: onnx.ValueInfoProto) -> list[str | int]:
            return [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]

        assert {value.name: shape_of(value) for value in model.graph.input} == {"x": ["batch", 8, 7, 3]}
        assert {value.name: shape_of(value) for value in model.graph.output} == {
            "logits": ["batch", 3],
            "probabilities": ["batch", 3],
        }
        assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 17)]

    def test_weights_keep_their_names(self, tmp_path: Path) -> None:
        shape, layers = MODELS["nested"]
        folder = write_model(tmp_path, layers, shape)
        model = onnx.load(made(folder, tmp_path) / "model.onnx")

        assert {entry.name for entry in model.graph.initializer} == set(read(folder)[1])

    def test_metadata_are_enough_to_encode_rows(self, tmp_path: Path) -> None:
        shape, layers = MODELS["dense"]
        folder = write_model(tmp_path, layers, shape)
        session = session_of(made(folder, tmp_path))
        metadata = session.get_modelmeta().custom_metadata_map
        encoder = encoder_of(folder, read(folder)[0]).from_json(json.loads(metadata["encoder"]))
        rows = [{"pixels": row.tolist()} for row in random_rows("dense")]

        x = encoder.apply(encoder.read_rows(rows).columns).astype(np.float32)
        (probabilities,) = session.run(["probabilities"], {"x": x})

        expected = predict_rows(folder, rows)
        assert expected.probabilities is not None
        assert_allclose(probabilities, expected.probabilities, atol=1e-6)
        labels = [json.loads(metadata["classes"])[place] for place in probabilities.argmax(axis=1)]
        assert labels == expected.labels

    @pytest.mark.parametrize("scaled", [True, False])
    def test_values_of_a_regression_come_in_their_unit(self, tmp_path: Path, *, scaled: bool) -> None:
        shape, layers = MODELS["dense"]
        folder = write_model(tmp_path, layers, shape, task="regression")
        if not scaled:
            described = json.loads((folder / "model.json").read_text())
            (folder / "model.json").write_text(json.dumps(described | {"target_scaling": None}))
        session = session_of(made(folder, tmp_path))

        logits, values = session.run(["logits", "values"], {"x": random_rows("dense").astype(np.float32)})

        assert_allclose(values, logits * 70 + 150 if scaled else logits, rtol=1e-6)

    def test_weights_beyond_one_file_are_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(make, "_LIMIT", 100)
        shape, layers = MODELS["dense"]

        with pytest.raises(CannotExport, match="larger than the 2 GiB that one file of ONNX can hold"):
            make.make(Request(write_model(tmp_path, layers, shape), tmp_path))


class TestCheck:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        shape, layers = MODELS["embedding"]
        x = np.random.default_rng(3).integers(0, VOCABULARY, (4, *shape))
        return made(write_model(tmp_path, layers, shape, x=x), tmp_path)

    def test_good_file_passes(self, folder: Path) -> None:
        check.check(Request(folder, folder))

    def test_weight_that_went_wrong_is_found(self, folder: Path) -> None:
        model = onnx.load(folder / "model.onnx")
        bias = next(entry for entry in model.graph.initializer if entry.name == "output.bias")
        bias.raw_data = (np.frombuffer(bias.raw_data, np.float32) + np.float32(1e-3)).tobytes()
        onnx.save(model, folder / "model.onnx")

        with pytest.raises(CannotExport, match=r"Loaded in onnxruntime, its outputs differ from the model's own by"):
            check.check(Request(folder, folder))

    def test_answer_that_went_wrong_is_found(self, folder: Path) -> None:
        model = onnx.load(folder / "model.onnx")
        node = next(node for node in model.graph.node if node.op_type == "Softmax")
        node.op_type = "LogSoftmax"
        onnx.save(model, folder / "model.onnx")

        with pytest.raises(CannotExport, match="differ from the model's own answers"):
            check.check(Request(folder, folder))

    @pytest.mark.parametrize("content", [b"", b"no protobuf at all", None])
    def test_file_that_does_not_load_is_found(self, folder: Path, content: bytes | None) -> None:
        path = folder / "model.onnx"
        path.write_bytes(path.read_bytes()[:300] if content is None else content)

        with pytest.raises(CannotExport, match="onnxruntime does not load it"):
            check.check(Request(folder, folder))
