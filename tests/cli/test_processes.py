"""What every process of the server does first, and the two small ones: prepare and key."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from app import __version__, metering
from app.accounts.service import Role, authenticate
from app.cli.connection import read_client_file, write_client_file
from app.cli.errors import UsageProblem
from app.cli.processes import key, migrate, prepare
from app.cli.processes.direct import SchemaNotCurrent
from app.cli.processes.root import run
from app.clock import SystemClock
from app.db import Database
from app.errors import TrainshedError
from app.settings import Settings, load_settings
from tests.fakes import START
from tests.logging_state import logging_as_before

Command = Callable[..., str]


class Refusing(TrainshedError):
    code = "refusing"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    with logging_as_before():
        yield


@pytest.fixture
def environ(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a server's process, over a migrated database."""
    monkeypatch.setenv("TRAINSHED_DATABASE_URL", database_url)
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path))


class TestRoot:
    def test_the_settings_of_the_environment_are_handed_on(self, environ: None, tmp_path: Path) -> None:
        del environ
        seen: list[Settings] = []
        assert run(seen.append, []) == 0
        assert seen[0].home == tmp_path

    @pytest.mark.parametrize(("arguments", "code"), [(["--prot", "3"], 2), (["now"], 2), (["--help"], 0)])
    def test_it_takes_no_arguments_and_starts_nothing_when_given_one(
        self, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int
    ) -> None:
        started: list[Settings] = []
        assert run(started.append, arguments) == code
        assert started == []
        captured = capsys.readouterr()
        assert "TRAINSHED_DATABASE_URL" in captured.out or "unrecognized arguments" in captured.err

    def test_a_misspelt_variable_ends_it_with_a_sentence(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("TRAINSHED_DATABSE_URL", "x")
        assert run(lambda _settings: None, []) == 2
        assert capsys.readouterr().err.startswith("error: TRAINSHED_DATABSE_URL is not a setting.")

    def test_an_error_of_ours_is_a_sentence_and_no_traceback(self, capsys: pytest.CaptureFixture[str]) -> None:
        def refuse(_settings: Settings) -> None:
            raise Refusing("It cannot be.")

        assert run(refuse, []) == 2
        assert capsys.readouterr().err == "error: It cannot be.\n"

    def test_an_interrupt_is_no_error(self) -> None:
        def interrupted(_settings: Settings) -> None:
            raise KeyboardInterrupt

        assert run(interrupted, []) == 130

    @pytest.mark.parametrize("form", [None, "json", "text"])
    def test_the_log_is_on_the_error_stream_in_one_line_with_time_and_level(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: str | None
    ) -> None:
        if form is not None:
            monkeypatch.setenv("TRAINSHED_LOG_FORMAT", form)

        def speak(_settings: Settings) -> None:
            structlog.get_logger("x").info("started", port=80)
            structlog.get_logger("x").debug("not at this level")

        assert run(speak, []) == 0
        said = capsys.readouterr()
        assert said.out == ""
        if form == "text":
            assert said.err.startswith("timestamp=20")
            assert said.err.endswith(" level=info event=started port=80\n")
        else:
            line = json.loads(said.err)
            assert line.pop("timestamp").startswith("20")
            assert line == {"level": "info", "event": "started", "port": 80}

    def test_it_tells_what_was_built(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRAINSHED_REVISION", "0a1b2c")
        labels = {"version": __version__, "revision": "0a1b2c"}
        try:
            assert run(lambda _settings: None, []) == 0
            assert metering.ANY.get_sample_value("trainshed_build_info", labels) == 1
        finally:
            metering.describe_build("")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
class TestPrepare:
    def test_the_first_start_makes_a_key_and_later_ones_do_not(
        self, environ: None, capsys: pytest.CaptureFixture[str]
    ) -> None:
        del environ
        settings = load_settings()
        prepare.main(settings)
        secret = json.loads(capsys.readouterr().out)["key"]
        prepare.main(settings)
        assert json.loads(capsys.readouterr().out) == {"key": None}
        database = Database(settings.effective_database_url)
        with database.read() as session:
            principal = authenticate(session, secret, START)
        database.dispose()
        assert principal is not None
        assert (principal.project, principal.role) == ("default", Role.ADMIN)

    def test_with_code_the_first_key_may_bring_it(self, environ: None, capsys: pytest.CaptureFixture[str]) -> None:
        del environ
        prepare.with_code(load_settings())
        assert may_code(json.loads(capsys.readouterr().out)["key"])

    def test_with_code_later_the_stored_key_may_too(
        self, environ: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        del environ
        settings = load_settings()
        prepare.main(settings)
        secret = json.loads(capsys.readouterr().out)["key"]
        assert not may_code(secret)
        # Nothing is stored yet, or something that is no key of this database: nobody gets it.
        for stored in (None, "ts_of_another_server", secret):
            if stored is not None:
                write_client_file(tmp_path / "client.json", "http://127.0.0.1:1", stored)
            prepare.with_code(settings)
            assert may_code(secret) == (stored == secret)
        # It stays when a later start does not ask for it.
        prepare.main(settings)
        assert may_code(secret)


def may_code(secret: str) -> bool:
    database = Database(load_settings().effective_database_url)
    with database.read() as session:
        principal = authenticate(session, secret, SystemClock().now())
    database.dispose()
    assert principal is not None
    return principal.may("code")


class TestMigrate:
    def test_a_new_database_gets_the_schema_and_again_is_harmless(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        settings = Settings(home=tmp_path)
        for _ in range(2):
            migrate.main(settings)
        assert capsys.readouterr().out == "The database has the newest schema.\n" * 2
        assert (tmp_path / "trainshed.db").stat().st_size > 0


class TestKey:
    @pytest.fixture
    def command(self, environ: None) -> Command:
        """Runs `trainshed key ARGUMENT…`; answers what it printed."""
        del environ

        def call(*arguments: str) -> str:
            result = CliRunner().invoke(key.program, arguments)
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                raise result.exception
            assert result.exit_code == 0, result.output
            return str(result.output)

        return call

    def works(self, secret: str) -> bool:
        database = Database(load_settings().effective_database_url)
        with database.read() as session:
            found = authenticate(session, secret, SystemClock().now())
        database.dispose()
        return found is not None

    def test_a_key_is_printed_alone_and_works(self, command: Command) -> None:
        secret = command("create").strip()
        assert secret.startswith("ts_")
        assert self.works(secret)

    def test_json_tells_whose_it_is(self, command: Command) -> None:
        options = ["--user", "ada", "--name", "laptop", "--project", "birds", "--role", "viewer"]
        made = json.loads(command("create", *options, "--json"))
        assert (made["user"], made["name"], made["project"], made["role"]) == ("ada", "laptop", "birds", "viewer")
        assert self.works(made["secret"])

    def test_a_revoked_key_stops_working(self, command: Command) -> None:
        command("create")
        made = json.loads(command("create", "--json"))
        assert json.loads(command("revoke", made["id"], "--json")) == {"id": made["id"], "revoked": True}
        assert not self.works(made["secret"])
        states = {line.split()[0]: line.split()[-1] for line in command("ls").splitlines()}
        assert states[made["id"]] == "revoked"
        assert sorted(states.values()) == ["revoked", "works"]

    def test_a_key_may_bring_code_only_when_it_is_said(self, command: Command) -> None:
        plain = json.loads(command("create", "--json"))
        permitted = json.loads(command("create", "--permission", "code", "--json"))
        assert (plain["permissions"], permitted["permissions"]) == ([], ["code"])
        assert may_code(permitted["secret"])
        assert not may_code(plain["secret"])
        listed = {line.split()[0]: "+code" in line.split() for line in command("ls").splitlines()}
        assert listed == {plain["id"]: False, permitted["id"]: True}

    def test_permit_gives_and_takes(self, command: Command) -> None:
        made = json.loads(command("create", "--json"))
        assert command("permit", made["id"], "code") == f"{made['id']} has the permission code.\n"
        assert may_code(made["secret"])
        shown = json.loads(command("permit", made["id"], "--none", "--json"))
        assert (shown["id"], shown["permissions"], shown["object"]) == (made["id"], [], "key")
        assert not may_code(made["secret"])
        assert "no permission any more" in command("permit", made["id"], "--none")

    @pytest.mark.parametrize("arguments", [[], ["code", "--none"]])
    def test_permit_wants_to_know_what_just_once(self, command: Command, arguments: list[str]) -> None:
        made = json.loads(command("create", "--json"))
        with pytest.raises(UsageProblem, match="--none"):
            command("permit", made["id"], *arguments)

    def test_permit_refuses_what_there_is_not(self, command: Command) -> None:
        made = json.loads(command("create", "--json"))
        with pytest.raises(TrainshedError, match="'root' is no permission; known: 'code'"):
            command("permit", made["id"], "root")
        with pytest.raises(TrainshedError, match="There is no key 'key_x'"):
            command("permit", "key_x", "code")

    def test_a_list_never_has_a_secret(self, command: Command) -> None:
        made = json.loads(command("create", "--json"))
        listed = command("ls", "--json")
        assert made["secret"] not in listed
        assert json.loads(listed)["data"][0]["id"] == made["id"]

    def test_save_stores_it_for_the_client(self, command: Command, tmp_path: Path) -> None:
        write_client_file(tmp_path / "client.json", "http://127.0.0.1:1", "ts_old")
        secret = command("create", "--save").strip()
        stored = read_client_file(tmp_path / "client.json")
        assert stored is not None
        assert (stored.url, stored.key) == ("http://127.0.0.1:1", secret)

    def test_save_after_a_restore_finds_the_server_that_runs_here(self, command: Command, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / "api.url").write_text("http://127.0.0.1:2\n")
        secret = command("create", "--save").strip()
        stored = read_client_file(tmp_path / "client.json")
        assert stored is not None
        assert (stored.url, stored.key) == ("http://127.0.0.1:2", secret)

    def test_save_without_a_server_known_makes_no_key(self, command: Command) -> None:
        with pytest.raises(key.NoServerKnown, match="trainshed up"):
            command("create", "--save")
        assert command("ls") == ""

    def test_an_unknown_id_is_refused(self, command: Command) -> None:
        with pytest.raises(TrainshedError, match="There is no key 'key_x'"):
            command("revoke", "key_x")

    def test_a_database_without_the_schema_says_what_to_do(
        self, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TRAINSHED_DATABASE_URL", f"sqlite:///{tmp_path}/new.db")
        with pytest.raises(SchemaNotCurrent, match="trainshed migrate"):
            command("ls")
