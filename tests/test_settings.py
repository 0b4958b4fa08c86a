import json
from pathlib import Path

import pytest

from app.errors import TrainshedError
from app.settings import InvalidSettings, Settings, load_settings


def refusal(environ: dict[str, str]) -> str:
    with pytest.raises(InvalidSettings) as caught:
        load_settings(environ)
    assert isinstance(caught.value, TrainshedError)
    assert caught.value.code == "invalid_settings"
    return str(caught.value)


class TestDefaults:
    def test_nothing_set_means_all_in_one_folder_of_the_user(self) -> None:
        settings = load_settings({})
        home = Path.home() / ".trainshed"
        assert settings.home == home
        assert settings.effective_database_url == f"sqlite:///{home}/trainshed.db"
        assert settings.effective_storage_url == f"file://{home}/storage"
        assert settings.effective_run_dir == home / "run"

    def test_only_loopback_is_bound_and_answered(self) -> None:
        settings = load_settings({})
        assert settings.host == "127.0.0.1"
        assert set(settings.allowed_hosts) == {"127.0.0.1", "localhost", "[::1]", "::1"}

    def test_the_home_moves_everything_that_is_not_set(self) -> None:
        settings = load_settings({"TRAINSHED_HOME": "/srv/ts", "TRAINSHED_STORAGE_URL": "file:///mnt/big"})
        assert settings.effective_database_url == "sqlite:////srv/ts/trainshed.db"
        assert settings.effective_storage_url == "file:///mnt/big"
        assert settings.effective_run_dir == Path("/srv/ts/run")


class TestReading:
    def test_every_field_has_a_variable(self) -> None:
        environ = {
            "TRAINSHED_DATABASE_URL": "postgresql+psycopg://db/ts",
            "TRAINSHED_PORT": "8080",
            "TRAINSHED_DEVICES": "cuda",
            "TRAINSHED_CPU_SLOTS": "0",
            "TRAINSHED_LEASE_S": "45.5",
            "TRAINSHED_INTERPRETERS": '{"torch": "/opt/torch/bin/python"}',
        }
        settings = load_settings(environ)
        assert settings.effective_database_url == "postgresql+psycopg://db/ts"
        assert (settings.port, settings.devices, settings.cpu_slots, settings.lease_s) == (8080, "cuda", 0, 45.5)
        assert settings.interpreters == {"torch": Path("/opt/torch/bin/python")}

    def test_a_list_is_written_with_commas(self) -> None:
        settings = load_settings({"TRAINSHED_ALLOWED_HOSTS": "ts.example.org, 10.0.0.1,"})
        assert settings.allowed_hosts == ("ts.example.org", "10.0.0.1")

    def test_other_programs_variables_are_nobodys_business(self) -> None:
        environ = {"PATH": "/bin", "TRAINSHEDX": "1", "trainshed_port": "1", "TRAINSHED_KEY": "ts_x"}
        assert load_settings(environ | {"TRAINSHED_URL": "http://127.0.0.1:1"}) == load_settings({})

    def test_it_is_the_process_environment_that_is_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRAINSHED_MAX_QUEUED_JOBS", "7")
        assert load_settings().max_queued_jobs == 7

    def test_what_was_read_cannot_be_changed(self) -> None:
        with pytest.raises(ValueError, match="frozen"):
            setattr(load_settings({}), "port", 1)  # noqa: B010 - written plainly, the type checker refuses it too


class TestSecretsFromFiles:
    def test_any_setting_can_come_from_a_file(self, tmp_path: Path) -> None:
        secret = tmp_path / "url"
        secret.write_text("postgresql+psycopg://ts:s3cret@db/ts\n")
        settings = load_settings({"TRAINSHED_DATABASE_URL_FILE": str(secret)})
        assert settings.database_url == "postgresql+psycopg://ts:s3cret@db/ts"

    def test_a_file_that_is_missing(self, tmp_path: Path) -> None:
        message = refusal({"TRAINSHED_DATABASE_URL_FILE": str(tmp_path / "none")})
        assert message == "TRAINSHED_DATABASE_URL_FILE names a file that cannot be read: No such file or directory."

    def test_a_file_for_something_unknown(self) -> None:
        assert refusal({"TRAINSHED_SECRET_FILE": "/x"}).startswith("TRAINSHED_SECRET_FILE is not a setting.")


