"""What pip is given, and what the packages are that it has installed."""

import json
from pathlib import Path

import pytest

from tests.workers.environments.journal import Journal, environments
from tests.workers.environments.silent_index import silent_index
from tests.workers.environments.wheels import wheel
from workers.environments.errors import EnvironmentCancelled, EnvironmentFailed
from workers.processes import LAUNCH_TAG

OF_THE_WORKER = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/home/worker",
    "TRAINSHED_DATABASE_URL": "postgresql://worker:secret@db/trainshed",
    "PYTHONPATH": "/somewhere",
    "HTTPS_PROXY": "http://proxy.example.org:3128",
    "SSL_CERT_FILE": "/etc/ssl/ours.pem",
    "PIP_INDEX_URL": "https://me:secret@index.example.org/simple",
    "PIP_TARGET": "/elsewhere",
}
# In the place of the Python that has pip: says what it was given, and installs nothing.
STAND_IN = '#!/bin/sh\nfor word in "$@"; do echo "word $word"; done\nenv\ncat requirements.txt constraints.txt\n'
SPY = {"spy.pth": "import json, os; print(json.dumps(dict(os.environ))); os._exit(3)\n"}


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    path = tmp_path / "stand-in"
    path.write_text(STAND_IN)
    path.chmod(0o755)
    return path


def heard(stand_in: Path, folder: Path, *, index: str = "", requirements: str = "rich==14.1.0") -> list[str]:
    journal = Journal()
    there = environments(folder, index=index, environ=OF_THE_WORKER, installer=stand_in)
    journal.obtain(there, requirements)
    return journal.lines


def variables(lines: list[str]) -> dict[str, str]:
    return dict(line.split("=", 1) for line in lines if not line.startswith("word ") and "==" not in line)


class TestWhatPipIsGiven:
    def test_the_requirements_and_what_must_stay(self, stand_in: Path, tmp_path: Path) -> None:
        lines = heard(stand_in, tmp_path / "e", requirements="tqdm\nrich==14.1.0")
        assert lines[-3:-1] == ["rich==14.1.0", "tqdm"]
        assert lines[-1].startswith("trainshed==")

    def test_it_asks_nobody_keeps_nothing_and_installs_into_the_environment(
        self, stand_in: Path, tmp_path: Path
    ) -> None:
        words = [line.removeprefix("word ") for line in heard(stand_in, tmp_path / "e") if line.startswith("word ")]
        assert words[:4] == ["-I", "-m", "pip", "--python"]
        assert Path(words[4]).is_relative_to(tmp_path / "e")
        assert {"install", "--no-input", "--no-cache-dir", "--disable-pip-version-check"} <= set(words)

    def test_nothing_of_the_worker_but_how_to_reach_an_index(self, stand_in: Path, tmp_path: Path) -> None:
        given = variables(heard(stand_in, tmp_path / "e"))
        for name in ("HTTPS_PROXY", "SSL_CERT_FILE", "PATH"):
            assert given[name] == OF_THE_WORKER[name]
        assert given["PIP_INDEX_URL"].startswith("https://")
        assert given["PIP_ONLY_BINARY"] == ":all:"
        assert not {"TRAINSHED_DATABASE_URL", "PYTHONPATH", "PIP_TARGET"} & given.keys()
        assert given[LAUNCH_TAG]

    def test_home_and_temporary_files_are_in_a_folder_that_goes(self, stand_in: Path, tmp_path: Path) -> None:
        given = variables(heard(stand_in, tmp_path / "e"))
        assert given["HOME"] == given["TMPDIR"]
        assert Path(given["HOME"]).parent == tmp_path / "e"
        assert not Path(given["HOME"]).exists()

    def test_an_index_of_ours_is_the_only_one(self, stand_in: Path, tmp_path: Path) -> None:
        given = variables(heard(stand_in, tmp_path / "e", index="https://other.example.org/simple"))
        assert given["PIP_INDEX_URL"] == "https://other.example.org/simple"
        assert given["PIP_CONFIG_FILE"] == "/dev/null"


class TestSecrets:
    def test_a_password_of_the_index_is_in_no_line(self, tmp_path: Path) -> None:
        with silent_index() as index:
            journal = Journal(cancelled=index.asked.is_set)
            there = environments(tmp_path / "e", index=index.url.replace("127", "me:s3cret@127"))
            with pytest.raises(EnvironmentCancelled):
                journal.obtain(there, "tiny")
        assert journal.lines[0].startswith("Looking in indexes: http")
        assert not any("s3cret" in line for line in journal.lines)

    def test_what_was_installed_sees_none_when_it_is_tried(self, tmp_path: Path) -> None:
        house = wheel(tmp_path / "wheels", "spy", files=SPY).parent
        there = environments(tmp_path / "e", house, environ=OF_THE_WORKER)
        with pytest.raises(EnvironmentFailed, match="Python did not start") as caught:
            Journal().obtain(there, "spy")
        seen = json.loads(caught.value.detail[-1])
        assert "secret" not in json.dumps(seen)
        assert [name for name in seen if name.startswith(("PIP_", "TRAINSHED_D", "HTTP"))] == []
