"""Environments of packages: what is kept, and where packages come from."""

import importlib.util
from pathlib import Path

import pytest

from app.cli.doctor.environments import check_environments
from app.cli.doctor.findings import Finding, Status, run_check
from app.settings import load_settings
from tests.cli.doctor.planting import GIB, Host
from workers.environments.shelf import FOLDER, Record, Shelf


def found(host: Host) -> dict[str, Finding]:
    place = host.place(load_settings(host.environ), host.environ)
    return {finding.name: finding for finding in run_check("environments", check_environments, place)}


class TestWhatIsKept:
    def test_none_yet_is_well(self, host: Host) -> None:
        told = found(host)["environments"]
        assert (told.status, told.message) == (
            Status.OK,
            f"None in {host.home}/run/{FOLDER} yet; at most 50.0 GiB.",
        )

    def test_their_number_and_bytes_are_told(self, host: Host) -> None:
        shelf = Shelf(host.home / "run" / FOLDER)
        for key in ("a", "b"):
            shelf.begin(key, "")
            shelf.finish(key, Record("torch", "3.12", (), {}, 3 * GIB, 1.0, "2026-01-01T00:00:00Z"))
        assert found(host)["environments"].message.startswith(f"2 in {host.home}/run/{FOLDER}, 6.0 GiB of at most ")

    def test_it_is_one_of_all_checks(self, host: Host) -> None:
        assert host.examine()["environments"].status is Status.OK

    def test_without_a_worker_nothing_is_installed(self, host: Host) -> None:
        del host.environ["TRAINSHED_INTERPRETERS"]
        assert {name: finding.status for name, finding in found(host).items()} == {"environments": Status.SKIPPED}


class TestPip:
    def test_a_worker_without_it_is_a_fault(self, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pip" else name)
        told = found(host)["environments.pip"]
        assert told.status is Status.FAULT
        assert "`worker`" in told.advice


class TestSources:
    def test_what_pip_knows_is_told_as_that(self, host: Host) -> None:
        told = found(host)["environments.sources"]
        assert told.message == "Packages come from what pip is configured to on this host."

    def test_all_places_are_told_and_no_password(self, host: Host, tmp_path: Path) -> None:
        host.environ["TRAINSHED_PIP_INDEX_URL"] = "https://me:secret@index.example.org/simple"
        host.environ["TRAINSHED_PIP_EXTRA_INDEX_URLS"] = "https://more.example.org/simple"
        host.environ["TRAINSHED_PIP_FIND_LINKS"] = str(tmp_path)
        told = found(host)["environments.sources"]
        assert told.status is Status.OK
        assert "index.example.org/simple, https://more.example.org/simple, " + str(tmp_path) in told.message
        assert "secret" not in told.message

    def test_no_index_and_no_folder_is_a_warning(self, host: Host) -> None:
        host.environ["TRAINSHED_PIP_INDEX_URL"] = "none"
        told = found(host)["environments.sources"]
        assert (told.status, "no package can be installed" in told.message) == (Status.WARNING, True)

    def test_no_index_and_a_folder_is_well(self, host: Host, tmp_path: Path) -> None:
        host.environ |= {"TRAINSHED_PIP_INDEX_URL": "none", "TRAINSHED_PIP_FIND_LINKS": str(tmp_path)}
        assert found(host)["environments.sources"].message == f"Packages come from no index, {tmp_path}."

    def test_a_folder_that_is_not_there_is_a_fault(self, host: Host) -> None:
        host.environ["TRAINSHED_PIP_FIND_LINKS"] = "/nowhere/wheels"
        told = found(host)["environments.sources"]
        assert (told.status, "No such file" in told.message) == (Status.FAULT, True)

    def test_a_folder_that_trainers_cannot_read_is_a_warning(self, host: Host, tmp_path: Path) -> None:
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o750)
        host.environ["TRAINSHED_PIP_FIND_LINKS"] = str(closed)
        assert found(host)["environments.sources"].status is Status.OK
        host.environ["TRAINSHED_TRAINER_UIDS"] = "20000-20255"
        told = found(host)["environments.sources"]
        assert (told.status, told.advice) == (Status.WARNING, f"chmod -R o+rX {closed}")
