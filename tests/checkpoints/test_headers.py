"""Shapes out of the head of a safetensors file; the reference is what safetensors itself writes."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from app.checkpoints.headers import UnreadableHeader, tensor_shapes


def test_names_and_shapes_are_those_that_were_saved(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    shapes = {"a.kernel": (3, 4), "a.bias": (4,), "scale": ()}
    tensors = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    save_file(tensors, path, metadata={"made_by": "test"})
    with path.open("rb") as file:
        assert tensor_shapes(file) == shapes


@pytest.mark.parametrize(
    "content",
    [b"", b"short", b"\xff" * 8, b"\x02" + b"\x00" * 7 + b"[]", b"\x09" + b"\x00" * 7 + b'{"a": {}}', b"\x01" * 200],
)
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(UnreadableHeader, match="is no safetensors file"):
        tensor_shapes(BytesIO(content))
