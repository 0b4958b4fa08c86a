"""API keys over HTTP: shown once, listed without their secret, revoked."""

from typing import Any

import pytest
from sqlalchemy import select

from app.accounts.models import ApiKey
from app.api.key_views import KeyView, NewKeyView
from app.api.views import ListView
from app.db import Database
from app.ids import new_id
from tests.api.client import ONE_DATABASE, Api, Tenant, problem

BODY = {"user": "eve", "name": "laptop"}


@pytest.fixture
def admin(api: Api, tenant: Tenant) -> Api:
    return api.with_key(tenant.admin)


class TestCreate:
    def test_the_secret_is_in_this_answer_and_nowhere_else(self, admin: Api, database: Database) -> None:
        answer = admin.post("/v1/keys", json=BODY)
        assert answer.status_code == 201
        made = NewKeyView.model_validate(answer.json())
        assert (made.project, made.user, made.role) == ("birds", "eve", "user")
        assert made.secret.startswith("ts_")
        assert admin.with_key(made.secret).get("/v1/jobs").status_code == 200
        listed = admin.get("/v1/keys").text
        assert made.id in listed
        assert made.secret not in listed
        with database.read() as session:
            row = session.scalars(select(ApiKey).where(ApiKey.id == made.id)).one()
            assert made.secret not in str(vars(row))

    def test_another_project_is_made_when_it_is_named(self, admin: Api) -> None:
        made = admin.post("/v1/keys", json=BODY | {"project": "seals", "role": "viewer"}).json()
        assert (made["project"], made["role"]) == ("seals", "viewer")
        job = admin.submit()
        problem(admin.with_key(made["secret"]).get(f"/v1/jobs/{job['id']}"), 404, "not_found")

    @ONE_DATABASE
    @pytest.mark.parametrize(
        ("change", "pointer"),
        [
            ({"role": "root"}, "/role"),
            ({"user": ""}, "/user"),
            ({"user": "a\x00b"}, "/user"),
            ({"name": "x" * 121}, "/name"),
            ({"name": 5}, "/name"),
            ({"project": " "}, "/project"),
            ({"secret": "mine"}, "/secret"),
            ({"permissions": "code"}, "/permissions"),
            ({"permissions": None}, "/permissions"),
            ({"permissions": ["admin"]}, "/permissions/0"),
            ({"permissions": ["code"] * 9}, "/permissions"),
            ({"expires_at": "2020-01-01T00:00:00Z"}, "/expires_at"),
            ({"expires_at": "tomorrow"}, "/expires_at"),
            ({"expires_at": "2030-01-01T00:00:00"}, "/expires_at"),
            ({"expires_at": "4070908800"}, "/expires_at"),
            ({"expires_at": "9999-12-31T23:59:59-12:00"}, "/expires_at"),
        ],
    )
    def test_what_cannot_be_is_named(self, admin: Api, change: dict[str, Any], pointer: str) -> None:
        (shown,) = problem(admin.post("/v1/keys", json=BODY | change), 422, "invalid_request")["errors"]
        assert shown["pointer"] == pointer
        assert shown["message"]

    @ONE_DATABASE
    def test_an_empty_body_names_what_is_missing(self, admin: Api) -> None:
        shown = problem(admin.post("/v1/keys", json={}), 422, "invalid_request")["errors"]
        assert {item["pointer"] for item in shown} == {"/user", "/name"}

    def test_an_idempotency_key_is_refused_since_no_secret_can_be_shown_again(self, admin: Api) -> None:
        before = admin.get("/v1/keys").json()
        answer = admin.post("/v1/keys", json=BODY, headers={"Idempotency-Key": "a"})
        (shown,) = problem(answer, 422, "invalid_request")["errors"]
        assert (shown["place"], shown["pointer"]) == ("header", "/idempotency-key")
        assert admin.get("/v1/keys").json() == before


