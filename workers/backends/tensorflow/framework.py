"""TensorFlow, imported without Keras; every module of this package takes `tf` from here.

`import tensorflow` ends with an import of Keras for programs that save Keras optimizers, which takes a second of the
2.7 it needs. We build models from plain variables and ops, so we ask for the old Keras instead: where `tf_keras` is not
installed TensorFlow then goes on without any. The variable is put back, so Keras itself can still be imported later.
"""

import os
from importlib.util import find_spec
from typing import Any, Final

_CHOICE: Final = "TF_USE_LEGACY_KERAS"


def _import_tensorflow() -> Any:  # noqa: ANN401 - TensorFlow has no types
    before = os.environ.get(_CHOICE)
    if before is None and find_spec("tf_keras") is None:
        os.environ[_CHOICE] = "1"
    try:
        import tensorflow  # noqa: ICN001, PLC0415 - a framework is imported late, and here between two settings
    finally:
        if before is None:
            os.environ.pop(_CHOICE, None)
    return tensorflow


tf: Final[Any] = _import_tensorflow()
