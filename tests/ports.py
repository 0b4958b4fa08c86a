"""Ports for processes that must be told one, since they cannot say which one they chose."""

import contextlib
import socket


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens on."""
    while True:
        with contextlib.ExitStack() as held, contextlib.suppress(OSError, OverflowError):
            first = held.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            for offset in range(1, count):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port + offset))
            return port
