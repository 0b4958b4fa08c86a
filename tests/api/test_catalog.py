"""The catalog: everything a spec can be made of, each with an example that works."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from app.api.catalog_views import CatalogView
from app.db import Database
from app.fleet.models import Worker
from app.spec.catalog import LAYERS, MODELS, OPTIMIZERS, SCHEDULES
from app.tables import BUILTIN
from tests.api.answering import add_online_worker
from tests.api.client import ONE_DATABASE, SPEC, Api
from tests.fakes import FakeClock

pytestmark = ONE_DATABASE


@pytest.fixture
def catalog(api: Api) -> dict[str, Any]:
    content = dict(api.get("/v1/catalog").json())
    CatalogView.model_validate(content)
    return content


class TestCatalog:
    def test_it_has_every_choice(self, catalog: dict[str, Any]) -> None:
        names = {group: [item["name"] for item in found] for group, found in catalog.items() if group != "object"}
        assert names["models"] == list(MODELS)
        assert names["layers"] == list(LAYERS)
        assert names["optimizers"] == list(OPTIMIZERS)
        assert names["schedules"] == list(SCHEDULES)
        assert names["datasets"] == list(BUILTIN)
        assert {"cross_entropy", "mse"} <= set(names["losses"])
        assert {"accuracy", "rmse"} <= set(names["metrics"])

    @pytest.mark.parametrize(
        ("group", "parts"),
        [("models", MODELS), ("layers", LAYERS), ("optimizers", OPTIMIZERS), ("schedules", SCHEDULES)],
    )
    def test_each_example_is_one_of_its_schema(
        self, catalog: dict[str, Any], group: str, parts: dict[str, Any]
    ) -> None:
        for item in catalog[group]:
            TypeAdapter(parts[item["name"]]).validate_python(item["example"])
            assert {"type", "$ref"} & item["schema"].keys(), "of a part that may hold itself it is a reference"
            assert item["description"]

    def test_each_framework_says_which_kinds_of_jobs_it_runs(self, catalog: dict[str, Any]) -> None:
        kinds = {item["name"]: item["kinds"] for item in catalog["frameworks"]}
        assert kinds == {"torch": ["model", "script"], "tensorflow": ["model", "script"], "python": ["script"]}

    def test_each_data_set_can_be_used_as_its_example_says(self, api: Api, catalog: dict[str, Any]) -> None:
        for item in catalog["datasets"]:
            answer = api.post("/v1/jobs/validate", json=SPEC | {"data": item["example"]})
            assert answer.status_code == 200, answer.text
            assert item["default_target"] in item["columns"]

    def test_frameworks_are_online_while_a_worker_that_has_them_is_heard(
        self, api: Api, database: Database, clock: FakeClock
    ) -> None:
        def online() -> dict[str, tuple[bool, int]]:
            clock.advance(2)  # what was seen of the fleet may be a second old
            found = api.get("/v1/catalog").json()["frameworks"]
            return {item["name"]: (item["online"], item["workers"]) for item in found}

        nobody = {"python": (False, 0)}
        assert online() == {"torch": (False, 0), "tensorflow": (False, 0), **nobody}
        worker_id = add_online_worker(database)
        assert online() == {"torch": (True, 1), "tensorflow": (True, 1), **nobody}
        with database.write() as session:
            session.get_one(Worker, worker_id).frameworks = {"torch": {}}
        assert online() == {"torch": (True, 1), "tensorflow": (False, 0), **nobody}
        clock.advance(60)
        assert online() == {"torch": (False, 0), "tensorflow": (False, 0), **nobody}
