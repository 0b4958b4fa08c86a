"""Who gets in: default deny in front of routing, one list of public paths, and roles."""

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from starlette.routing import Route

from app.accounts.service import Role, create_key, revoke_key
from app.api.auth import PUBLIC_FOLDER, PUBLIC_PATHS, is_public
from app.api.routing import ApiRoute
from app.db import Database
from app.ids import new_id
from tests.api.client import ONE_DATABASE, Api, Tenant, problem
from tests.fakes import START, FakeClock

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


_PREFIXES = {
    "job_id": "job",
    "dataset_id": "ds",
    "key_id": "key",
    "worker_id": "wrk",
    "task_id": "tsk",
    "hold_id": "hold",
    "bundle_id": "bun",
}


def every_route(app: FastAPI) -> Iterator[ApiRoute]:
    for route in app.routes:
        assert isinstance(route, ApiRoute), f"{route} is no route of ours, so nothing checks its role"
        yield route


def concrete(route: Route) -> str:
    """The route's path with an id in it that could be one."""
    path = route.path.replace("{name:path}", "model.bin").replace("{name}", "start.js").replace("{step}", "7")
    path = path.replace("{device_id:path}", "GPU-1")
    for parameter, prefix in _PREFIXES.items():
        path = path.replace(f"{{{parameter}}}", new_id(prefix))
    assert "{" not in path, f"{path}: teach this test the parameter"
    return path


class TestPublicList:
    def test_the_public_list_is_this_and_no_more(self) -> None:
        assert {"/", "/livez", "/readyz", "/openapi.json", "/docs", "/docs/errors"} == PUBLIC_PATHS
        assert PUBLIC_FOLDER == "/docs/assets/"


@ONE_DATABASE
class TestDefaultDeny:
    def test_every_route_and_method_without_a_key_is_401_unless_it_is_listed(self, api: Api) -> None:
        nobody = api.with_key(None)
        for route in every_route(api.app):
            for method in METHODS:
                answer = nobody.request(method, concrete(route))
                if is_public(route.path):
                    assert answer.status_code != 401, (method, route.path)
                else:
                    assert answer.status_code == 401, (method, route.path, answer.text)

    @pytest.mark.parametrize(
        "path",
        [
            "/v1/jobs/",
            "//v1/jobs",
            "/v1//jobs",
            "/V1/jobs",
            "/v1/%6aobs",
            "/nothing",
            "/v1/jobs;x",
            "/metrics/",
            "/docs/",
        ],
    )
    def test_no_spelling_of_a_path_gets_round_it(self, api: Api, path: str) -> None:
        assert api.with_key(None).get(f"http://127.0.0.1{path}").status_code == 401

    @pytest.mark.parametrize("path", ["/docs/assets/../../v1/jobs", "/docs/assets/..%2f..%2fv1%2fjobs"])
    def test_the_public_folder_leads_nowhere(self, api: Api, path: str) -> None:
        assert api.with_key(None).get(path).status_code in {401, 404}

    def test_a_broken_body_without_a_key_is_401_not_a_parse_error(self, api: Api) -> None:
        answer = api.with_key(None).post("/v1/jobs", content=b"{", headers={"Content-Type": "application/json"})
        problem(answer, 401, "unauthenticated")

    def test_the_answer_says_how_to_authenticate(self, api: Api) -> None:
        answer = api.with_key(None).get("/v1/jobs")
        assert answer.headers["www-authenticate"] == 'Bearer realm="trainshed"'
        assert "Authorization: Bearer ts_" in problem(answer, 401, "unauthenticated")["detail"]

    @pytest.mark.parametrize(
        "value", ["", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "ts_abc", "Bearer ts_abc", "Bearer é"]
    )
    def test_other_headers_are_no_key(self, api: Api, value: str) -> None:
        answer = api.with_key(None).get("/v1/jobs", headers={"Authorization": value.encode()})
        problem(answer, 401, "unauthenticated")

    def test_two_keys_at_once_are_refused(self, api: Api, tenant: Tenant) -> None:
        headers = [("Authorization", f"Bearer {tenant.user}"), ("Authorization", f"Bearer {tenant.admin}")]
        problem(api.with_key(None).get("/v1/jobs", headers=headers), 401, "unauthenticated")

    def test_the_scheme_is_read_in_any_case(self, api: Api, tenant: Tenant) -> None:
        answer = api.with_key(None).get("/v1/jobs", headers={"Authorization": f"bEaReR {tenant.user}"})
        assert answer.status_code == 200

    def test_a_key_in_the_query_is_no_key(self, api: Api, tenant: Tenant) -> None:
        problem(api.with_key(None).get("/v1/jobs", params={"key": tenant.user}), 401, "unauthenticated")

    def test_a_websocket_is_closed_unasked(self, api: Api) -> None:
        sent: list[dict[str, object]] = []

        async def connect() -> None:
            async def receive() -> dict[str, object]:
                return {"type": "websocket.connect"}

            async def send(message: object) -> None:
                assert isinstance(message, dict)
                sent.append(message)

            scope = {"type": "websocket", "path": "/v1/jobs", "headers": [], "query_string": b"", "subprotocols": []}
            await api.app(scope, receive, send)

        api.portal.call(connect)
        assert sent == [{"type": "websocket.close", "code": 1008}]


