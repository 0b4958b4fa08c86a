"""The reference of `benchmarks.accuracy`: scikit-learn's MLP behind the usual pipeline, with the same settings."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.harness.accuracy_tables import Case

BATCH: int = 32
RATE: float = 0.003


def predict(case: Case, train: NDArray[np.int64], test: NDArray[np.int64], seed: int) -> list[str]:
    """Fit on the rows `train` and give the labels of the rows `test` as text."""
    x, y = case.frame.drop(columns=case.target), case.frame[case.target].astype(str)
    model = make_pipeline(
        _columns(x),
        MLPClassifier(
            hidden_layer_sizes=case.hidden,
            alpha=0.0,
            batch_size=min(BATCH, len(train)),
            learning_rate_init=RATE,
            max_iter=case.epochs,
            n_iter_no_change=case.epochs,
            tol=0.0,
            random_state=seed,
        ),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a fixed number of passes is what is compared
        model.fit(x.iloc[train], y.iloc[train])
    return [str(label) for label in model.predict(x.iloc[test])]


def _columns(x: pd.DataFrame) -> Any:  # noqa: ANN401 - scikit-learn has no types
    numbers = [name for name in x if pd.api.types.is_numeric_dtype(x[name])]
    texts = [name for name in x if name not in numbers]
    return ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(strategy="mean"), StandardScaler()), numbers),
            (
                "texts",
                make_pipeline(
                    SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore", sparse_output=False)
                ),
                texts,
            ),
        ]
    )
