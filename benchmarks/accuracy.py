"""Is a model of ours as good as scikit-learn's MLP of the same shape, with the same optimizer, batches and passes?

Eight tables; stratified 5-fold cross-validation with three seeds; each row is predicted three times by each side. The
figure is the mean over rows of (hits of ours - hits of the reference) in points, pairs by row; its bound is the lower
end of a 95 % interval by Student's t over the rows, each row's three seeds averaged first. The bar: over -2 points.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.model_selection import StratifiedKFold

from benchmarks.harness.accuracy_tables import Case, cases
from benchmarks.harness.sklearn_mlp import predict
from benchmarks.harness.table import Row, arguments, show

FRAMEWORKS: Final = ("torch", "tensorflow")
SEEDS: Final = (0, 1, 2)
FOLDS: Final = 5
BAR_POINTS: Final = -2.0
_ROOT: Final = Path(__file__).resolve().parents[1]
_LONGEST_S: Final = 3600

Hits = NDArray[np.float64]


def main() -> None:
    options = arguments(__doc__ or "")
    rows = [row for case in cases() for row in compare(case)]
    show("Accuracy beside scikit-learn's MLP, 5 folds x 3 seeds (bound: lower 95 %, points)", rows, options.json)
    sys.exit(0 if all(row.holds for row in rows) else 1)


def compare(case: Case) -> list[Row]:
    """One row per framework: both accuracies in percent; `ratio` is the lower bound of the difference in points."""
    truth = case.frame[case.target].astype(str).to_numpy()
    with tempfile.TemporaryDirectory() as folder:
        folds = _folds(case, truth, Path(folder))
        reference = np.zeros(len(truth))
        for train, test, seed in folds:
            reference[test] += np.array(predict(case, train, test, seed)) == truth[test]
        return [
            _row(case, framework, _hits(framework, Path(folder), truth, folds), reference) for framework in FRAMEWORKS
        ]


def bound(differences: Hits) -> tuple[float, float]:
    """The mean of the differences and the lower end of its two-sided 95 % interval, in points."""
    mean = float(differences.mean())
    spread = float(differences.std(ddof=1)) / float(np.sqrt(len(differences)))
    return 100 * mean, 100 * (mean - float(stats.t.ppf(0.975, len(differences) - 1)) * spread)


def _row(case: Case, framework: str, ours: Hits, reference: Hits) -> Row:
    mean, lower = bound((ours - reference) / len(SEEDS))
    own, theirs = (100 * float(hits.mean()) / len(SEEDS) for hits in (ours, reference))
    work = f"{case.name} ({len(case.frame)} rows), {framework}, {mean:+.2f} points"
    return Row(work, own, theirs, "scikit-learn", lower, f"> {BAR_POINTS:g}", lower > BAR_POINTS)


def _folds(case: Case, truth: NDArray[np.str_], folder: Path) -> list[tuple[NDArray[np.int64], NDArray[np.int64], int]]:
    """Divide the rows, and write each fold as the CSV file that a user would upload."""
    made, listed = [], []
    for seed in SEEDS:
        splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
        for number, (train, test) in enumerate(splitter.split(truth, truth)):
            file = f"{seed}-{number}.csv"
            part = np.full(len(truth), "train", dtype=object)
            part[test] = "test"
            case.frame.assign(part=part).to_csv(folder / file, index=False)
            made.append((train, test, seed))
            listed.append(
                {"file": file, "target": case.target, "hidden": case.hidden, "epochs": case.epochs, "seed": seed}
            )
    (folder / "folds.json").write_text(json.dumps(listed))
    return made


def _hits(
    framework: str,
    folder: Path,
    truth: NDArray[np.str_],
    folds: list[tuple[NDArray[np.int64], NDArray[np.int64], int]],
) -> Hits:
    command = [sys.executable, "-m", "benchmarks.harness.trained_folds", framework, str(folder)]
    done = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True, timeout=_LONGEST_S)
    hits = np.zeros(len(truth))
    for line, (_train, test, _seed) in zip(done.stdout.splitlines(), folds, strict=True):
        hits[test] += np.array(json.loads(line)["labels"]) == truth[test]
    return hits


if __name__ == "__main__":
    main()
