"""What the demo trains: every spec is one that the service accepts, and the bars can tell good from bad."""

import importlib.util
from collections import Counter

import pytest

from app.cli.demo.plan import FRAMEWORKS, Trial, penguins_file, trials
from app.ids import new_id
from app.spec import JobSpec, parse_spec, resolve
from app.tables import builtin_schema, profile_csv

DATASET = new_id("ds", unix_ms=0)


def all_trials() -> list[Trial]:
    return list(trials(DATASET))


class TestTrials:
    def test_each_task_runs_on_each_framework(self) -> None:
        assert Counter(trial.spec["framework"] for trial in all_trials()) == dict.fromkeys(FRAMEWORKS, 6)

    @pytest.mark.parametrize("trial", all_trials(), ids=lambda trial: trial.name)
    def test_every_spec_is_accepted_and_keeps_a_test_part(self, trial: Trial) -> None:
        file = penguins_file()
        assert file is not None
        source = trial.spec["data"]["source"]
        table = profile_csv(file) if source == DATASET else builtin_schema(source)
        spec = parse_spec(trial.spec)
        assert isinstance(spec, JobSpec)
        effective = resolve(spec, table, "cpu")
        assert effective.data.split.test == 0.2
        assert trial.metric.removeprefix("test_") in effective.metrics

    @pytest.mark.parametrize("trial", all_trials(), ids=lambda trial: trial.name)
    def test_no_bar_can_be_reached_by_guessing(self, trial: Trial) -> None:
        # The largest class of the penguins is 0.44 of them, of the digits 0.10; predicting the mean has an R² of 0.
        guess = {"digits": 0.10, "penguins": 0.44, "diabetes": 0.0}[trial.name.split()[0].partition("-")[0]]
        assert trial.bar >= guess + 0.3

    def test_without_an_upload_there_are_only_the_built_in_tables(self) -> None:
        assert {trial.spec["data"]["source"] for trial in trials(None)} == {"digits", "diabetes"}


class TestPenguins:
    def test_the_file_is_found_without_importing_the_package(self) -> None:
        file = penguins_file()
        assert file is not None
        assert file.read_text(encoding="utf-8").startswith("species,")

    def test_a_package_that_is_not_installed_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
        assert penguins_file() is None
