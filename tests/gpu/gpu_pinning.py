"""A job computes on the card that was leased, by its UUID, and on nothing else; never on the CPU."""

from tests.gpu.attempts import LONG, device_of, until
from tests.gpu.cards import MIB, Card, used_bytes
from tests.gpu.conftest import Compute, Train
from workers.protocol import Device

CPU = Device(id="cpu-0@host", kind="cpu", name="CPU")
UNKNOWN = Device(id="GPU-00000000-0000-0000-0000-000000000000", kind="cuda", name="No such card")
CONTEXT_BYTES = 100 * MIB
"""Less than any CUDA context takes (CUDA 12 and 13 on data-centre cards: 250 to 600 MiB, as nvidia-smi shows)."""


class TestOneCard:
    def test_trainer_says_that_it_computes_on_it(self, train: Train, card: Card) -> None:
        started = until(train(card), "started", "failed")[-1]

        assert started["type"] == "started", started
        assert (started["device_kind"], started["simulated"]) == ("cuda", False)
        assert started["environment"]["CUDA_VISIBLE_DEVICES"] == card.id
        assert started["environment"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        assert len(started["devices"]) == 1

    def test_its_memory_says_so_too(self, train: Train, card: Card) -> None:
        before = used_bytes(card)
        attempt = train(card, epochs=LONG)
        until(attempt, "report", "failed")

        assert used_bytes(card) - before > CONTEXT_BYTES

    def test_training_ends_well(self, train: Train, card: Card) -> None:
        attempt = train(card, epochs=5)
        said = until(attempt, "done", "failed")

        assert said[-1]["type"] == "done", said[-1]
        assert attempt.ended().code == 0

    def test_framework_multiplies_there(self, compute: Compute, card: Card) -> None:
        # 64 x 64 ones: each of the 4096 elements of the product is 64.
        assert compute(card, "where") == {"device": "cuda", "product": 4096.0}


class TestOrder:
    """CUDA counts cards from the fastest, NVML by their PCI addresses; we count neither, we name them."""

    def test_the_last_one_is_the_last_one(self, train: Train, two_cards: tuple[Card, Card]) -> None:
        first, last = two_cards
        before = {card.id: used_bytes(card) for card in two_cards}
        attempt = train(last, epochs=LONG)
        started = until(attempt, "started", "failed")[-1]
        until(attempt, "report", "failed")

        assert started["environment"]["CUDA_VISIBLE_DEVICES"] == last.id
        assert used_bytes(last) - before[last.id] > CONTEXT_BYTES
        assert used_bytes(first) - before[first.id] < CONTEXT_BYTES

    def test_another_card_than_the_leased_one_is_refused(self, train: Train, two_cards: tuple[Card, Card]) -> None:
        leased, other = two_cards
        failed = until(train(leased, seen=[device_of(other)]), "started", "failed")[-1]

        assert (failed["type"], failed["cause"]) == ("failed", "device_unavailable")


class TestNeverTheCpu:
    def test_card_that_is_not_there_fails_the_job(self, train: Train, card: Card) -> None:
        assert card.id != UNKNOWN.id
        failed = until(train(UNKNOWN), "started", "failed")[-1]

        assert (failed["type"], failed["cause"]) == ("failed", "device_unavailable")

    def test_lease_of_a_cpu_slot_for_a_job_of_cards_fails_the_job(self, train: Train, card: Card) -> None:
        failed = until(train(card, seen=[]), "started", "failed")[-1]

        assert (failed["type"], failed["cause"]) == ("failed", "device_unavailable")

    def test_job_for_the_cpu_does_not_touch_a_card(self, train: Train, card: Card) -> None:
        before = used_bytes(card)
        attempt = train(CPU, epochs=LONG)
        started = until(attempt, "started", "failed")[-1]
        until(attempt, "report", "failed")

        assert started["device_kind"] == "cpu"
        assert started["environment"]["CUDA_VISIBLE_DEVICES"] == ""
        assert used_bytes(card) - before < CONTEXT_BYTES
        # What it is compared with: the same framework does use the card.
        assert until(train(card), "started", "failed")[-1]["device_kind"] == "cuda"
