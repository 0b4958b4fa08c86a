import threading
from datetime import timedelta

import pytest
from sqlalchemy import event, func, select, text

from app.accounts.keys import new_key
from app.accounts.models import ApiKey, Project
from app.accounts.schemas import key_json
from app.accounts.service import (
    PERMISSIONS,
    CodeNotAllowed,
    InvalidAccount,
    LastAdminKey,
    Principal,
    Role,
    authenticate,
    create_key,
    find_or_create_project,
    first_key,
    list_keys,
    permit_key,
    revoke_key,
)
from app.db import Database
from app.errors import Conflict, NotFound
from tests.fakes import START, FakeClock

HOUR = timedelta(hours=1)


def make(database: Database, *, role: Role = Role.USER, project: str = "birds", user: str = "ada") -> tuple[str, str]:
    """The id and the text of a new key."""
    with database.write() as session:
        key, secret = create_key(session, project=project, user=user, name="laptop", role=role, now=START)
        return key.id, secret


def who(database: Database, secret: str, clock: FakeClock) -> Principal | None:
    with database.read() as session:
        return authenticate(session, secret, clock.now())


class TestAuthenticate:
    def test_a_key_opens_its_project_with_its_role(self, database: Database, clock: FakeClock) -> None:
        key_id, secret = make(database, role=Role.VIEWER)
        principal = who(database, secret, clock)
        assert principal is not None
        assert (principal.key_id, principal.project, principal.user) == (key_id, "birds", "ada")
        assert principal.role is Role.VIEWER
        with database.read() as session:
            assert session.scalar(select(Project.id)) == principal.project_id

    def test_an_unknown_key_opens_nothing(self, database: Database, clock: FakeClock) -> None:
        make(database)
        assert who(database, new_key().text, clock) is None

    def test_what_is_no_key_costs_no_query(self, database: Database, clock: FakeClock) -> None:
        _, secret = make(database)
        queries: list[str] = []
        event.listen(database.reader, "before_cursor_execute", lambda *args: queries.append(args[2].split()[0]))
        typo = secret[:20] + ("b" if secret[20] == "a" else "a") + secret[21:]
        assert who(database, typo, clock) is None
        assert queries == []
        assert who(database, secret, clock) is not None
        assert [query for query in queries if query != "BEGIN"] == ["SELECT"]

    def test_an_expired_key_stops_at_that_moment(self, database: Database, clock: FakeClock) -> None:
        with database.write() as session:
            _, secret = create_key(
                session, project="birds", user="ada", name="ci", role=Role.USER, now=START, expires_at=START + HOUR
            )
        clock.advance(3599)
        assert who(database, secret, clock) is not None
        clock.advance(1)
        assert who(database, secret, clock) is None

    def test_a_revoked_key_stops_at_once(self, database: Database, clock: FakeClock) -> None:
        key_id, secret = make(database)
        with database.write() as session:
            revoke_key(session, key_id, clock.now())
        assert who(database, secret, clock) is None

    def test_no_table_holds_the_secret(self, database: Database) -> None:
        _, secret = make(database)
        with database.read() as session:
            rows = str([list(row) for row in session.execute(text("SELECT * FROM api_keys"))])
        assert secret[:13] in rows
        assert secret not in rows
        assert secret[13:] not in rows


class TestCreateKey:
    def test_keys_of_one_project_share_it(self, database: Database) -> None:
        make(database, user="ada")
        make(database, user="bob")
        with database.read() as session:
            assert session.scalar(select(func.count()).select_from(Project)) == 1

    @pytest.mark.parametrize("field", ["project", "user", "name"])
    @pytest.mark.parametrize("value", ["", "  ", "x" * 121, "a\0b", "a\u202eb", "line\nbreak", "\ud800"])
    def test_refuses_names_that_could_deceive(self, database: Database, field: str, value: str) -> None:
        names = {"project": "birds", "user": "ada", "name": "laptop"} | {field: value}
        with pytest.raises(InvalidAccount) as caught, database.write() as session:
            create_key(session, **names, role=Role.USER, now=START, expires_at=None)
        assert [problem.pointer for problem in caught.value.problems] == [f"/{field}"]
        assert caught.value.problems[0].suggestion

    @pytest.mark.parametrize("value", ["Ada Lovelace", "ünïcode", "<script>alert(1)</script>", "日本"])
    def test_accepts_what_a_page_can_show_as_text(self, database: Database, clock: FakeClock, value: str) -> None:
        _, secret = make(database, user=value)
        principal = who(database, secret, clock)
        assert principal is not None
        assert principal.user == value

    def test_refuses_a_key_that_would_never_work(self, database: Database) -> None:
        with pytest.raises(InvalidAccount, match="has passed"), database.write() as session:
            create_key(session, project="p", user="u", name="n", role=Role.USER, now=START, expires_at=START)


