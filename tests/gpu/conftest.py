"""What every test of the GPU suite stands on: a card, and a framework that was seen to compute on it."""

import importlib.util
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.attempts import device_of, start
from tests.gpu.cards import Card, NoCard, cards
from tests.workers.launcher.attempt import ROOT, Attempt
from workers.environment import framework_environment, trainer_environment
from workers.protocol import Device

FRAMEWORKS = {"torch": ("torch",), "tensorflow": ("tensorflow", "keras")}
_LIMIT_S = 300

Train = Callable[..., Attempt]
Compute = Callable[..., Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker("gpu")


@pytest.fixture(scope="session")
def all_cards() -> list[Card]:
    try:
        return cards()
    except NoCard as reason:
        pytest.skip(f"no card: {reason}")


@pytest.fixture(scope="session")
def card(all_cards: list[Card]) -> Card:
    """The first card that is not sliced."""
    whole = [card for card in all_cards if not card.sliced]
    if not whole:
        pytest.skip("every card is sliced (MIG); see gpu_slices.py")
    return whole[0]


@pytest.fixture(scope="session")
def two_cards(all_cards: list[Card]) -> tuple[Card, Card]:
    whole = [card for card in all_cards if not card.sliced]
    if len(whole) < 2:
        pytest.skip(f"needs two whole cards, and this host has {len(whole)}")
    return whole[0], whole[-1]


@pytest.fixture(scope="session", params=sorted(FRAMEWORKS))
def framework(request: pytest.FixtureRequest, all_cards: list[Card]) -> str:
    """One that is installed here, and that has computed on the first card: a CPU can pass none of this suite."""
    name: str = request.param
    missing = [package for package in FRAMEWORKS[name] if importlib.util.find_spec(package) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed in this environment")
    usable = [card for card in all_cards if not card.sliced]
    if usable:
        found = computed(name, device_of(usable[0]), "where")
        assert found == {"device": "cuda", "product": 4096.0}, f"{name} does not compute on {usable[0].id}: {found}"
    return name


@pytest.fixture
def train(framework: str, tmp_path: Path) -> Iterator[Train]:
    """Start a training of the framework under test; see `attempts.start`."""
    numbers = itertools.count()
    with ExitStack() as stack:

        def begin(*devices: Card | Device, **options: Any) -> Attempt:
            leased = [device_of(device) if isinstance(device, Card) else device for device in devices]
            run, attempt = start(tmp_path / str(next(numbers)), framework, leased, **options)
            stack.callback(run.close)
            return attempt

        yield begin


@pytest.fixture
def compute(framework: str) -> Compute:
    """Run one of the functions of `computing` on a card, in a process of its own."""
    return lambda card, name: computed(framework, device_of(card), name)


def computed(framework: str, device: Device, name: str) -> Any:
    with tempfile.TemporaryDirectory(prefix="trainshed-gpu-", ignore_cleanup_errors=True) as home:
        return _computed(framework, device, name, Path(home))  # CUDA keeps compiled kernels in the home


def _computed(framework: str, device: Device, name: str, home: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tests.gpu.computing", framework, name, device.model_dump_json()],
        capture_output=True,
        check=False,
        timeout=_LIMIT_S,
        cwd=ROOT,
        env={
            **framework_environment(framework),
            **trainer_environment([device], 4, home, os.environ),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        },
    )
    if done.returncode:
        return {"error": done.stderr.decode(errors="replace")[-2_000:]}
    return json.loads(done.stdout.splitlines()[-1])
