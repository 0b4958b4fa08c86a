"""The same work as a plain script: digits, an MLP, three epochs, the model saved. What a user would write in Keras."""

import sys

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

keras.utils.set_random_seed(0)
x, y = load_digits(return_X_y=True)
x_train, x_val, y_train, y_val = train_test_split(x, y, test_size=0.2, random_state=0, stratify=y)
mean, std = x_train.mean(0), x_train.std(0)
std[std == 0] = 1
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
model.compile(
    optimizer=keras.optimizers.Adam(0.001),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
validation = ((x_val - mean) / std, y_val)
model.fit((x_train - mean) / std, y_train, batch_size=64, epochs=3, validation_data=validation, verbose=2)
model.save_weights(sys.argv[1])