class TestPermissions:
    @pytest.mark.parametrize("role", list(Role))
    def test_no_role_has_one_by_itself(self, database: Database, clock: FakeClock, role: Role) -> None:
        key_id, secret = make(database, role=role)
        principal = who(database, secret, clock)
        assert principal is not None
        assert not principal.may("code")
        with database.write() as session:
            assert permit_key(session, key_id, ["code"])[0].permissions == ["code"]
        permitted = who(database, secret, clock)
        assert permitted is not None
        assert permitted.may("code")
        assert permitted.role is role

    def test_a_key_may_be_made_with_it(self, database: Database, clock: FakeClock) -> None:
        with database.write() as session:
            key, secret = create_key(
                session, project="p", user="u", name="n", role=Role.USER, now=START, permissions=PERMISSIONS * 2
            )
            assert key.permissions == ["code"]
            assert key_json(key, "p")["permissions"] == ["code"]
        principal = who(database, secret, clock)
        assert principal is not None
        assert principal.permissions == frozenset({"code"})

    def test_what_is_given_replaces_what_was_there(self, database: Database, clock: FakeClock) -> None:
        key_id, secret = make(database, project="whales")
        for permissions in (["code"], []):
            with database.write() as session:
                assert permit_key(session, key_id, permissions)[1] == "whales"
            principal = who(database, secret, clock)
            assert principal is not None
            assert sorted(principal.permissions) == permissions

    def test_one_that_does_not_exist_is_refused_with_those_that_do(self, database: Database) -> None:
        key_id, _ = make(database)
        known = "'root' is no permission; known: 'code'"
        with pytest.raises(InvalidAccount, match=known) as caught, database.write() as session:
            permit_key(session, key_id, ["code", "root"])
        assert [problem.pointer for problem in caught.value.problems] == ["/permissions"]
        with pytest.raises(InvalidAccount), database.write() as session:
            create_key(session, project="p", user="u", name="n", role=Role.USER, now=START, permissions=["root"])

    def test_asking_for_one_that_does_not_exist_is_a_fault_of_ours(self) -> None:
        principal = Principal("key_1", "prj_1", "birds", "ada", Role.ADMIN, frozenset({"code"}))
        with pytest.raises(KeyError):
            principal.may("coed")

    def test_a_revoked_or_missing_key_gets_none(self, database: Database) -> None:
        key_id, _ = make(database)
        with database.write() as session:
            revoke_key(session, key_id, START)
        with pytest.raises(Conflict, match="revoked"), database.write() as session:
            permit_key(session, key_id, ["code"])
        with pytest.raises(NotFound), database.write() as session:
            permit_key(session, "key_x", ["code"])

    def test_the_error_says_who_can_give_it_and_how(self) -> None:
        sentence = str(CodeNotAllowed("key_1"))
        assert "trainshed key permit key_1 code" in sentence
        assert "PATCH /v1/keys/key_1" in sentence


