"""The command line of `trainshed up` itself: options, and what it prints. tests/e2e/test_up.py runs the service."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.up import __main__ as up
from app.cli.up.service import Ready
from app.settings import Settings

Started = tuple[dict[str, str], bool, bool, bool]
READY = Ready(url="http://127.0.0.1:1234", key="ts_a", first_key="", missing=(), seconds=2.25)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Started]:
    """What would have been started: environment, quiet, json, code."""
    seen: list[Started] = []

    def run(environ: dict[str, str], *, quiet: bool, as_json: bool, code: bool) -> int:
        seen.append((environ, quiet, as_json, code))
        return 0

    monkeypatch.setattr(up, "run", run)
    return seen


def environment(started: list[Started], *arguments: str) -> dict[str, str]:
    result = CliRunner().invoke(up.program, arguments)
    assert result.exit_code == 0, result.output
    return started[0][0]


class TestOptions:
    def test_each_becomes_a_setting(self, started: list[Started], tmp_path: Path) -> None:
        found = environment(started, "--port", "80", "--host", "0.0.0.0", "--home", str(tmp_path))  # noqa: S104 - not bound
        assert found["TRAINSHED_PORT"] == "80"
        assert found["TRAINSHED_HOST"] == "0.0.0.0"  # noqa: S104 - as above
        assert found["TRAINSHED_HOME"] == str(tmp_path)

    @pytest.mark.parametrize(
        "url", ["postgres://u@h/d", "postgresql://u@h/d", "postgresql+psycopg://u@h/d"], ids=["short", "usual", "ours"]
    )
    def test_a_postgres_is_named_as_people_name_it(self, started: list[Started], url: str) -> None:
        assert environment(started, "--postgres", url)["TRAINSHED_DATABASE_URL"] == "postgresql+psycopg://u@h/d"

    def test_an_option_wins_over_the_environment_and_its_secret_file(
        self, started: list[Started], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TRAINSHED_DATABASE_URL_FILE", "/run/secrets/url")
        found = environment(started, "--postgres", "postgres://u@h/d")
        assert "TRAINSHED_DATABASE_URL_FILE" not in found

    def test_without_options_the_environment_is_left_alone(
        self, started: list[Started], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TRAINSHED_PORT", "81")
        found = environment(started)
        assert found["TRAINSHED_PORT"] == "81"
        assert "TRAINSHED_DATABASE_URL" not in found

    @pytest.mark.parametrize(
        ("flag", "expected"),
        [("--quiet", (True, False, False)), ("--json", (False, True, False)), ("--code", (False, False, True))],
    )
    def test_flags(self, started: list[Started], flag: str, expected: tuple[bool, bool, bool]) -> None:
        environment(started, flag)
        assert started[0][1:] == expected

    def test_a_port_that_cannot_be_is_refused(self, started: list[Started]) -> None:
        assert CliRunner().invoke(up.program, ["--port", "65536"]).exit_code == 2
        assert started == []

    def test_settings_that_cannot_be_end_it_with_a_sentence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRAINSHED_LEASE_S", "1")
        result = CliRunner().invoke(up.program, [])
        assert result.exit_code == 2
        assert "error: The settings are not valid." in result.output

    def test_folders_become_whole_paths(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        given = {"TRAINSHED_HOME": "here", "TRAINSHED_RUN_DIR": "there", "TRAINSHED_PORT": "1", "OTHER": "x"}
        found = up._with_whole_paths(given)
        assert found == {**given, "TRAINSHED_HOME": f"{tmp_path}/here", "TRAINSHED_RUN_DIR": f"{tmp_path}/there"}
        assert up._with_whole_paths({}) == {}


class TestAnnouncement:
    def said(self, ready: Ready, settings: Settings) -> str:
        return "\n".join(up._sentences(ready, settings))

    def test_address_docs_and_logs(self, tmp_path: Path) -> None:
        text = self.said(READY, Settings(home=tmp_path))
        assert "Trainshed is up (2.2 s)." in text
        assert "http://127.0.0.1:1234/docs" in text
        assert f"logs in {tmp_path / 'logs'}" in text

    def test_a_key_is_shown_only_when_it_is_the_first(self, tmp_path: Path) -> None:
        first = Ready(READY.url, "ts_first", "ts_first", (), 1.0)
        assert "ts_first (admin; shown this once" in self.said(first, Settings(home=tmp_path))
        assert "ts_a" not in self.said(READY, Settings(home=tmp_path))

    def test_without_any_key_it_says_how_to_make_one(self, tmp_path: Path) -> None:
        text = self.said(Ready(READY.url, "", "", (), 1.0), Settings(home=tmp_path))
        assert "trainshed key create --save" in text

    def test_what_is_missing_is_named(self, tmp_path: Path) -> None:
        ready = Ready(READY.url, "ts_a", "", ("workers: No worker online runs torch.",), 1.0)
        assert "Not ready: workers: No worker online runs torch." in self.said(ready, Settings(home=tmp_path))

    def test_a_home_elsewhere_is_named_for_other_terminals(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        assert "export TRAINSHED_HOME" not in self.said(READY, Settings())
        assert f"export TRAINSHED_HOME={tmp_path}/x" in self.said(READY, Settings(home=tmp_path / "x"))

    def test_a_server_for_others_names_the_names_it_answers_to(self, tmp_path: Path) -> None:
        everywhere = Settings(home=tmp_path, host="0.0.0.0")  # noqa: S104 - not bound
        assert "TRAINSHED_ALLOWED_HOSTS" in self.said(READY, everywhere)
        assert "TRAINSHED_ALLOWED_HOSTS" not in self.said(READY, Settings(home=tmp_path))

    def test_json_is_one_document_with_the_key(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        up._announce(READY, Settings(home=tmp_path), quiet=True, as_json=True)
        content = json.loads(capsys.readouterr().out)
        assert content == {"url": READY.url, "key": "ts_a", "home": str(tmp_path), "missing": []}

    def test_quiet_says_nothing(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        up._announce(READY, Settings(home=tmp_path), quiet=True, as_json=False)
        assert capsys.readouterr().out == ""