class TestPermissions:
    """`code` is nobody's by itself, an admin's neither; tests/api/test_auth.py has what it opens."""

    def test_no_role_has_one_until_it_is_given(self, admin: Api) -> None:
        assert {tuple(key["permissions"]) for key in admin.get("/v1/keys").json()["data"] if key["user"][0] != "c"} == {
            ()
        }
        made = admin.post("/v1/keys", json=BODY | {"role": "admin"}).json()
        assert KeyView.model_validate({name: made[name] for name in made if name != "secret"}).permissions == []

    def test_a_new_key_may_have_it(self, admin: Api) -> None:
        made = admin.post("/v1/keys", json=BODY | {"permissions": ["code", "code"]}).json()
        assert made["permissions"] == ["code"]

    def test_given_and_taken_it_holds_at_once(self, admin: Api) -> None:
        made = admin.post("/v1/keys", json=BODY).json()
        eve = admin.with_key(made["secret"])
        address, missing = f"/v1/keys/{made['id']}", f"/v1/bundles/{new_id('bun')}"
        problem(eve.delete(missing), 403, "code_not_allowed")
        for permissions, status in ((["code"], 404), ([], 403)):
            answer = admin.patch(address, json={"permissions": permissions})
            assert KeyView.model_validate(answer.json()).permissions == permissions
            assert eve.delete(missing).status_code == status
            assert next(key for key in admin.get("/v1/keys").json()["data"] if key["id"] == made["id"]) == answer.json()

    def test_nobody_gives_it_to_themselves_but_an_admin(self, api: Api, admin: Api, tenant: Tenant) -> None:
        mine = next(key["id"] for key in admin.get("/v1/keys").json()["data"] if key["user"] == "user-of-birds")
        for key in (tenant.viewer, tenant.user, tenant.coder):
            problem(api.with_key(key).patch(f"/v1/keys/{mine}", json={"permissions": ["code"]}), 403, "forbidden")
        assert admin.patch(f"/v1/keys/{mine}", json={"permissions": ["code"]}).status_code == 200

    @ONE_DATABASE
    @pytest.mark.parametrize(
        ("body", "pointer"),
        [({}, "/permissions"), ({"permissions": ["root"]}, "/permissions/0"), ({"role": "admin"}, "/role")],
    )
    def test_what_cannot_be_is_named(self, admin: Api, body: dict[str, Any], pointer: str) -> None:
        made = admin.post("/v1/keys", json=BODY).json()
        shown = problem(admin.patch(f"/v1/keys/{made['id']}", json=body), 422, "invalid_request")["errors"]
        assert pointer in {item["pointer"] for item in shown}

    @ONE_DATABASE
    def test_a_revoked_key_gets_nothing_and_a_missing_one_is_404(self, admin: Api) -> None:
        made = admin.post("/v1/keys", json=BODY).json()
        admin.delete(f"/v1/keys/{made['id']}")
        problem(admin.patch(f"/v1/keys/{made['id']}", json={"permissions": ["code"]}), 409, "conflict")
        problem(admin.patch(f"/v1/keys/{new_id('key')}", json={"permissions": []}), 404, "not_found")


class TestList:
    def test_pages_hold_every_key_once(self, admin: Api, other: Tenant) -> None:
        assert other.project == "whales"
        seen: list[KeyView] = []
        after = ""
        while True:
            page = ListView[KeyView].model_validate(admin.get(f"/v1/keys?limit=2{after}").json())
            seen += page.data
            if not page.has_more:
                break
            after = f"&after={page.next_after}"
        assert sorted((key.project, key.role) for key in seen) == [
            (project, role) for project in ("birds", "whales") for role in ("admin", "user", "user", "viewer")
        ]
        ids = [key.id for key in seen]
        assert ids == sorted(ids, reverse=True)


class TestRevoke:
    def test_again_is_harmless(self, admin: Api) -> None:
        made = admin.post("/v1/keys", json=BODY).json()
        for _ in range(2):
            answer = admin.delete(f"/v1/keys/{made['id']}")
            assert (answer.status_code, answer.content) == (204, b"")
        listed = {key["id"]: key["revoked_at"] for key in admin.get("/v1/keys").json()["data"]}
        assert listed[made["id"]] == "2026-01-31T12:00:00.000000Z"

    def test_the_last_admin_key_stays(self, admin: Api) -> None:
        mine = next(key["id"] for key in admin.get("/v1/keys").json()["data"] if key["role"] == "admin")
        problem(admin.delete(f"/v1/keys/{mine}"), 409, "conflict")
        assert admin.get("/v1/keys").status_code == 200

    @ONE_DATABASE
    def test_one_that_is_not_there_is_404(self, admin: Api) -> None:
        problem(admin.delete("/v1/keys/key_01k0000000000000000000000a"), 404, "not_found")
