"""The OpenAPI document: complete, unambiguous, and true."""

import inspect
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from app.api.limits import ARCHIVES, TABLES
from app.api.problems import MEDIA_TYPE, PROBLEMS
from app.api.routing import PERMISSION_KEY
from app.api.views import Problem
from app.db import Database
from app.spec.catalog import entries
from app.spec.examples import CODE_EXAMPLES, EXAMPLES
from tests.api.answering import add_job_with_model, add_online_worker
from tests.api.client import ONE_DATABASE, Api, Tenant

Operation = dict[str, Any]


@pytest.fixture
def document(api: Api) -> dict[str, Any]:
    answer = api.with_key(None).get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    return dict(answer.json())


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, Operation]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def dependencies(dependant: Dependant) -> Iterator[Dependant]:
    for inner in dependant.dependencies:
        yield inner
        yield from dependencies(inner)


@ONE_DATABASE
class TestDependencies:
    def test_none_is_sent_to_a_thread(self, app: FastAPI) -> None:
        # FastAPI does that to each that is no coroutine function; a request then waits for a free thread several times.
        routes = [route for route in app.routes if isinstance(route, APIRoute)]
        calls = {inner.call for route in routes for inner in dependencies(route.dependant)}
        assert len(calls) > 4
        assert {call for call in calls if not inspect.iscoroutinefunction(call)} == set()


def references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


