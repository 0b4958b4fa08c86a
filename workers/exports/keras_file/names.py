"""What is called how."""

from typing import Final

NAME: Final = "model.keras"
LOGITS: Final = "logits"
"""What the one output is called here; in the file it is the model's."""
