"""What a worker finds out about its host before it registers."""

import json
from pathlib import Path

import pytest

from app.settings import Settings, load_settings
from tests.fakes import FakeClock
from workers.interpreters import Interpreter
from workers.inventory import InvalidInventory
from workers.survey import NO_FRAMEWORK, Survey, survey

BROKEN = {"torch": Interpreter(Path("/bin/false"), "2.13.0")}


def settings_of(folder: Path, **changes: str) -> Settings:
    values = {"TRAINSHED_HOME": str(folder), "TRAINSHED_CPU_SLOTS": "1", "TRAINSHED_DEVICES": "cpu"}
    return load_settings(values | {f"TRAINSHED_{name.upper()}": value for name, value in changes.items()})


def found(folder: Path, interpreters: dict[str, Interpreter], **changes: str) -> Survey:
    return survey(settings_of(folder, **changes), "box", interpreters, FakeClock())


class TestSurvey:
    def test_devices_and_the_state_of_the_host_are_there_at_once(self, tmp_path: Path) -> None:
        surveyed = found(tmp_path, BROKEN, self_test="off", metrics_port="9200")
        report = surveyed.surroundings.report()
        assert report.devices is not None
        assert [device.id for device in report.devices] == ["cpu-0@box"]
        assert report.reason is None
        assert report.condition.disk_total_bytes
        assert report.condition.metrics_port == 9200
        assert set(surveyed.offered) == {"torch"}

    def test_a_framework_that_fails_its_test_is_not_offered_and_says_why(self, tmp_path: Path) -> None:
        surveyed = found(tmp_path, BROKEN, self_test="on")
        assert surveyed.offered == {}
        problems = surveyed.surroundings.report().condition.problems
        (told,) = [remark.message for remark in problems if remark.code == "self_test_failed"]
        assert told.startswith("torch is not offered: ")

    def test_without_cards_no_test_is_made_unless_asked(self, tmp_path: Path) -> None:
        assert set(found(tmp_path, BROKEN, self_test="auto").offered) == {"torch"}

    def test_without_a_framework_the_host_says_that_it_can_run_nothing(self, tmp_path: Path) -> None:
        assert found(tmp_path, {}).surroundings.report().reason == NO_FRAMEWORK

    def test_a_silent_driver_is_told_and_waited_for_no_longer(self, tmp_path: Path) -> None:
        path = tmp_path / "cards.json"
        path.write_text(json.dumps({"devices": [], "driver_error": "Unknown Error"}))
        surveyed = found(tmp_path, BROKEN, simulated_inventory=str(path), cpu_slots="0")
        report = surveyed.surroundings.report()
        assert report.devices is None, "nothing new is known of those that an earlier start saw"
        assert [remark.code for remark in report.condition.blockers] == ["driver_silent"]
        assert report.reason == "The simulated driver does not answer: Unknown Error."
        assert surveyed.surroundings.beacon()["inventory_ok"] is False

    def test_a_file_of_cards_that_cannot_be_read_ends_the_start(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInventory):
            found(tmp_path, BROKEN, simulated_inventory=str(tmp_path / "nowhere.json"))