@ONE_DATABASE
class TestDocument:
    def test_lists_exactly_the_routes_that_clients_are_meant_to_use(self, document: dict[str, Any]) -> None:
        assert {(method.upper(), path) for method, path, _ in operations(document)} == {
            ("POST", "/v1/jobs"),
            ("GET", "/v1/jobs"),
            ("POST", "/v1/jobs/validate"),
            ("GET", "/v1/jobs/{job_id}"),
            ("DELETE", "/v1/jobs/{job_id}"),
            ("POST", "/v1/jobs/{job_id}/cancel"),
            ("POST", "/v1/jobs/{job_id}/pause"),
            ("POST", "/v1/jobs/{job_id}/resume"),
            ("POST", "/v1/jobs/{job_id}/retry"),
            ("POST", "/v1/jobs/{job_id}/clone"),
            ("GET", "/v1/jobs/{job_id}/checkpoints"),
            ("GET", "/v1/jobs/{job_id}/checkpoints/{step}/content"),
            ("GET", "/v1/jobs/{job_id}/attempts"),
            ("GET", "/v1/jobs/{job_id}/events"),
            ("GET", "/v1/jobs/{job_id}/metrics"),
            ("GET", "/v1/jobs/{job_id}/logs"),
            ("GET", "/v1/jobs/{job_id}/artifacts"),
            ("GET", "/v1/jobs/{job_id}/artifacts/{name}"),
            ("POST", "/v1/jobs/{job_id}/predict"),
            ("GET", "/v1/predictions/{task_id}"),
            ("POST", "/v1/jobs/{job_id}/exports"),
            ("GET", "/v1/catalog"),
            ("POST", "/v1/datasets"),
            ("GET", "/v1/datasets"),
            ("GET", "/v1/datasets/{dataset_id}"),
            ("DELETE", "/v1/datasets/{dataset_id}"),
            ("GET", "/v1/datasets/{dataset_id}/preview"),
            ("POST", "/v1/bundles"),
            ("GET", "/v1/bundles"),
            ("GET", "/v1/bundles/{bundle_id}"),
            ("GET", "/v1/bundles/{bundle_id}/content"),
            ("DELETE", "/v1/bundles/{bundle_id}"),
            ("GET", "/v1/devices"),
            ("GET", "/v1/workers"),
            ("POST", "/v1/workers/{worker_id}/cordon"),
            ("POST", "/v1/workers/{worker_id}/uncordon"),
            ("POST", "/v1/workers/{worker_id}/drain"),
            ("POST", "/v1/devices/{device_id}/quarantine"),
            ("POST", "/v1/devices/{device_id}/release"),
            ("POST", "/v1/holds"),
            ("GET", "/v1/holds"),
            ("GET", "/v1/holds/{hold_id}"),
            ("PATCH", "/v1/holds/{hold_id}"),
            ("DELETE", "/v1/holds/{hold_id}"),
            ("GET", "/v1/usage"),
            ("GET", "/v1/keys"),
            ("POST", "/v1/keys"),
            ("PATCH", "/v1/keys/{key_id}"),
            ("DELETE", "/v1/keys/{key_id}"),
            ("GET", "/livez"),
            ("GET", "/readyz"),
            ("GET", "/metrics"),
        }

    def test_every_operation_has_an_id_of_its_own_a_summary_and_a_known_tag(self, document: dict[str, Any]) -> None:
        found = [operation for _, _, operation in operations(document)]
        ids = Counter(operation["operationId"] for operation in found)
        assert [name for name, count in ids.items() if count > 1] == []
        tags = {tag["name"] for tag in document["tags"]}
        for operation in found:
            assert operation["summary"], operation["operationId"]
            assert operation["description"], operation["operationId"]
            assert set(operation["tags"]) <= tags
        assert all(tag["description"] for tag in document["tags"])

    def test_every_reference_leads_to_something(self, document: dict[str, Any]) -> None:
        known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
        assert set(references(document)) <= known

    def test_errors_are_documented_as_problem_documents(self, document: dict[str, Any]) -> None:
        assert "HTTPValidationError" not in json.dumps(document)
        for method, path, operation in operations(document):
            for status, answer in operation["responses"].items():
                if status < "400" or (path, status) == ("/readyz", "503"):
                    continue
                assert set(answer["content"]) == {MEDIA_TYPE}, (method, path, status)
                for code, example in answer["content"][MEDIA_TYPE]["examples"].items():
                    assert PROBLEMS[code].status == int(status)
                    TypeAdapter(Problem).validate_python(example["value"])

    def test_each_form_of_route_declares_what_it_can_answer(self, document: dict[str, Any]) -> None:
        for method, path, operation in operations(document):
            answers = set(operation["responses"])
            needed = {"400", "500", "503"}
            if path not in {"/livez", "/readyz"}:
                needed |= {"401", "403"}
                assert operation["security"] == [{"key": []}]
            if "{" in path:
                needed |= {"404", "422"}
            if method == "post":
                needed |= {"413", "415"}
            assert needed <= answers, (method, path)
        assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"

    def test_what_needs_a_permission_says_which_and_what_is_answered_without(self, document: dict[str, Any]) -> None:
        needing = {
            (method, path): operation for method, path, operation in operations(document) if PERMISSION_KEY in operation
        }
        assert set(needing) == {("post", "/v1/bundles"), ("delete", "/v1/bundles/{bundle_id}")}
        for operation in needing.values():
            assert operation[PERMISSION_KEY] == "code"
            assert "code_not_allowed" in operation["responses"]["403"]["content"][MEDIA_TYPE]["examples"]

    def test_bodies_that_routes_read_by_hand_are_described(self, document: dict[str, Any]) -> None:
        submit = document["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
        kinds = [kind["$ref"].rpartition("/")[2] for kind in submit["schema"]["anyOf"]]
        assert kinds == ["JobSpec", "ScriptSpec"]
        assert {"command", "bundle"} <= document["components"]["schemas"]["Script"]["properties"].keys()
        spec = document["components"]["schemas"]["JobSpec"]
        assert {"framework", "model", "data", "hyperparameters", "device_count"} <= spec["properties"].keys()
        assert spec["additionalProperties"] is False
        upload = document["paths"]["/v1/datasets"]["post"]["requestBody"]["content"]
        assert set(upload) == {*TABLES, "application/json"}
        assert upload["application/json"]["schema"] == {"$ref": "#/components/schemas/DatasetRequest"}
        bundle = document["paths"]["/v1/bundles"]["post"]["requestBody"]["content"]
        assert set(bundle) == set(ARCHIVES)
        change = document["paths"]["/v1/keys/{key_id}"]["patch"]["requestBody"]["content"]["application/json"]
        assert change["schema"] == {"$ref": "#/components/schemas/KeyChange"}
        rows = document["paths"]["/v1/jobs/{job_id}/predict"]["post"]["requestBody"]["content"]
        assert set(rows) == {"application/json", "text/csv"}
        assert rows["application/json"]["schema"] == {"$ref": "#/components/schemas/PredictRequest"}

    def test_the_form_of_a_job_has_an_example_for_each_model_layer_optimizer_and_schedule(
        self, document: dict[str, Any]
    ) -> None:
        content = document["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
        known = entries()
        for group in ("model", "layer", "optimizer", "schedule"):
            shown = {name for name in content["examples"] if name.startswith(f"{group}_")}
            assert shown == {f"{group}_{entry.name}" for entry in known[f"{group}s"]}
        assert content["examples"]["layer_conv2d"]["summary"] == "Layer: conv2d"

    def test_the_stream_is_described_beside_the_page(self, document: dict[str, Any]) -> None:
        events = document["paths"]["/v1/jobs/{job_id}/events"]["get"]["responses"]
        assert set(events["200"]["content"]) == {"application/json", "text/event-stream"}
        assert "204" in events

    def test_is_made_once(self, api: Api, document: dict[str, Any]) -> None:
        assert api.app.openapi() is api.app.openapi()
        assert api.app.openapi() == document


class TestExamples:
    """What Swagger UI offers to try out must work as it stands."""

    def examples(self, document: dict[str, Any], path: str) -> dict[str, Any]:
        content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        return {name: example["value"] for name, example in content["examples"].items()}

    def test_every_spec_is_accepted(self, api: Api, tenant: Tenant, document: dict[str, Any]) -> None:
        shown = self.examples(document, "/v1/jobs")
        assert {spec.get("framework", "python") for spec in shown.values()} == {"torch", "tensorflow", "python"}
        assert shown.keys() & EXAMPLES.keys()
        assert shown.keys() & CODE_EXAMPLES.keys()
        coder = api.with_key(tenant.coder)
        for name, spec in shown.items():
            client = coder if "script" in spec or "python" in str(spec["model"]) else api
            assert client.post("/v1/jobs/validate", json=spec).status_code == 200, name
            assert client.post("/v1/jobs", json=spec).status_code == 201, name

    @ONE_DATABASE
    def test_rows_and_exports_have_the_shape_that_their_routes_read(
        self, api: Api, database: Database, tenant: Tenant, document: dict[str, Any]
    ) -> None:
        job_id = add_job_with_model(database, tenant, framework="tensorflow")
        add_online_worker(database)
        for path in ("predict", "exports"):
            for name, body in self.examples(document, f"/v1/jobs/{{job_id}}/{path}").items():
                answer = api.post(f"/v1/jobs/{job_id}/{path}", json=body | {"timeout_s": 0.01})
                assert answer.status_code == 202, (path, name, answer.text)
        table = document["paths"]["/v1/jobs/{job_id}/predict"]["post"]["requestBody"]["content"]["text/csv"]["example"]
        answer = api.post(
            f"/v1/jobs/{job_id}/predict?timeout_s=0.01", content=table.encode(), headers={"Content-Type": "text/csv"}
        )
        assert answer.status_code == 202, answer.text

    @ONE_DATABASE
    def test_the_key_and_the_table_are_accepted(self, api: Api, tenant: Tenant, document: dict[str, Any]) -> None:
        for name, body in self.examples(document, "/v1/keys").items():
            assert api.with_key(tenant.admin).post("/v1/keys", json=body).status_code == 201, name
        table = document["paths"]["/v1/datasets"]["post"]["requestBody"]["content"]["text/csv"]["example"]
        answer = api.post("/v1/datasets", content=table.encode(), headers={"Content-Type": "text/csv"})
        assert answer.status_code == 201
