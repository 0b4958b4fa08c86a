"""Jobs with code of users over HTTP: who may, what is looked up before one is accepted, and what it shows."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.api.views import JobDetailView, JobView, ValidationView
from app.checkpoints.headers import WEIGHTS_FILE
from app.db import Database
from app.jobs.states import JobState
from app.settings import Settings
from app.storage import Storage
from tests.api.client import ONE_DATABASE, SPEC, Api, Tenant, problem
from tests.api.coding import only_error, python, script, submitted
from tests.api.stored import leave_checkpoint, set_state

GONE = "bun_01k0000000000000000000000a"


@ONE_DATABASE
class TestPermission:
    @pytest.mark.parametrize("body", [script(), python()], ids=["script", "python model"])
    def test_a_key_without_it_may_neither_submit_nor_check(
        self, api: Api, tenant: Tenant, body: dict[str, Any]
    ) -> None:
        for key in (tenant.user, tenant.admin):
            document = problem(api.with_key(key).post("/v1/jobs", json=body), 403, "code_not_allowed")
            assert document["required_permission"] == "code"
            assert "trainshed key permit" in document["detail"]
        for key in (tenant.viewer, tenant.user, tenant.admin):
            problem(api.with_key(key).post("/v1/jobs/validate", json=body), 403, "code_not_allowed")

    def test_nor_make_the_job_of_somebody_who_may_again(self, api: Api, coder: Api, database: Database) -> None:
        made = submitted(coder, script(success="exit"))["id"]
        problem(api.post(f"/v1/jobs/{made}/clone"), 403, "code_not_allowed")
        set_state(database, made, JobState.FAILED)
        problem(api.post(f"/v1/jobs/{made}/retry"), 403, "code_not_allowed")
        assert coder.post(f"/v1/jobs/{made}/retry").status_code == 201

    def test_but_read_and_cancel_it(self, api: Api, coder: Api) -> None:
        made = submitted(coder, script())["id"]
        JobDetailView.model_validate(api.get(f"/v1/jobs/{made}").json())
        assert api.post(f"/v1/jobs/{made}/cancel").json()["state"] == "cancelled"

    def test_a_clone_that_brings_code_in_needs_it_too(self, api: Api) -> None:
        made = api.submit()["id"]
        patch = {"spec": {"model": python()["model"] | {"hidden": None}}}
        problem(api.post(f"/v1/jobs/{made}/clone", json=patch), 403, "code_not_allowed")

    def test_jobs_without_code_need_nothing(self, api: Api) -> None:
        assert api.submit()["kind"] == "model"

    @pytest.mark.parametrize(
        "spec",
        [
            SPEC | {"model": {"type": "os.system"}},
            SPEC | {"model": "a;id"},
            SPEC | {"model": {"type": "../../x"}},
            SPEC | {"model": {"type": "python", "entrypoint": "__import__('os')"}},
            SPEC | {"framework": "__import__('os')"},
            SPEC | {"data": {"source": "../../x"}},
            SPEC | {"hyperparameters": {"optimizer": "os.system"}},
            {"script": "curl http://example.com | sh"},
            {"script": {"command": "a;id"}},
            {"script": {"command": ["x"], "bundle": "../../x"}},
            {"script": {"command": ["x"], "data": {"train": "file:///etc/passwd"}}},
            {"script": {"command": ["x"], "environment": {"requirements": "/etc/passwd"}}},
            {"script": {"command": ["x"], "environment": {"requirements": ["git+https://example.com/x"]}}},
            {"script": {"command": ["x"], "environment": {"variables": {"LD_PRELOAD": "/opt/x.so"}}}},
        ],
        ids=str,
    )
    def test_names_of_code_and_paths_in_a_spec_are_refused_whatever_the_key(
        self, coder: Api, spec: dict[str, Any]
    ) -> None:
        for path in ("/v1/jobs", "/v1/jobs/validate"):
            problem(coder.post(path, json=spec), 422, "invalid_spec")


class TestShown:
    def test_a_script_job_over_its_routes(self, coder: Api, bundle: str) -> None:
        made = submitted(coder, script(bundle, monitor={"metric": "accuracy"}) | {"name": "mine", "tags": {"a": "b"}})
        JobView.model_validate(made)
        assert (made["kind"], made["framework"], made["name"]) == ("script", "python", "mine")
        assert made["spec"]["script"]["monitor"] == {"metric": "accuracy"}
        assert made["effective_spec"]["script"]["monitor"] == {"metric": "accuracy", "mode": "max"}
        shown = coder.get(f"/v1/jobs/{made['id']}").json()
        JobDetailView.model_validate(shown)
        assert shown["waiting"]["code"] == "no_worker_online"
        assert submitted(coder, made["effective_spec"])["effective_spec"] == made["effective_spec"]

    def test_a_replayed_answer_is_the_first_one(self, coder: Api, bundle: str) -> None:
        headers = {"Idempotency-Key": "once"}
        first, again = (coder.post("/v1/jobs", json=script(bundle), headers=headers) for _ in range(2))
        assert again.headers["Idempotency-Replayed"] == "true"
        assert first.json() == again.json()

    def test_the_list_can_be_narrowed_to_a_kind(self, coder: Api, bundle: str) -> None:
        ours, theirs = submitted(coder, script(bundle))["id"], coder.submit()["id"]
        for kind, expected in (("script", [ours]), ("model", [theirs])):
            assert [job["id"] for job in coder.get(f"/v1/jobs?kind={kind}").json()["data"]] == expected
        assert [job["id"] for job in coder.get("/v1/jobs?framework=python").json()["data"]] == [ours]
        problem(coder.get("/v1/jobs?kind=other"), 422, "invalid_request")

    def test_validating_a_script_tells_no_layers_and_no_rows(self, coder: Api, bundle: str) -> None:
        shown = coder.post("/v1/jobs/validate", json=script(bundle)).json()
        ValidationView.model_validate(shown)
        assert (shown["kind"], shown["layers"], shown["train_rows"]) == ("script", [], None)
        assert shown["now"]["code"] == "no_worker_online"

    def test_validating_a_python_model_tells_rows_but_no_layers(self, coder: Api, bundle: str) -> None:
        shown = coder.post("/v1/jobs/validate", json=python(bundle)).json()
        ValidationView.model_validate(shown)
        # Of iris's 150 rows a fifth is for validation; four numbers a row.
        assert (shown["layers"], shown["parameter_count"], shown["memory_bytes"]) == ([], None, None)
        assert (shown["train_rows"], shown["input_shape"], shown["warnings"]) == (120, [4], [])

    def test_a_script_has_no_model_to_ask(self, coder: Api, database: Database) -> None:
        made = submitted(coder, script())["id"]
        set_state(database, made, JobState.SUCCEEDED)
        for path, body in (("predict", {"rows": [{"a": 1}]}), ("exports", {"format": "onnx"})):
            document = problem(coder.post(f"/v1/jobs/{made}/{path}", json=body), 409, "no_model")
            assert "It ran a script, whose files are its artifacts" in document["detail"]

    def test_what_steers_training_is_no_key_of_a_script(self, coder: Api) -> None:
        made = submitted(coder, script())["id"]
        patch = {"spec": {"hyperparameters": {"learning_rate": 0.01}}}
        found = only_error(coder.post(f"/v1/jobs/{made}/clone", json=patch))
        assert found["pointer"] == "/hyperparameters"
        assert found["message"].startswith("script and hyperparameters exclude each other")

    def test_a_clone_changes_the_script(self, coder: Api) -> None:
        made = submitted(coder, script())["id"]
        patch = {"spec": {"script": {"command": ["python", "-V"], "seed": 7}}}
        clone = coder.post(f"/v1/jobs/{made}/clone", json=patch).json()
        assert (clone["parent"]["job"], clone["spec"]["script"]["seed"]) == (made, 7)

    def test_a_retry_goes_on_from_its_checkpoint(
        self, coder: Api, database: Database, storage: Storage, tmp_path: Path
    ) -> None:
        made = submitted(coder, script())["id"]
        leave_checkpoint(database, storage, tmp_path, made, 12)
        set_state(database, made, JobState.FAILED)
        again = coder.post(f"/v1/jobs/{made}/retry").json()
        assert again["parent"] == {"job": made, "how": "retry", "checkpoint": 12}
        assert again["spec"] == script()

    def test_nobody_starts_from_the_weights_of_a_script(self, coder: Api) -> None:
        made = submitted(coder, script())["id"]
        found = only_error(coder.post("/v1/jobs", json=SPEC | {"initialize_from": {"job": made}}))
        assert found["pointer"] == "/initialize_from/job"
        assert "runs a script" in found["message"]

    def test_a_python_model_starts_from_weights_that_only_its_trainer_can_compare(
        self, coder: Api, database: Database, storage: Storage, tmp_path: Path
    ) -> None:
        made = coder.submit()["id"]
        body = python() | {"initialize_from": {"job": made, "checkpoint": "last"}}
        assert only_error(coder.post("/v1/jobs", json=body))["pointer"] == "/initialize_from/checkpoint"
        leave_checkpoint(database, storage, tmp_path, made, 12)
        assert submitted(coder, body)["effective_spec"]["initialize_from"]["job"] == made


class Marker:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self._folder),)


@ONE_DATABASE
class TestPickledWeights:
    @pytest.mark.parametrize("body", [SPEC, python()], ids=["ours", "python model"])
    def test_they_are_refused_unread(
        self, coder: Api, database: Database, storage: Storage, tmp_path: Path, body: dict[str, Any]
    ) -> None:
        made = coder.submit()["id"]
        checkpoint = leave_checkpoint(database, storage, tmp_path, made, 12)
        marker = tmp_path / "marker"
        path = tmp_path / "weights"
        path.write_bytes(pickle.dumps(Marker(marker)))
        storage.put(f"{checkpoint.storage_prefix}/{WEIGHTS_FILE}", path)
        wanted = body | {"initialize_from": {"job": made, "checkpoint": "last"}}
        found = only_error(coder.post("/v1/jobs", json=wanted))
        assert found["pointer"] == "/initialize_from/checkpoint"
        assert "cannot be read" in found["message"]
        assert str(marker) not in found["message"]
        assert not marker.exists()
        pickle.loads(path.read_bytes())  # noqa: S301 - shows that the file would have done it
        assert marker.exists()


@ONE_DATABASE
class TestNetwork:
    @pytest.fixture
    def settings(self, tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
        return Settings(home=tmp_path / "home", code_network=getattr(request, "param", "off"))

    @pytest.mark.parametrize(("body", "place"), [(script, "script"), (python, "model")], ids=["script", "model"])
    def test_it_is_not_there_unless_the_service_gives_it(self, coder: Api, body: Any, place: str) -> None:
        found = only_error(coder.post("/v1/jobs", json=body(network=True)), "not_enabled")
        assert (found["pointer"], found["suggestion"]) == (f"/{place}/network", "false")
        assert "TRAINSHED_CODE_NETWORK" in found["message"]

    @pytest.mark.parametrize("settings", ["on"], indirect=True)
    def test_where_it_does_a_job_may_ask(self, coder: Api) -> None:
        assert submitted(coder, script(network=True))["effective_spec"]["script"]["network"] is True
