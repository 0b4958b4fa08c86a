"""What is called how in model.onnx."""

from typing import Final

NAME: Final = "model.onnx"
INPUT: Final = "x"
LOGITS: Final = "logits"
PROBABILITIES: Final = "probabilities"
VALUES: Final = "values"
