"""What a saved model says of itself, whichever kind it is: for exports that show what was measured, not the model."""

from pathlib import Path

from workers.model_file import Description, PythonDescription, is_python, read, read_python


def description_of(directory: Path) -> Description | PythonDescription:
    """Read the description, and check that the model's files belong together.

    Raises:
        UnreadableModel: they do not.
    """
    return read_python(directory)[0] if is_python(directory) else read(directory)[0]
