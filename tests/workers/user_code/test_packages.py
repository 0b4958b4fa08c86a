"""The packages that a python model asks for: obtained before its process starts, held as long as that lives."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from app.errors import Cause
from tests.workers.user_code.conftest import Asker
from tests.workers.user_code.models import ROWS, TORCH, write_python_model
from workers.environments.errors import EnvironmentCancelled, EnvironmentFailed
from workers.predictor_handle import PredictionRefused, PredictorGone
from workers.user_predictor_handle import UserPredictors

REASON = "pip could not install rich==0: there is no such version."


@dataclass
class FakePackages:
    """Gives one interpreter, or raises; knows who holds what."""

    interpreter: Path = Path(sys.executable)
    error: Exception | None = None
    asked: list[tuple[str, Any]] = field(default_factory=list)
    held: set[str] = field(default_factory=set)

    def obtain(
        self,
        framework: str,
        requirements: Any,
        say: Callable[[str, str], None],
        cancelled: Callable[[], bool],
        *,
        holder: str,
        log: Callable[[str], None],
        runs_trainer: bool = False,
    ) -> Path:
        say("environment", "Builds.")
        log("Collecting rich")
        assert runs_trainer
        assert not cancelled()
        self.asked.append((framework, requirements))
        self.held.add(holder)
        if self.error is not None:
            raise self.error
        return self.interpreter

    def release(self, holder: str) -> None:
        self.held.discard(holder)


@pytest.fixture
def packages() -> FakePackages:
    return FakePackages()


@pytest.fixture
def equipped(asker: Asker, packages: FakePackages) -> Asker:
    asker.launch = replace(asker.launch, packages=packages)
    asker.pool = UserPredictors(asker.launch)
    return asker


class TestPackages:
    def test_they_are_held_until_the_process_has_ended(self, equipped: Asker, packages: FakePackages) -> None:
        saved = equipped.write()
        equipped.ask(saved, ROWS, requirements=["rich==14.1.0"])
        assert packages.asked == [("torch", ["rich==14.1.0"])]
        assert len(packages.held) == 1
        equipped.pool.stop()
        assert packages.held == set()

    def test_a_file_of_them_is_read_from_the_code(self, equipped: Asker, packages: FakePackages) -> None:
        files = {"net.py": TORCH, "needs/requirements.txt": "rich==14.1.0\n"}
        saved = write_python_model(equipped.folder / "model", files)
        equipped.ask(saved, ROWS, requirements="needs/requirements.txt")
        equipped.pool.stop()
        assert packages.asked == [("torch", "rich==14.1.0\n")]

    def test_a_file_that_is_not_in_the_code(self, equipped: Asker, packages: FakePackages) -> None:
        with pytest.raises(PredictionRefused, match=r"requirements\.txt") as caught:
            equipped.ask(equipped.write(), ROWS, requirements="requirements.txt")
        assert caught.value.code == "user_code"
        assert (packages.asked, equipped.left()) == ([], [])

    def test_they_are_found_by_the_users_code(self, equipped: Asker, packages: FakePackages) -> None:
        library = equipped.folder / "env" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
        (library / "site-packages").mkdir(parents=True)
        (library / "site-packages" / "layers_of_mine.py").write_text("from torch.nn import Linear as Mine\n")
        packages.interpreter = equipped.folder / "env" / "bin" / "python"
        source = TORCH.replace("from torch import nn", "from layers_of_mine import Mine").replace("nn.Linear", "Mine")
        saved = equipped.write(source)
        assert equipped.ask(saved, ROWS, requirements=["mine==1"])["labels"] == saved.labels(ROWS)
        equipped.pool.stop()

    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (EnvironmentFailed(REASON), PredictionRefused),
            (EnvironmentFailed("The disk is full.", cause=Cause.WORKER_LOST), PredictorGone),
            (EnvironmentCancelled(), PredictorGone),
        ],
        ids=["what was asked for", "the host", "no time left"],
    )
    def test_who_is_at_fault_when_there_are_none(
        self, equipped: Asker, packages: FakePackages, error: Exception, expected: type[Exception]
    ) -> None:
        packages.error = error
        with pytest.raises(expected, match=str(error)):
            equipped.ask(equipped.write(), ROWS, requirements=["rich==0"])
        assert (packages.held, equipped.left()) == (set(), [])
