"""compare."""

import json
from typing import Any

from app.cli.comparing import differences, measured
from tests.cli.conftest import Trainshed
from tests.cli.fake_server import JOB, OTHER_JOB, FakeServer, job


def with_epochs(epochs: int) -> dict[str, Any]:
    return {"framework": "torch", "name": f"n{epochs}", "hyperparameters": {"epochs": epochs, "batch_size": 32}}


class TestDifferences:
    def test_equal_specs_have_none(self) -> None:
        assert list(differences(with_epochs(3), with_epochs(3))) == []

    def test_the_path_leads_to_the_member_and_names_do_not_count(self) -> None:
        assert list(differences(with_epochs(3), with_epochs(5))) == [("hyperparameters.epochs", 3, 5)]

    def test_a_member_that_one_lacks_is_none_there(self) -> None:
        assert list(differences({"model": {"hidden": [8]}}, {"model": {"filters": [16]}})) == [
            ("model.hidden", [8], None),
            ("model.filters", None, [16]),
        ]

    def test_an_object_against_a_word_is_one_difference(self) -> None:
        assert list(differences({"schedule": None}, {"schedule": {"name": "cosine"}})) == [
            ("schedule", None, {"name": "cosine"})
        ]


class TestMeasured:
    def test_every_metric_of_either_job_in_order(self) -> None:
        left = {"metrics": {"last": {"loss": 0.5}, "best": {"loss": 0.4}}}
        right = {"metrics": {"last": {"accuracy": 0.9, "loss": 0.3}, "best": None}}
        assert list(measured(left, right)) == [
            ("accuracy", [None, 0.9], [None, None]),
            ("loss", [0.5, 0.3], [0.4, None]),
        ]


class TestCompare:
    def serve(self, server: FakeServer) -> None:
        for job_id, epochs, loss in ((JOB, 3, 0.5), (OTHER_JOB, 5, "NaN")):
            metrics = {"last": {"loss": loss, "val_loss": 0.25}, "best": {"val_loss": 0.25}}
            content = job(job_id, state="succeeded", effective_spec=with_epochs(epochs), metrics=metrics)
            server.on(f"GET /v1/jobs/{job_id}", content)

    def test_shows_what_differs_and_what_came_of_it(self, server: FakeServer, trainshed: Trainshed) -> None:
        self.serve(server)
        ran = trainshed("compare", JOB, OTHER_JOB)
        assert ran.code == 0
        assert "hyperparameters.epochs" in ran.out
        assert "batch_size" not in ran.out
        assert "NaN" in ran.out
        assert "+0" in ran.out

    def test_as_json_it_has_paths_and_values(self, server: FakeServer, trainshed: Trainshed) -> None:
        self.serve(server)
        content = json.loads(trainshed("compare", JOB, OTHER_JOB, "--json").out)
        assert content["jobs"] == [JOB, OTHER_JOB]
        assert content["settings"] == [{"path": "hyperparameters.epochs", "values": [3, 5]}]
        assert content["metrics"][0] == {"name": "loss", "last": [0.5, "NaN"], "best": [None, None]}

    def test_the_same_job_twice_differs_in_nothing(self, server: FakeServer, trainshed: Trainshed) -> None:
        self.serve(server)
        assert "Both were told the same." in trainshed("compare", JOB, JOB).out