class TestRevokedKey:
    def test_it_stops_at_the_next_look_within_two_seconds(
        self, api: Api, database: Database, tenant: Tenant, clock: FakeClock
    ) -> None:
        assert api.get("/v1/jobs").status_code == 200
        with database.write() as session:
            principal = api.portal.call(api.services.authenticator.principal, tenant.user)
            assert principal is not None
            revoke_key(session, principal.key_id, START)
        # Another process revoked it: what was learned may be used for up to two seconds.
        clock.advance(2.0)
        problem(api.get("/v1/jobs"), 401, "unauthenticated")

    @ONE_DATABASE
    def test_revoked_here_it_stops_at_once(self, api: Api, tenant: Tenant) -> None:
        admin = api.with_key(tenant.admin)
        made = admin.post("/v1/keys", json={"user": "eve", "name": "old laptop"}).json()
        eve = api.with_key(made["secret"])
        assert eve.get("/v1/jobs").status_code == 200
        assert admin.delete(f"/v1/keys/{made['id']}").status_code == 204
        problem(eve.get("/v1/jobs"), 401, "unauthenticated")

    @ONE_DATABASE
    def test_an_expired_key_stops_too(self, api: Api, tenant: Tenant, clock: FakeClock) -> None:
        body = {"user": "eve", "name": "guest", "expires_at": "2026-01-31T13:00:00Z"}
        made = api.with_key(tenant.admin).post("/v1/keys", json=body).json()
        eve = api.with_key(made["secret"])
        assert eve.get("/v1/jobs").status_code == 200
        clock.advance(3601)
        problem(eve.get("/v1/jobs"), 401, "unauthenticated")


# What each route needs: written out by hand, so that a route that changes its role changes this table too.
ROLES = {
    ("POST", "/v1/jobs"): "user",
    ("POST", "/v1/jobs/validate"): "viewer",
    ("GET", "/v1/jobs"): "viewer",
    ("GET", "/v1/jobs/{job_id}"): "viewer",
    ("DELETE", "/v1/jobs/{job_id}"): "user",
    ("POST", "/v1/jobs/{job_id}/cancel"): "user",
    ("POST", "/v1/jobs/{job_id}/pause"): "user",
    ("POST", "/v1/jobs/{job_id}/resume"): "user",
    ("POST", "/v1/jobs/{job_id}/retry"): "user",
    ("POST", "/v1/jobs/{job_id}/clone"): "user",
    ("GET", "/v1/jobs/{job_id}/checkpoints"): "viewer",
    ("GET", "/v1/jobs/{job_id}/checkpoints/{step}/content"): "viewer",
    ("GET", "/v1/jobs/{job_id}/attempts"): "viewer",
    ("GET", "/v1/jobs/{job_id}/events"): "viewer",
    ("GET", "/v1/jobs/{job_id}/metrics"): "viewer",
    ("GET", "/v1/jobs/{job_id}/logs"): "viewer",
    ("GET", "/v1/jobs/{job_id}/artifacts"): "viewer",
    ("GET", "/v1/jobs/{job_id}/artifacts/{name:path}"): "viewer",
    ("HEAD", "/v1/jobs/{job_id}/artifacts/{name:path}"): "viewer",
    ("POST", "/v1/jobs/{job_id}/predict"): "viewer",
    ("GET", "/v1/predictions/{task_id}"): "viewer",
    ("POST", "/v1/jobs/{job_id}/exports"): "user",
    ("GET", "/v1/catalog"): "viewer",
    ("POST", "/v1/datasets"): "user",
    ("GET", "/v1/datasets"): "viewer",
    ("GET", "/v1/datasets/{dataset_id}"): "viewer",
    ("GET", "/v1/datasets/{dataset_id}/preview"): "viewer",
    ("DELETE", "/v1/datasets/{dataset_id}"): "user",
    ("POST", "/v1/bundles"): "user",
    ("GET", "/v1/bundles"): "viewer",
    ("GET", "/v1/bundles/{bundle_id}"): "viewer",
    ("GET", "/v1/bundles/{bundle_id}/content"): "viewer",
    ("DELETE", "/v1/bundles/{bundle_id}"): "user",
    ("GET", "/v1/devices"): "viewer",
    ("GET", "/v1/workers"): "viewer",
    ("POST", "/v1/workers/{worker_id}/cordon"): "admin",
    ("POST", "/v1/workers/{worker_id}/uncordon"): "admin",
    ("POST", "/v1/workers/{worker_id}/drain"): "admin",
    ("POST", "/v1/devices/{device_id:path}/quarantine"): "admin",
    ("POST", "/v1/devices/{device_id:path}/release"): "admin",
    ("POST", "/v1/holds"): "user",
    ("GET", "/v1/holds"): "viewer",
    ("GET", "/v1/holds/{hold_id}"): "viewer",
    ("PATCH", "/v1/holds/{hold_id}"): "user",
    ("DELETE", "/v1/holds/{hold_id}"): "user",
    ("GET", "/v1/usage"): "viewer",
    ("GET", "/v1/keys"): "admin",
    ("POST", "/v1/keys"): "admin",
    ("PATCH", "/v1/keys/{key_id}"): "admin",
    ("DELETE", "/v1/keys/{key_id}"): "admin",
    ("GET", "/metrics"): "viewer",
}


