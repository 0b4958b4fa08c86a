"""Write model.keras: one input, encoded rows, and one output, the logits; the weights are those of the model."""

import keras

from workers.exports.keras_file.layers import add_layers
from workers.exports.keras_file.names import NAME
from workers.exports.request import Made, Request
from workers.model_file import read


def make(request: Request) -> list[Made]:
    """Build the model of Keras' own layers and save it."""
    description, weights = read(request.model)
    x = keras.Input(description.input_shape, name="x")
    model = keras.Model(x, add_layers(description.layers, weights, x), name="trainshed")
    model.save(request.output / NAME)
    return [Made(NAME, "application/octet-stream", "model")]
