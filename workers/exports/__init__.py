"""Files made from a trained model for other programs: ONNX, Keras, a report, TensorBoard events.

`run` is the worker's handle: it starts a process for the making and, where another program will load the file, a
second, fresh one for the check. `python -P -m workers.exports` is what those processes run. Nothing here is imported
by a trainer, and a framework is imported by `keras_file` alone, in TensorFlow's own interpreter.
"""

from workers.exports.run import FORMATS, ExportedFile, ExportFailed, Format, Limits, run

__all__ = ["FORMATS", "ExportFailed", "ExportedFile", "Format", "Limits", "run"]
