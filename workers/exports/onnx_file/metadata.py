"""What model.onnx says of how raw rows become its input, and what its outputs mean: all that model.json has of it."""

import json

from workers.model_file import Description, PythonDescription


def metadata_of(description: Description | PythonDescription) -> dict[str, str]:
    """Return the file's metadata; lists and objects are written as JSON."""
    return {
        "format": description.format,
        "framework": description.framework,
        "task": description.task,
        "target": description.target,
        "features": json.dumps(description.features),
        "classes": json.dumps(description.classes),
        "encoder": json.dumps(description.encoder),
        "weights_sha256": description.weights.sha256,
    }
