"""Load model.keras as a user would, in safe mode, with nothing of ours registered, and compare."""

from workers.exports.keras_file.load import load
from workers.exports.keras_file.names import LOGITS
from workers.exports.reference import Reference
from workers.exports.request import CannotExport, Request


def check(request: Request) -> None:
    """Compare its outputs with the model's own.

    Raises:
        CannotExport: it cannot be loaded, or gives something else.
    """
    reference = Reference.of(request.model)
    try:
        model = load(request.output)
        answers = [model(reference.x[rows])[LOGITS] for rows in (slice(None), slice(0, 1))]
    except Exception as error:
        raise CannotExport(f"Keras does not load it in safe mode ({type(error).__name__}: {error}).") from error
    reference.check("Keras", answers[0])
    reference.check("Keras", answers[1], slice(0, 1))
