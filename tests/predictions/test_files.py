"""Which stored files make a model."""

import pytest

from app.artifacts.models import Artifact
from app.predictions.files import is_python_model, model_files
from tests.predictions.asking import Asker, model_row


class TestModelFiles:
    def names(self, asker: Asker) -> list[str]:
        with asker.database.read() as session:
            return [file.name for file in model_files(session, asker.job_id)]

    def test_the_description_and_the_weights_are_a_model(self, asker: Asker) -> None:
        assert self.names(asker) == ["model.json", "model.safetensors"]

    def test_what_helps_to_check_it_comes_along_and_nothing_else(self, asker: Asker) -> None:
        with asker.database.write() as session:
            for name in ("probe.safetensors", "evaluation.json", "report.png", "model.onnx"):
                session.add(model_row(asker.job_id, name))
        assert self.names(asker) == ["evaluation.json", "model.json", "model.safetensors", "probe.safetensors"]

    def test_the_code_of_a_python_model_is_part_of_it(self, asker: Asker) -> None:
        with asker.database.write() as session:
            session.add(model_row(asker.job_id, "code.zip"))
        assert self.names(asker) == ["code.zip", "model.json", "model.safetensors"]

    @pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
    def test_what_a_script_left_is_no_model_of_ours(self, asker: Asker, name: str) -> None:
        with asker.database.write() as session:
            session.get_one(Artifact, (asker.job_id, name)).kind = "output"
        assert self.names(asker) == []

    @pytest.mark.parametrize("missing", ["model.json", "model.safetensors"])
    def test_without_either_there_is_none(self, asker: Asker, missing: str) -> None:
        with asker.database.write() as session:
            session.connection().exec_driver_sql(f"DELETE FROM artifacts WHERE name = '{missing}'")  # noqa: S608 - fixed
        assert self.names(asker) == []


class TestIsPythonModel:
    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            ('{"model": {"type": "python", "entrypoint": "net:build"}}', True),
            ('{"model": {"type": "sequential", "layers": []}}', False),
            ('{"script": {"command": ["python"]}}', False),
            ('{"model": null}', False),
        ],
    )
    def test_only_the_models_type_says_so(self, spec: str, expected: bool) -> None:  # noqa: FBT001 - a case
        assert is_python_model(spec) is expected
