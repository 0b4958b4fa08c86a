"""What a worker's start, and its looks at the host, make of the folder of environments."""

import stat
from pathlib import Path

from app.settings import Settings
from tests.workers.environments.journal import PLENTY, PYTHON
from workers.environments.environments import Environments
from workers.environments.shelf import FOLDER, Record, Shelf
from workers.startup import _close_to_others, probe


def put(folder: Path, key: str) -> None:
    shelf = Shelf(folder)
    shelf.begin(key, "")
    shelf.finish(key, Record("torch", "3.12", (), {}, 7, 1.0, "2026-01-01T00:00:00Z"))


class TestCondition:
    def test_number_and_bytes_are_told(self, tmp_path: Path) -> None:
        settings = Settings(home=tmp_path, run_dir=tmp_path / "run", disk_reserve_bytes=0)
        assert (probe(settings, many_processes=False).environments) == 0
        for key in ("a", "b"):
            put(tmp_path / "run" / FOLDER, key)
        seen = probe(settings, many_processes=False)
        assert (seen.environments, seen.environments_bytes) == (2, 14)


class TestClosing:
    def test_trainers_may_still_enter_what_was_installed_for_them(self, tmp_path: Path) -> None:
        put(tmp_path / "run" / FOLDER, "a")
        (tmp_path / "run" / "models").mkdir(mode=0o755)
        for folder in (tmp_path, tmp_path / "run"):
            _close_to_others(folder, tmp_path / "run")
        assert stat.S_IMODE((tmp_path / "run" / FOLDER).stat().st_mode) == 0o755
        assert stat.S_IMODE((tmp_path / "run" / "models").stat().st_mode) == 0o750


class TestSettings:
    def test_all_of_them_reach_the_installation(self, tmp_path: Path) -> None:
        settings = Settings(
            run_dir=tmp_path,
            pip_index_url="https://index.example.org/simple",
            pip_extra_index_urls=("https://more.example.org/simple",),
            pip_find_links="/wheels",
            pip_source_builds="on",
            environment_timeout_s=5,
            max_environment_bytes=6,
            environments_bytes=7,
            keep_environments_days=2,
            disk_reserve_bytes=8,
        )
        there = Environments.of(settings, {"torch": PYTHON}, environ={})
        sources, limits, keeping = there._sources, there._limits, there._keeping
        assert (sources.index, sources.extra_indexes) == (settings.pip_index_url, settings.pip_extra_index_urls)
        assert (sources.find_links, sources.source_builds) == ("/wheels", True)
        assert (limits.timeout_s, limits.most_bytes, limits.reserve_bytes) == (5, 6, 8)
        assert (keeping.most_bytes, keeping.longest_s) == (7, 2 * 86_400)
        assert there._shelf.folder_of("a") == tmp_path / FOLDER / "a"

    def test_sources_are_not_built_unless_that_is_set(self, tmp_path: Path) -> None:
        there = Environments.of(Settings(run_dir=tmp_path), {"torch": PYTHON})
        assert there._sources.source_builds is False
        assert there._limits.most_bytes < PLENTY
