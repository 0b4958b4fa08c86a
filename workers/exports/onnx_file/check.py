"""Load model.onnx as another program would, in onnxruntime, and compare: all rows at once, and one alone."""

from workers.exports.onnx_file.load import load
from workers.exports.onnx_file.names import LOGITS, PROBABILITIES, VALUES
from workers.exports.reference import Reference
from workers.exports.request import CannotExport, Request


def check(request: Request) -> None:
    """Compare logits and answers with the model's own.

    Raises:
        CannotExport: it cannot be loaded, or gives something else.
    """
    reference = Reference.of(request.model)
    try:
        answers = load(request.output)
        for rows in (slice(None), slice(0, 1)):
            found = answers(reference.x[rows])
            reference.check("onnxruntime", found[LOGITS], rows)
            answer = found[VALUES if reference.description.classes is None else PROBABILITIES]
            reference.check_answer("onnxruntime", answer, rows)
    except CannotExport:
        raise
    except Exception as error:
        raise CannotExport(f"onnxruntime does not load it ({type(error).__name__}: {error}).") from error
