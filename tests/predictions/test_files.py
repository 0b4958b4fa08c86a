"""Which stored files make a model."""

import pytest

from app.predictions.files import model_files
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

    @pytest.mark.parametrize("missing", ["model.json", "model.safetensors"])
    def test_without_either_there_is_none(self, asker: Asker, missing: str) -> None:
        with asker.database.write() as session:
            session.connection().exec_driver_sql(f"DELETE FROM artifacts WHERE name = '{missing}'")  # noqa: S608 - fixed
        assert self.names(asker) == []
