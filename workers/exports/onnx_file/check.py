"""Load model.onnx as another program would, in onnxruntime, and compare: all rows at once, and one alone."""

import onnxruntime

from workers.exports.onnx_file.names import INPUT, LOGITS, NAME, PROBABILITIES, VALUES
from workers.exports.reference import Reference
from workers.exports.request import CannotExport, Request


def check(request: Request) -> None:
    """Compare logits and answers with the model's own.

    Raises:
        CannotExport: it cannot be loaded, or gives something else.
    """
    reference = Reference.of(request.model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(request.output / NAME, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        for rows in (slice(None), slice(0, 1)):
            found = dict(zip(names, session.run(None, {INPUT: reference.x[rows]}), strict=True))
            reference.check("onnxruntime", found[LOGITS], rows)
            answer = found[VALUES if reference.description.classes is None else PROBABILITIES]
            reference.check_answer("onnxruntime", answer, rows)
    except CannotExport:
        raise
    except Exception as error:
        raise CannotExport(f"onnxruntime does not load it ({type(error).__name__}: {error}).") from error
