"""Role and permission together, for routes whose body decides: every cell of the table in docs/bundles.md."""

from typing import Any

import pytest

from app.accounts.service import Role, create_key
from app.db import Database
from tests.api.client import ONE_DATABASE, SPEC, Api
from tests.api.coding import FILES, add_bundle, python, script, zipped
from tests.fakes import START

BODIES = {"catalogue": SPEC, "script": script(success="exit"), "python model": python()}
ALLOWED, ROLE, CODE = "", "forbidden", "code_not_allowed"

# Per body: what a viewer, a user and an admin get, first without the permission, then with it.
SUBMIT = {
    "catalogue": ((ROLE, ALLOWED, ALLOWED), (ROLE, ALLOWED, ALLOWED)),
    "script": ((ROLE, CODE, CODE), (ROLE, ALLOWED, ALLOWED)),
    "python model": ((ROLE, CODE, CODE), (ROLE, ALLOWED, ALLOWED)),
}
VALIDATE = {
    "catalogue": ((ALLOWED, ALLOWED, ALLOWED), (ALLOWED, ALLOWED, ALLOWED)),
    "script": ((CODE, CODE, CODE), (ALLOWED, ALLOWED, ALLOWED)),
    "python model": ((CODE, CODE, CODE), (ALLOWED, ALLOWED, ALLOWED)),
}
UPLOAD = ((ROLE, CODE, CODE), (ROLE, ALLOWED, ALLOWED))


def key_of(database: Database, role: Role, *, permitted: bool) -> str:
    with database.write() as session:
        return create_key(
            session,
            project="birds",
            user="eve",
            name="test",
            role=role,
            now=START,
            permissions=["code"] if permitted else [],
        )[1]


def refusal(answer: Any) -> str:
    """Why it was refused; nothing when it was not."""
    return str(answer.json()["code"]) if answer.status_code >= 400 else ""


@ONE_DATABASE
@pytest.mark.parametrize("permitted", [False, True], ids=["no permission", "code"])
@pytest.mark.parametrize("role", list(Role))
class TestTable:
    @pytest.mark.parametrize("body", list(BODIES))
    def test_submit_and_validate(self, api: Api, database: Database, role: Role, body: str, *, permitted: bool) -> None:
        client = api.with_key(key_of(database, role, permitted=permitted))
        column = list(Role).index(role)
        assert refusal(client.post("/v1/jobs", json=BODIES[body])) == SUBMIT[body][permitted][column]
        assert refusal(client.post("/v1/jobs/validate", json=BODIES[body])) == VALIDATE[body][permitted][column]

    def test_upload_and_delete(self, api: Api, database: Database, role: Role, *, permitted: bool) -> None:
        owner = api.with_key(key_of(database, Role.USER, permitted=True))
        bundle = add_bundle(owner)
        client = api.with_key(key_of(database, role, permitted=permitted))
        expected = UPLOAD[permitted][list(Role).index(role)]
        answer = client.post("/v1/bundles", content=zipped(FILES), headers={"Content-Type": "application/zip"})
        assert refusal(answer) == expected
        assert client.get(f"/v1/bundles/{bundle}").status_code == 200
        deleted = client.delete(f"/v1/bundles/{bundle}")
        assert (deleted.status_code == 204) == (expected == ALLOWED)
        assert owner.get(f"/v1/bundles/{bundle}").status_code == (404 if expected == ALLOWED else 200)


class TestAtTheSameTime:
    def test_a_bundle_is_never_deleted_under_a_job(self, api: Api, database: Database) -> None:
        coder = api.with_key(key_of(database, Role.USER, permitted=True))
        for number in range(5):
            bundle = add_bundle(coder, {"train.py": b"print(%d)\n" % number})
            submit = ("POST", "/v1/jobs", {"json": script(bundle, success="exit")})
            *submitted, deleted = coder.together([submit] * 3 + [("DELETE", f"/v1/bundles/{bundle}", {})])
            accepted = [answer for answer in submitted if answer.status_code == 201]
            assert {answer.status_code for answer in submitted} <= {201, 422}
            if deleted.status_code == 204:
                assert accepted == []
            else:
                assert refusal(deleted) == "bundle_in_use"
                assert accepted
