"""What the host tells an attempt's thread, from another thread: a later deadline, a stop, or to leave at once."""

import os
import threading

from workers.stopping import StopReason, stronger


class Orders:
    """A mailbox with a descriptor to poll; only the newest deadline and the strongest reason count."""

    def __init__(self, until_boot_ns: int) -> None:
        self._lock = threading.Lock()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._until = until_boot_ns
        self._stop: StopReason | None = None
        self._abandoned = threading.Event()
        self._closed = False

    def fileno(self) -> int:
        return self._event

    def extend(self, until_boot_ns: int) -> None:
        """Move the deadline on; an earlier one, of an answer that was late, is ignored."""
        with self._lock:
            self._until = max(self._until, until_boot_ns)
        self.wake()

    def ask_stop(self, reason: StopReason) -> None:
        with self._lock:
            self._stop = stronger(self._stop, reason)
        self.wake()

    def abandon(self) -> None:
        """Leave without an end in the database: the next start of the worker settles it."""
        self._abandoned.set()
        self.wake()

    def wake(self) -> None:
        with self._lock:
            if not self._closed:
                os.eventfd_write(self._event, 1)

    def clear(self) -> None:
        """Make the descriptor quiet until the next order; before reading the orders, so that none is missed."""
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            return

    @property
    def until_boot_ns(self) -> int:
        with self._lock:
            return self._until

    @property
    def stop(self) -> StopReason | None:
        with self._lock:
            return self._stop

    @property
    def abandoned(self) -> bool:
        return self._abandoned.is_set()

    def wait_abandoned(self, timeout_s: float) -> bool:
        return self._abandoned.wait(timeout_s)

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._event)