# What a role alone is not enough for, in the same way.
PERMISSIONS = {
    ("POST", "/v1/bundles"): "code",
    ("DELETE", "/v1/bundles/{bundle_id}"): "code",
}


@ONE_DATABASE
class TestRoles:
    def test_the_table_names_every_route_that_needs_a_key(self, app: FastAPI) -> None:
        found = {(m, r.path) for r in every_route(app) if not is_public(r.path) for m in r.methods or ()}
        assert found == set(ROLES)

    def test_the_table_names_every_route_that_needs_a_permission(self, app: FastAPI) -> None:
        found = {(m, r.path): r.required_permission for r in every_route(app) for m in r.methods or ()}
        assert {key: permission for key, permission in found.items() if permission} == PERMISSIONS

    @pytest.mark.parametrize("permitted", [False, True], ids=["no permission", "code"])
    @pytest.mark.parametrize("role", [role.value for role in Role])
    def test_every_role_with_and_without_the_permission_meets_every_route(
        self, api: Api, database: Database, role: str, *, permitted: bool
    ) -> None:
        with database.write() as session:
            key, secret = create_key(
                session,
                project="birds",
                user="ada",
                name="test",
                role=Role(role),
                now=START,
                permissions=["code"] if permitted else [],
            )
        client = api.with_key(secret)
        for route in every_route(api.app):
            for method in route.methods or ():
                if is_public(route.path):
                    continue
                needed = Role(ROLES[method, route.path])
                answer = client.request(method, concrete(route))
                if not Role(role).covers(needed):
                    if method == "HEAD":
                        assert answer.status_code == 403
                        continue
                    document = problem(answer, 403, "forbidden")
                    assert (document["role"], document["required"]) == (role, needed.value)
                elif (method, route.path) in PERMISSIONS and not permitted:
                    document = problem(answer, 403, "code_not_allowed")
                    assert document["required_permission"] == "code"
                    assert f"trainshed key permit {key.id} code" in document["detail"]
                else:
                    assert answer.status_code not in {401, 403}, (role, method, route.path, answer.text)

    def test_a_role_is_checked_before_the_body_is_read(self, api: Api, tenant: Tenant) -> None:
        answer = api.with_key(tenant.viewer).post(
            "/v1/jobs", content=b"not json", headers={"Content-Type": "application/json"}
        )
        problem(answer, 403, "forbidden")

    def test_a_permission_is_checked_before_the_body_is_read(self, api: Api, tenant: Tenant) -> None:
        headers = {"Content-Type": "application/zip"}
        for key, code in ((tenant.viewer, "forbidden"), (tenant.admin, "code_not_allowed")):
            problem(api.with_key(key).post("/v1/bundles", content=b"no archive", headers=headers), 403, code)
        folder = api.services.limits.upload_dir
        assert not folder.exists() or list(folder.iterdir()) == []

    def test_a_viewer_may_check_a_spec(self, api: Api, tenant: Tenant) -> None:
        spec = {"framework": "torch", "model": "mlp", "data": "iris"}
        assert api.with_key(tenant.viewer).post("/v1/jobs/validate", json=spec).status_code == 200
