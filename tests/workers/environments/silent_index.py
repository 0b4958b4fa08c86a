"""A package index that takes every question and answers none, so that an installation goes on for as long as asked."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class SilentIndex:
    """`asked` is set with the first question."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, name="silent-index")
        self.asked = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/simple"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for connection in [*self._connections, self._socket]:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._connections.append(connection)
            if connection.recv(1):  # not only opened: pip has said what it wants
                self.asked.set()


@contextmanager
def silent_index() -> Iterator[SilentIndex]:
    index = SilentIndex()
    index.start()
    try:
        yield index
    finally:
        index.stop()
