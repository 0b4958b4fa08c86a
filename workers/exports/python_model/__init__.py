"""Exports of models that a function of the user's builds: made by its framework, from the module in memory.

`torch_onnx` and `keras_native` have `make(model, ...)` and are loaded by name, in a process that may run the user's
code; `check` compares what another program makes of the file with what the framework answered, without that code.
"""

from typing import Final

MADE: Final = "made"
"""The folder in the maker's work folder with its file."""