class TestRefusals:
    def test_an_unknown_variable_is_named_with_all_that_are_known(self) -> None:
        message = refusal({"TRAINSHED_DATABSE_URL": "sqlite:///x"})
        assert message.startswith("TRAINSHED_DATABSE_URL is not a setting. Known: ")
        assert all(f"TRAINSHED_{name.upper()}" in message for name in Settings.model_fields)

    @pytest.mark.parametrize(
        ("variable", "value"),
        [
            ("TRAINSHED_PORT", "70000"),
            ("TRAINSHED_PORT", "http"),
            ("TRAINSHED_DEVICES", "gpu"),
            ("TRAINSHED_CPU_SLOTS", "-1"),
            ("TRAINSHED_LEASE_S", "0"),
            ("TRAINSHED_MAX_BODY_BYTES", "1e6x"),
            ("TRAINSHED_SQLITE_SYNCHRONOUS", "off"),
            ("TRAINSHED_INTERPRETERS", "torch=/usr/bin/python"),
        ],
    )
    def test_a_value_that_cannot_be_names_its_variable(self, variable: str, value: str) -> None:
        assert f"{variable}: " in refusal({variable: value})

    def test_a_broken_interpreter_list_shows_how_it_is_written(self) -> None:
        message = refusal({"TRAINSHED_INTERPRETERS": "{"})
        example = message[message.index("{") : message.index("}") + 1]
        assert json.loads(example) == {"torch": "/opt/torch/bin/python"}

    def test_all_problems_are_told_at_once(self) -> None:
        message = refusal({"TRAINSHED_PORT": "x", "TRAINSHED_DEVICES": "y"})
        assert "TRAINSHED_PORT: " in message
        assert "TRAINSHED_DEVICES: " in message


class TestTelemetry:
    def test_it_is_on_and_zero_turns_it_off(self) -> None:
        assert load_settings({}).telemetry_s == 10.0
        assert load_settings({"TRAINSHED_TELEMETRY_S": "0"}).telemetry_s == 0.0

    @pytest.mark.parametrize("text", ["-1", "inf", "nan", "86401", "often"])
    def test_what_nobody_can_wait_for_is_refused(self, text: str) -> None:
        assert "TRAINSHED_TELEMETRY_S: " in refusal({"TRAINSHED_TELEMETRY_S": text})


class TestTimesFitTogether:
    def test_three_heartbeats_must_fit_into_a_lease_less_its_margin(self) -> None:
        # 60 - 10 = 50 s hold three heartbeats of 16 s, but not of 17 s.
        load_settings({"TRAINSHED_HEARTBEAT_S": "16", "TRAINSHED_CLAIM_S": "20"})
        message = refusal({"TRAINSHED_HEARTBEAT_S": "17", "TRAINSHED_CLAIM_S": "20"})
        assert all(name in message for name in ("TRAINSHED_LEASE_S", "TRAINSHED_LEASE_MARGIN_S"))
        assert "for example TRAINSHED_LEASE_S=60" in message

    def test_a_margin_as_long_as_the_lease_is_refused(self) -> None:
        assert "TRAINSHED_LEASE_MARGIN_S" in refusal({"TRAINSHED_LEASE_S": "10", "TRAINSHED_LEASE_MARGIN_S": "10"})

    def test_a_placement_must_live_longer_than_a_heartbeat(self) -> None:
        assert "TRAINSHED_CLAIM_S must be at least TRAINSHED_HEARTBEAT_S" in refusal({"TRAINSHED_CLAIM_S": "4"})

    def test_the_short_times_of_fault_tests_are_possible(self) -> None:
        environ = {"LEASE_S": "3", "LEASE_MARGIN_S": "0.5", "HEARTBEAT_S": "0.5", "CLAIM_S": "1", "STOP_GRACE_S": "1"}
        assert load_settings({f"TRAINSHED_{name}": text for name, text in environ.items()}).lease_s == 3.0


class TestNeighbours:
    def test_displays_are_ignored_unless_other_names_are_given(self) -> None:
        assert "Xorg" in load_settings({}).ignored_processes
        given = load_settings({"TRAINSHED_IGNORED_PROCESSES": "Xorg, my-monitor,"})
        assert given.ignored_processes == ("Xorg", "my-monitor")
        assert load_settings({"TRAINSHED_IGNORED_PROCESSES": ""}).ignored_processes == ()
