"""The command line.

Three kinds of command, kept apart so that `trainshed --help` needs none of the server's libraries:

* client commands (`submit`, `ls`, `follow`, …) talk HTTP and live in this package's own modules;
* `trainshed api | control | worker | migrate | key` are replaced (exec) by a module of `app.cli.processes`, each of
  which imports one composition root of the server and nothing of the client;
* `trainshed up` is replaced by `app.cli.up`, which starts those same modules as its children; `trainshed demo` is a
  client that starts an `up` of its own.

Importing this package imports nothing, since every one of those processes imports it.
"""

import importlib


def main() -> None:
    """The entry point `trainshed`; the program is loaded by name, for the reason above."""
    importlib.import_module("app.cli.program").main()
