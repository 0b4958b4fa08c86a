"""torch as a backend: what it runs on, how it looks at cards, what it says of itself; cards are never needed here."""

import os

import pytest
import torch

from app.errors import Cause
from tests.workers.backends.sessions import CPU
from workers.backends.base import DeviceUnavailable, load_backend
from workers.backends.torch import cards
from workers.backends.torch.causes import RankError
from workers.protocol import Device

CARDS = [Device(id=f"GPU-{place}", kind="cuda", name="Card") for place in range(2)]
NO_CARD = pytest.mark.skipif(torch.cuda.device_count() > 0, reason="this machine has a CUDA device")


@NO_CARD
class TestWithoutCards:
    @pytest.mark.parametrize("count", [1, 2])
    def test_a_lease_of_cards_is_refused(self, count: int) -> None:
        with pytest.raises(DeviceUnavailable, match="torch sees no CUDA device"):
            load_backend("torch").prepare(CARDS[:count], 1)

    def test_looking_in_a_child_finds_what_looking_here_does(self) -> None:
        assert cards.seen_by_child() == cards.seen() == []


class TestLookingInAChild:
    def test_brings_names_and_ids_back_from_another_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cards, "seen", lambda: [cards.Card(str(os.getpid()), "GPU-1"), cards.Card("slice", None)])

        first, second = cards.seen_by_child()

        assert first.uuid == "GPU-1"
        assert first.name != str(os.getpid())
        assert second == ("slice", None)


class TestThreads:
    @pytest.mark.parametrize(("threads", "devices", "each"), [(1, 1, 1), (1, 3, 1), (3, 2, 1)])
    def test_ranks_share_them_and_each_has_one(self, threads: int, devices: int, each: int) -> None:
        # More than one is tested where a process ends with it: test_torch_ranks.
        assert load_backend("torch").prepare([CPU] * devices, threads).threads == each


class TestVersions:
    def test_names_torch_and_what_it_was_built_for(self) -> None:
        backend = load_backend("torch")
        backend.prepare([CPU], 1)

        versions = backend.versions()

        assert versions["torch"] == torch.__version__
        assert set(versions) == {"torch"} | ({"cuda"} if torch.version.cuda else set())


class TestCauses:
    def test_an_error_of_another_rank_keeps_its_cause(self) -> None:
        error = RankError("Rank 1 of 2: …", Cause.DEVICE_OUT_OF_MEMORY)

        assert load_backend("torch").cause_of(error) == Cause.DEVICE_OUT_OF_MEMORY

    def test_memory_that_python_ran_out_of_is_the_hosts(self) -> None:
        assert load_backend("torch").cause_of(MemoryError()) == Cause.HOST_OUT_OF_MEMORY

    def test_an_error_of_anybody_else_has_none(self) -> None:
        assert load_backend("torch").cause_of(ValueError("no")) is None
