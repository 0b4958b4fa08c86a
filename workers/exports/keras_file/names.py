"""What is called how."""

from typing import Final

NAME: Final = "model.keras"
