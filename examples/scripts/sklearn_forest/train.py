"""A random forest that grows in rounds: scikit-learn, no GPU, no framework of deep learning.

    python train.py --rounds 10
    trainshed run -- python train.py --rounds 10
    trainshed run --data train=penguins.csv -- python train.py --target species

With a data set it learns the column `--target` from the columns of numbers; without one, scikit-learn's digits.
"""

import argparse
import csv
import json
import os
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

CHECKPOINTS = Path(os.environ.get("TRAINSHED_CHECKPOINT_DIR", "checkpoints"))
OUTPUTS = Path(os.environ.get("TRAINSHED_OUTPUT_DIR", "outputs"))
SEED = int(os.environ.get("TRAINSHED_SEED", "0"))
THREADS = int(os.environ.get("TRAINSHED_THREADS", "1"))
TABLE = os.environ.get("TRAINSHED_DATA_TRAIN")
LAST = CHECKPOINTS / "forest.joblib"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--trees", type=int, default=10, help="how many more in each round")
    parser.add_argument("--target", default="target")
    given = parser.parse_args()
    for folder in (CHECKPOINTS, OUTPUTS):
        folder.mkdir(parents=True, exist_ok=True)

    rows, labels = read_table(Path(TABLE), given.target) if TABLE else load_digits(return_X_y=True)
    rows, val_rows, labels, val_labels = train_test_split(rows, labels, test_size=0.2, random_state=0, stratify=labels)
    # With warm_start a further fit adds trees, and draws for them what one long fit would have drawn.
    forest = RandomForestClassifier(0, warm_start=True, random_state=SEED, n_jobs=THREADS)
    if LAST.exists():
        forest = joblib.load(LAST)

    for number in range(forest.n_estimators // given.trees + 1, given.rounds + 1):
        forest.set_params(n_estimators=number * given.trees)
        forest.fit(rows, labels)
        save(forest, LAST)
        place = {"epoch": number, "epochs": given.rounds, "step": forest.n_estimators}
        values = {"accuracy": forest.score(rows, labels), "val_accuracy": forest.score(val_rows, val_labels)}
        print(json.dumps({**place, **values, "checkpoint": LAST.name}), flush=True)

    save(forest, OUTPUTS / "forest.joblib")
    important = np.argsort(forest.feature_importances_)[::-1][:5]
    (OUTPUTS / "importances.json").write_text(
        json.dumps({int(column): float(forest.feature_importances_[column]) for column in important})
    )


def read_table(file: Path, target: str) -> tuple[Any, list[str]]:
    """The columns of numbers, with NaN (which a forest takes) where there is a gap, and the labels."""
    with file.open(newline="", encoding="utf-8") as lines:
        table = list(csv.DictReader(lines))
    if not table or target not in table[0]:
        raise SystemExit(f"{file.name} has no column {target!r}; it has {', '.join(table[0]) if table else 'no rows'}.")
    columns = {name: numbers([row[name] for row in table]) for name in table[0] if name != target}
    return np.array([found for found in columns.values() if found]).T, [row[target] for row in table]


def numbers(cells: list[str]) -> list[float]:
    """The cells as numbers; an empty list for a column that has others."""
    try:
        return [float("nan" if cell in ("", "NA") else cell) for cell in cells]
    except ValueError:
        return []


def save(forest: Any, file: Path) -> None:
    """Write beside it, then rename: a kill in the middle leaves the old file whole."""
    fresh = file.with_suffix(".tmp")
    joblib.dump(forest, fresh)
    fresh.replace(file)


if __name__ == "__main__":
    main()