class TestFirstKey:
    def test_may_bring_code_only_when_it_is_asked_for(self, database: Database, clock: FakeClock) -> None:
        with database.write() as session:
            secret = first_key(session, START, ["code"])
        assert secret is not None
        principal = who(database, secret, clock)
        assert principal is not None
        assert principal.may("code")

    def test_opens_the_default_project_as_admin(self, database: Database, clock: FakeClock) -> None:
        with database.write() as session:
            secret = first_key(session, START)
        assert secret is not None
        principal = who(database, secret, clock)
        assert principal is not None
        assert (principal.project, principal.role) == ("default", Role.ADMIN)

    def test_is_made_only_while_there_is_no_key_at_all(self, database: Database, clock: FakeClock) -> None:
        key_id, _ = make(database, role=Role.VIEWER)
        with database.write() as session:
            revoke_key(session, key_id, clock.now())
        with database.write() as session:
            assert first_key(session, START) is None

    def test_of_many_that_start_at_once_exactly_one_gets_it(self, database_url: str) -> None:
        # A Database of its own for each thread: the lock inside one must not be what saves us.
        count = 6
        together = threading.Barrier(count)
        answers: list[str | None] = []

        def start() -> None:
            database = Database(database_url, synchronous="normal")
            together.wait()
            with database.write() as session:
                answers.append(first_key(session, START))
            database.dispose()

        threads = [threading.Thread(target=start) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == count
        assert len([answer for answer in answers if answer is not None]) == 1


class TestProjects:
    def test_two_at_once_get_the_same_one(self, database_url: str) -> None:
        together = threading.Barrier(4)
        found: list[str] = []

        def start() -> None:
            database = Database(database_url, synchronous="normal")
            together.wait()
            with database.write() as session:
                found.append(find_or_create_project(session, "birds", START).id)
            database.dispose()

        threads = [threading.Thread(target=start) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        assert len(set(found)) == 1


class TestRevokeKey:
    def test_again_is_harmless_and_keeps_the_first_time(self, database: Database, clock: FakeClock) -> None:
        key_id, _ = make(database)
        for _ in range(2):
            with database.write() as session:
                assert revoke_key(session, key_id, clock.now()).revoked_at == START
            clock.advance(60)

    def test_unknown_key(self, database: Database) -> None:
        with pytest.raises(NotFound, match="There is no key 'key_none'"), database.write() as session:
            revoke_key(session, "key_none", START)

    def test_the_last_admin_key_stays(self, database: Database, clock: FakeClock) -> None:
        key_id, secret = make(database, role=Role.ADMIN)
        make(database, role=Role.USER)
        with pytest.raises(LastAdminKey, match="last admin key"), database.write() as session:
            revoke_key(session, key_id, START)
        assert who(database, secret, clock) is not None

    def test_an_expired_admin_key_does_not_count_as_another(self, database: Database) -> None:
        with database.write() as session:
            create_key(
                session, project="birds", user="ada", name="old", role=Role.ADMIN, now=START, expires_at=START + HOUR
            )
        key_id, _ = make(database, role=Role.ADMIN)
        with database.write() as session:
            revoke_key(session, key_id, START)
        with database.read() as session:
            assert session.get_one(ApiKey, key_id).revoked_at == START

    def test_the_rest_can_go_once_another_admin_works(self, database: Database) -> None:
        first, _ = make(database, role=Role.ADMIN)
        second, _ = make(database, role=Role.ADMIN)
        with database.write() as session:
            revoke_key(session, first, START)
        with pytest.raises(LastAdminKey), database.write() as session:
            revoke_key(session, second, START + 2 * HOUR)


class TestListKeys:
    def test_pages_by_id_in_both_directions(self, database: Database) -> None:
        made = [make(database, user=f"user {n}")[0] for n in range(5)]
        for descending in (True, False):
            seen: list[str] = []
            while True:
                with database.read() as session:
                    after = seen[-1] if seen else None
                    page = list_keys(session, after=after, limit=2, descending=descending)
                if not page:
                    break
                seen.extend(key.id for key, _ in page)
            assert seen == (made[::-1] if descending else made)

    def test_the_wire_form_has_no_secret(self, database: Database) -> None:
        _, secret = make(database)
        with database.read() as session:
            key, project = list_keys(session)[0]
        shown = key_json(key, project)
        assert shown["project"] == "birds"
        assert shown["hint"] == f"{secret[:13]}…"
        assert shown["created_at"] == "2026-01-31T12:00:00.000000Z"
        assert shown["expires_at"] is None
        assert shown["revoked_at"] is None
        assert secret not in str(shown)
        assert key.digest not in str(shown)


class TestRole:
    @pytest.mark.parametrize(
        ("has", "needed", "enough"),
        [
            ("viewer", "viewer", True),
            ("viewer", "user", False),
            ("viewer", "admin", False),
            ("user", "viewer", True),
            ("user", "user", True),
            ("user", "admin", False),
            ("admin", "viewer", True),
            ("admin", "user", True),
            ("admin", "admin", True),
        ],
    )
    def test_a_higher_role_covers_a_lower_one(self, has: str, needed: str, enough: bool) -> None:  # noqa: FBT001
        assert Role(has).covers(Role(needed)) is enough
