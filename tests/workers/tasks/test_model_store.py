"""Models that were fetched: checked once, kept while somebody needs them, given up when they take too much."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.artifacts.models import Artifact
from app.storage import LocalStorage
from app.storage.keys import InvalidKey
from tests.api.client import ONE_DATABASE
from tests.workers.tasks.bench import Bench, add_file
from workers.model_store import ModelStore, ModelUnreadable

pytestmark = ONE_DATABASE


class CountingStorage(LocalStorage):
    """Knows how often a file was fetched, and can fail."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gets = 0
        self.full = False

    def get(self, key: str, destination: Path) -> None:
        self.gets += 1
        if self.full:
            raise OSError(28, "No space left on device")
        super().get(key, destination)


@pytest.fixture
def storage(bench: Bench) -> CountingStorage:
    return CountingStorage(bench.folder / "storage")


@pytest.fixture
def models(storage: CountingStorage, tmp_path: Path) -> ModelStore:
    return ModelStore(storage, tmp_path / "fetched", max_bytes=20)


@contextmanager
def held(models: ModelStore, files: list[Artifact]) -> Iterator[dict[str, bytes]]:
    with models.held(files) as folder:
        yield {path.name: path.read_bytes() for path in folder.iterdir()}


def folders(models: ModelStore) -> list[str]:
    return [path.name for path in models._folder.iterdir()]


class TestHeld:
    def test_the_files_are_there_under_their_names(self, bench: Bench, models: ModelStore) -> None:
        with held(models, bench.files()) as found:
            assert found == {"model.json": b"{}", "model.safetensors": b"weights"}

    def test_a_model_is_fetched_once(self, bench: Bench, models: ModelStore, storage: CountingStorage) -> None:
        for _ in range(3):
            with models.held(bench.files()):
                pass
        assert storage.gets == 2

    @pytest.mark.parametrize("what", ["a file", "the model", "all"])
    def test_one_that_somebody_cleaned_away_is_fetched_again(self, bench: Bench, models: ModelStore, what: str) -> None:
        with models.held(bench.files()) as folder:
            pass
        if what == "a file":
            (folder / "model.json").unlink()
        else:
            shutil.rmtree(folder if what == "the model" else folder.parent)
        with held(models, bench.files()) as found:
            assert found == {"model.json": b"{}", "model.safetensors": b"weights"}

    def test_one_that_was_stored_anew_is_another_one(self, bench: Bench, models: ModelStore) -> None:
        with models.held(bench.files()) as old:
            pass
        add_file(bench.asker, bench.storage, "model.safetensors", b"more of it", bench.folder)
        with models.held(bench.files()) as new:
            assert (new / "model.safetensors").read_bytes() == b"more of it"
        assert old != new

    def test_many_that_ask_at_once_share_it(self, bench: Bench, models: ModelStore, storage: CountingStorage) -> None:
        files = bench.files()

        def read(_: int) -> bytes:
            with models.held(files) as folder:
                return (folder / "model.safetensors").read_bytes()

        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(read, range(16))) == {b"weights"}
        assert len(folders(models)) == 1
        assert storage.gets <= 16

    def test_what_an_earlier_start_left_is_gone(self, storage: CountingStorage, tmp_path: Path) -> None:
        (tmp_path / "fetched" / "old").mkdir(parents=True)
        models = ModelStore(storage, tmp_path / "fetched")
        assert folders(models) == []


class TestRoom:
    def other(self, bench: Bench, number: int) -> list[Artifact]:
        add_file(bench.asker, bench.storage, "model.safetensors", b"weights %d" % number, bench.folder)
        return bench.files()

    def test_the_least_recently_used_goes_first(self, bench: Bench, models: ModelStore) -> None:
        # Eleven bytes each, and room for twenty.
        first = self.other(bench, 1)
        with models.held(first) as a:
            pass
        second = self.other(bench, 2)
        with models.held(second) as b:
            pass
        assert not a.exists()
        assert b.exists()

    def test_what_is_in_use_stays(self, bench: Bench, models: ModelStore) -> None:
        first = self.other(bench, 1)
        with models.held(first) as a:
            second = self.other(bench, 2)
            with models.held(second) as b:
                assert a.exists()
                assert b.exists()
        assert len(folders(models)) == 1


class TestUnreadable:
    def test_damaged_bytes(self, bench: Bench, models: ModelStore) -> None:
        bench.spoil()
        with pytest.raises(ModelUnreadable, match=r"model\.safetensors is damaged"), models.held(bench.files()):
            pass
        assert folders(models) == []

    def test_a_missing_file(self, bench: Bench, models: ModelStore) -> None:
        files = bench.files()
        bench.storage.delete(files[0].storage_key)
        with pytest.raises(ModelUnreadable, match=r"model\.json cannot be read"), models.held(files):
            pass

    def test_a_storage_that_fails_and_works_again(
        self, bench: Bench, models: ModelStore, storage: CountingStorage
    ) -> None:
        storage.full = True
        with pytest.raises(ModelUnreadable), models.held(bench.files()):
            pass
        storage.full = False
        with held(models, bench.files()) as found:
            assert found["model.safetensors"] == b"weights"

    def test_a_key_that_leads_elsewhere_is_a_fault_of_ours(self, bench: Bench, models: ModelStore) -> None:
        files = bench.files()
        files[0].storage_key = "../../etc/passwd"
        with pytest.raises(InvalidKey), models.held(files):
            pass
