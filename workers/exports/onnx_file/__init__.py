"""A model as ONNX: our layers written as a graph of standard operators, and the check of it in onnxruntime."""
