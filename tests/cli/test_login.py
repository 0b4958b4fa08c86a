"""`trainshed login` and `logout`: a key is checked, stored for this user alone, and shown to nobody else."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli.connection import find_connection, read_client_file, write_client_file
from app.cli.up.__main__ import _sentences
from app.cli.up.service import Ready
from app.settings import Settings
from tests.cli.fake_server import FakeServer, Ran, listing, problem, refuses

URL = "https://trainshed.example.org"
Login = Callable[..., Ran]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def login(server: FakeServer, trainshed: Any) -> Login:
    """Runs `trainshed login ARGUMENT…` as who has set no variable."""
    server.on("GET /v1/jobs", listing())

    def call(*arguments: str, **options: Any) -> Ran:
        return trainshed("login", *arguments, **{"environ": {}, **options})  # type: ignore[no-any-return]

    return call


def stored(home: Path) -> dict[str, str]:
    content: dict[str, str] = json.loads((home / "login.json").read_text())
    return content


class TestLogin:
    def test_the_key_is_asked_for_checked_and_stored(self, server: FakeServer, login: Login, home: Path) -> None:
        ran = login(f"{URL}/", typed="ts_typed")
        assert (ran.code, ran.err) == (0, f"API key for {URL}: ")
        assert ran.out == f"Logged in to {URL}; the key is in {home / 'login.json'}.\n"
        assert stored(home) == {"url": URL, "key": "ts_typed"}
        assert [request.headers["Authorization"] for request in server.requests] == ["Bearer ts_typed"]

    def test_only_this_user_can_read_it(self, login: Login, home: Path) -> None:
        login(URL, typed="ts_typed")
        assert stat.S_IMODE((home / "login.json").stat().st_mode) == 0o600
        assert stat.S_IMODE(home.stat().st_mode) == 0o700

    @pytest.mark.parametrize("text", ["ts_piped\n", "  ts_piped\nmore\n", "ts_piped"])
    def test_it_can_be_piped_in(self, login: Login, home: Path, text: str) -> None:
        assert login(URL, "--key-stdin", stdin=text).code == 0
        assert stored(home)["key"] == "ts_piped"

    def test_it_can_lie_in_a_file(self, login: Login, home: Path, tmp_path: Path) -> None:
        file = tmp_path / "key"
        file.write_text("ts_filed\n# of ada's laptop\n")
        assert login(URL, "--key-file", str(file)).code == 0
        assert stored(home)["key"] == "ts_filed"

    def test_json_has_no_key(self, login: Login, home: Path) -> None:
        ran = login(URL, "--key-stdin", "--json", stdin="ts_piped\n")
        assert ran.json == {"url": URL, "file": str(home / "login.json")}
        assert "ts_piped" not in ran.out + ran.err

    def test_a_variable_that_comes_before_it_is_told(self, login: Login) -> None:
        ran = login(URL, "--key-stdin", stdin="ts_a", environ={"TRAINSHED_URL": "http://other:1"})
        assert "TRAINSHED_URL is set, and comes before what is stored." in ran.err


class TestRefusals:
    def test_a_key_that_the_server_does_not_know_is_not_stored(
        self, server: FakeServer, login: Login, home: Path
    ) -> None:
        server.on("GET /v1/jobs", problem(401, "unauthenticated", "This key does not work."))
        ran = login(URL, "--key-stdin", stdin="ts_wrong")
        assert ran.code == 2
        assert "This key does not work." in ran.err
        assert not home.exists()

    def test_a_server_that_does_not_answer_is_not_stored(self, server: FakeServer, login: Login, home: Path) -> None:
        server.on("GET /v1/jobs", refuses)
        assert login(URL, "--key-stdin", stdin="ts_a").code == 3
        assert not home.exists()

    @pytest.mark.parametrize("url", ["http://gpu-box:8000", "HTTP://gpu-box:8000"])
    def test_the_key_is_not_sent_in_the_open(self, server: FakeServer, login: Login, url: str) -> None:
        ran = login(url, typed="ts_a")
        assert ran.code == 2
        assert "everybody on the way could read the key" in ran.err
        assert server.requests == []

    @pytest.mark.parametrize(
        "arguments", [["http://127.0.0.1:8000"], ["http://localhost:8000"], ["http://gpu-box:8000", "--insecure"]]
    )
    def test_it_may_be_on_this_host_or_where_it_was_asked_for(self, login: Login, arguments: list[str]) -> None:
        assert login(*arguments, typed="ts_a").code == 0

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ([], "There is no terminal to ask for the key"),
            (["--key-stdin"], "No key was given"),
            (["--key-file", "/nonexistent"], "/nonexistent cannot be read: No such file or directory."),
            (["--key-file", "/nonexistent", "--key-stdin"], "not both"),
        ],
    )
    def test_without_a_key_it_says_how_to_give_one(self, login: Login, arguments: list[str], said: str) -> None:
        ran = login(URL, *arguments)
        assert ran.code == 2
        assert said in ran.err

    def test_what_is_no_address_and_what_is_no_key(self, login: Login) -> None:
        assert "is not a server's address" in login("trainshed.example.org", typed="ts_a").err
        assert "no key has" in login(URL, typed="ts_ä").err


class TestWhereCommandsGo:
    def test_a_login_comes_before_what_up_stored_and_logout_brings_that_back(
        self, login: Login, trainshed: Any, home: Path
    ) -> None:
        home.mkdir()
        write_client_file(home / "client.json", "http://127.0.0.1:1111", "ts_local")
        login(URL, typed="ts_typed")
        environ = {"TRAINSHED_HOME": str(home)}
        assert find_connection(None, None, environ).url == URL
        # Each key goes to its own server alone.
        assert find_connection("http://127.0.0.1:1111", None, environ).key == "ts_local"
        assert find_connection(URL, None, environ).key == "ts_typed"
        ran = trainshed("logout", environ={})
        assert ran.out.splitlines() == [
            f"Logged out of {URL}.",
            "Client commands now go to http://127.0.0.1:1111, which `trainshed up` started here.",
        ]
        assert find_connection(None, None, environ).url == "http://127.0.0.1:1111"

    def test_logout_without_a_login_is_no_error(self, trainshed: Any) -> None:
        ran = trainshed("logout", environ={})
        assert (ran.code, ran.out) == (0, "Nobody was logged in.\n")
        assert trainshed("logout", "--json", environ={}).json == {"url": None, "next": None}

    def test_up_says_that_commands_go_elsewhere(self, login: Login, home: Path) -> None:
        ready = Ready("http://127.0.0.1:1111", "ts_local", "", (), 1.0)
        settings = Settings(home=home)
        assert not any(URL in line for line in _sentences(ready, settings))
        login(URL, typed="ts_typed")
        assert any(f"go to {URL}; `trainshed logout`" in line for line in _sentences(ready, settings))
        assert read_client_file(home / "client.json") is None
