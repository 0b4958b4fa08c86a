"""Keras on TensorFlow, scikit-learn's digits, one device.

    python train.py --epochs 20
    trainshed run -- python train.py --epochs 20

One `fit` per epoch: between two of them the model is saved, and the rows are put into an order drawn from the seed and
the number of the epoch, so that a run that was killed goes on exactly as it would have.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

CHECKPOINTS = Path(os.environ.get("TRAINSHED_CHECKPOINT_DIR", "checkpoints"))
OUTPUTS = Path(os.environ.get("TRAINSHED_OUTPUT_DIR", "outputs"))
SEED = int(os.environ.get("TRAINSHED_SEED", "0"))
LAST = CHECKPOINTS / "last.keras"
BATCH = 32


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.003)
    given = parser.parse_args()
    for folder in (CHECKPOINTS, OUTPUTS):
        folder.mkdir(parents=True, exist_ok=True)

    found = load_digits()
    parts = train_test_split(found.data / 16, found.target, test_size=0.2, random_state=0, stratify=found.target)
    rows, val_rows, labels, val_labels = parts
    steps = -(-len(rows) // BATCH)

    keras.utils.set_random_seed(SEED)
    model = keras.saving.load_model(LAST) if LAST.exists() else build(given.lr)
    done = int(model.optimizer.iterations) // steps

    for epoch in range(done, given.epochs):
        order = np.random.default_rng([SEED, epoch]).permutation(len(rows))
        history = model.fit(
            rows[order],
            labels[order],
            batch_size=BATCH,
            shuffle=False,
            initial_epoch=epoch,
            epochs=epoch + 1,
            validation_data=(val_rows, val_labels),
            verbose=0,
        ).history
        save(model, LAST)
        values = {name: series[-1] for name, series in history.items()}
        place = {"epoch": epoch + 1, "epochs": given.epochs, "step": (epoch + 1) * steps}
        print(json.dumps({**place, **values, "checkpoint": LAST.name}), flush=True)

    save(model, OUTPUTS / "model.keras")


def build(rate: float) -> Any:
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def save(model: Any, file: Path) -> None:
    """Write beside it, then rename: a kill in the middle leaves the old file whole. Keras wants its own ending."""
    fresh = file.with_name(f".{file.name}")
    model.save(fresh)
    fresh.replace(file)


if __name__ == "__main__":
    main()
