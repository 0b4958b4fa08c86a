"""The plain script in Keras: digits, an MLP, `fit`; prints the rows per second of its best epoch."""

import sys
import time

import keras
from sklearn.datasets import load_digits

epochs, batch = int(sys.argv[1]), int(sys.argv[2])
keras.utils.set_random_seed(0)
x, y = load_digits(return_X_y=True)
rows = (x / 16).astype("float32")
model = keras.Sequential(
    [
        keras.Input((64,)),
        keras.layers.Dense(1024, activation="relu"),
        keras.layers.Dense(1024, activation="relu"),
        keras.layers.Dense(10),
    ]
)
model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
best = 0.0
for _epoch in range(epochs):
    began = time.perf_counter()
    model.fit(rows, y, batch_size=batch, epochs=1, verbose=0)
    best = max(best, len(rows) / (time.perf_counter() - began))
sys.stdout.write(f"{best}\n")
