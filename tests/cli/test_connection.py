"""Where address and key come from: options, environment, the stored file, in this order."""

import json
import stat
from pathlib import Path

import pytest

from app.cli.connection import (
    Connection,
    checked_url,
    client_file,
    find_connection,
    read_client_file,
    write_client_file,
)
from app.cli.errors import UsageProblem

STORED = "http://127.0.0.1:1111"


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose home has a stored address and key."""
    write_client_file(tmp_path / "client.json", STORED, "ts_stored")
    return {"TRAINSHED_HOME": str(tmp_path)}


class TestPrecedence:
    def test_options_come_first(self, home: dict[str, str]) -> None:
        environ = {**home, "TRAINSHED_URL": "http://b:2", "TRAINSHED_KEY": "ts_b"}
        assert find_connection("http://a:1", "ts_a", environ) == Connection("http://a:1", "ts_a", "--url")

    def test_then_the_environment(self, home: dict[str, str]) -> None:
        environ = {**home, "TRAINSHED_URL": "http://b:2", "TRAINSHED_KEY": "ts_b"}
        assert find_connection(None, None, environ) == Connection("http://b:2", "ts_b", "TRAINSHED_URL")

    def test_then_the_stored_file(self, home: dict[str, str]) -> None:
        found = find_connection(None, None, home)
        assert (found.url, found.key) == (STORED, "ts_stored")

    def test_address_and_key_may_come_from_different_places(self, home: dict[str, str]) -> None:
        found = find_connection(None, None, {**home, "TRAINSHED_KEY": "ts_b"})
        assert (found.url, found.key) == (STORED, "ts_b")

    def test_a_trailing_slash_does_not_make_another_server(self, home: dict[str, str]) -> None:
        assert find_connection(f"{STORED}/", None, home).key == "ts_stored"

    def test_capital_letters_do_not_make_another_server(self, home: dict[str, str]) -> None:
        found = find_connection(STORED.replace("http", "HTTP"), None, home)
        assert (found.url, found.key) == (STORED, "ts_stored")
        assert checked_url("HTTPS://Example.ORG:1/Under/") == "https://example.org:1/Under"

    def test_an_empty_variable_is_none(self, home: dict[str, str]) -> None:
        assert find_connection(None, None, {**home, "TRAINSHED_URL": ""}).url == STORED


class TestRefusals:
    def test_the_stored_key_is_never_shown_to_another_server(self, home: dict[str, str]) -> None:
        with pytest.raises(UsageProblem, match="No API key for http://elsewhere:9"):
            find_connection("http://elsewhere:9", None, home)

    def test_without_any_address_it_says_how_to_start_a_server(self, tmp_path: Path) -> None:
        with pytest.raises(UsageProblem, match="trainshed up"):
            find_connection(None, "ts_a", {"TRAINSHED_HOME": str(tmp_path)})

    @pytest.mark.parametrize(
        "url", ["127.0.0.1:8000", "ftp://a", "http://", "http://a:port", "http://[::1", "http://u:p@a"]
    )
    def test_what_is_no_address_is_refused_with_an_example(self, url: str) -> None:
        with pytest.raises(UsageProblem, match=r"http://127\.0\.0\.1:8000"):
            find_connection(url, "ts_a", {})

    @pytest.mark.parametrize("key", ["ts_ä", "ts_\n"])
    def test_a_key_that_no_header_can_carry_is_refused(self, key: str) -> None:
        with pytest.raises(UsageProblem, match="ts_…"):
            find_connection("http://a:1", key, {})


class TestFile:
    def test_only_this_user_can_read_it(self, tmp_path: Path) -> None:
        write_client_file(tmp_path / "client.json", STORED, "ts_a")
        assert stat.S_IMODE((tmp_path / "client.json").stat().st_mode) == 0o600

    def test_it_is_replaced_whole_and_leaves_nothing_else(self, tmp_path: Path) -> None:
        (tmp_path / "client.new").write_text("left by a crash")
        for key in ("ts_a", "ts_b"):
            write_client_file(tmp_path / "client.json", STORED, key)
        assert [path.name for path in tmp_path.iterdir()] == ["client.json"]
        assert json.loads((tmp_path / "client.json").read_text()) == {"url": STORED, "key": "ts_b"}

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"url": "http://a"}'])
    def test_one_that_cannot_be_read_is_like_none(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "client.json").write_text(text)
        assert read_client_file(tmp_path / "client.json") is None

    def test_it_lies_in_the_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        assert client_file({"TRAINSHED_HOME": "/srv/ts"}) == Path("/srv/ts/client.json")
        assert client_file({}) == tmp_path / ".trainshed" / "client.json"


class TestConnection:
    @pytest.mark.parametrize(
        ("url", "local"),
        [
            ("http://127.0.0.1:1", True),
            ("http://127.3.2.1:1", True),
            ("http://[::1]:1", True),
            ("http://localhost:1", True),
            ("http://10.0.0.1:1", False),
            ("https://trainshed.example", False),
        ],
    )
    def test_it_knows_whether_the_server_is_on_this_host(self, url: str, *, local: bool) -> None:
        assert Connection(url, "ts_a").is_local is local

    def test_its_text_does_not_show_the_key(self) -> None:
        assert "ts_a" not in repr(Connection("http://a:1", "ts_a"))
