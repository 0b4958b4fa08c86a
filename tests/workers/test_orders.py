"""The mailbox between the host and an attempt: only the newest counts, and none is lost."""

import select
import threading
from collections.abc import Iterator

import pytest

from workers.orders import Orders
from workers.stopping import StopReason


@pytest.fixture
def orders() -> Iterator[Orders]:
    made = Orders(100)
    yield made
    made.close()


def is_ready(orders: Orders) -> bool:
    return bool(select.select([orders], [], [], 0)[0])


class TestOrders:
    def test_the_descriptor_is_ready_after_each_order_until_it_is_cleared(self, orders: Orders) -> None:
        assert not is_ready(orders)
        orders.extend(200)
        orders.ask_stop(StopReason.DRAIN)
        assert is_ready(orders)
        orders.clear()
        assert not is_ready(orders)
        orders.clear()

    def test_a_deadline_only_moves_on(self, orders: Orders) -> None:
        orders.extend(300)
        orders.extend(200)
        assert orders.until_boot_ns == 300

    def test_a_weaker_stop_does_not_replace_a_stronger(self, orders: Orders) -> None:
        orders.ask_stop(StopReason.CANCEL)
        orders.ask_stop(StopReason.DRAIN)
        assert orders.stop is StopReason.CANCEL

    def test_abandon_ends_a_wait(self, orders: Orders) -> None:
        assert not orders.wait_abandoned(0)
        waiter = threading.Thread(target=orders.wait_abandoned, args=(60,))
        waiter.start()
        orders.abandon()
        waiter.join(20)
        assert not waiter.is_alive()

    def test_orders_after_close_are_harmless(self, orders: Orders) -> None:
        orders.close()
        orders.extend(1)
        orders.close()
