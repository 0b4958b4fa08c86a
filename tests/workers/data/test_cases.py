"""Reported failures of other systems, each as a test for its whole kind: from a file to what a model is trained on."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from app.spec import EffectiveSpec, InvalidSpec, parse_job, resolve
from app.tables import features_and_target, profile, read_table
from workers.data.dataset import Dataset, prepare
from workers.data.labels import Label
from workers.data.metrics import evaluate
from workers.data.reports import report
from workers.data.split import PART_NAMES

DATA = Path(__file__).parents[2] / "data"


def accepted(path: Path, **data: Any) -> EffectiveSpec:
    raw = {"framework": "torch", "model": "linear", "data": {"source": "ds_1", **data}}
    return resolve(parse_job(raw), profile(path), "cpu")


def prepared(path: Path, **data: Any) -> Dataset:
    spec = accepted(path, **data)
    return prepare(features_and_target(read_table(path, None), spec), spec, np.float64)


def refusals(path: Path, **data: Any) -> list[str]:
    with pytest.raises(InvalidSpec) as caught:
        accepted(path, **data)
    return [problem.message for problem in caught.value.problems]


def column(name: str, path: Path) -> list[str]:
    with path.open(newline="", encoding="utf-8") as file:
        return [row[name] for row in csv.DictReader(file)]


def accuracy_of_a_linear_model(data: Dataset) -> float:
    """How well the validation part is predicted by a reference model that saw the training part alone."""
    model = LogisticRegression(max_iter=2000).fit(data.parts["train"].x, data.parts["train"].y)
    logits = model.decision_function(data.parts["validation"].x)
    logits = logits if logits.ndim == 2 else np.stack([-logits, logits], axis=1)
    values = evaluate(logits, data.parts["validation"].y, "classification", ["accuracy"], 1.0, "cross_entropy")
    return values["accuracy"]


class TestLabelsThatAreNotZeroToCountMinusOne:
    """C37: labels from 1, with holes, or negative: mapped through an ordered vocabulary, shown as in the file."""

    @pytest.mark.parametrize(
        ("name", "labels"), [("labels_from_one.csv", (1, 2, 3)), ("labels_sparse_negative.csv", (-1, 2, 4))]
    )
    def test_the_reported_files(self, name: str, labels: tuple[Label, ...]) -> None:
        data = prepared(DATA / name, target="label")

        assert data.vocabulary is not None
        assert data.vocabulary.labels == labels
        assert data.output_units == 3
        assert set(data.parts["train"].y.tolist()) == {0, 1, 2}
        assert accuracy_of_a_linear_model(data) > 0.8

    @pytest.mark.parametrize(
        ("cells", "labels"),
        [
            (["0", " 0", "1", "1.0"], (0, 1)),
            (["10", "9", "-1"], (-1, 9, 10)),
            (["9007199254740993", "9007199254740992"], (9007199254740992, 9007199254740993)),
            (["true", "FALSE"], (False, True)),
            (["1", "x"], ("1", "x")),
        ],
    )
    def test_any_labels_keep_their_values_and_order(
        self, tmp_path: Path, cells: list[str], labels: tuple[Label, ...]
    ) -> None:
        path = tmp_path / "t.csv"
        path.write_text("f,label\n" + "".join(f"{row}.5,{cells[row % len(cells)]}\n" for row in range(40)))

        data = prepared(path, target="label")

        assert data.vocabulary is not None
        assert data.vocabulary.labels == labels
        assert [type(label) for label in data.vocabulary.labels] == [type(label) for label in labels]
        assert data.vocabulary.decode(data.parts["train"].y.astype(np.int64))[0] in labels


class TestText:
    """C38: class names are classes with their blanks; text features are encoded, or refused before training."""

    def test_class_names_keep_their_blanks(self) -> None:
        data = prepared(DATA / "text_labels.csv", target="species")

        assert data.vocabulary is not None
        assert data.vocabulary.labels == ("birch", "oak", "pine tree")
        assert accuracy_of_a_linear_model(data) > 0.8

    def test_a_text_feature_is_one_number_per_category(self) -> None:
        data = prepared(DATA / "text_labels.csv", target="f1", features=["species"])

        names = column("species", DATA / "text_labels.csv")
        expected = [[float(name == known) for known in ("birch", "oak", "pine tree")] for name in names]
        assert data.parts["train"].x.tolist() == [expected[row] for row in data.division.train]

    @pytest.mark.parametrize("kind", ["names", "numbers"])
    def test_text_that_is_no_category_is_refused_before_training(self, tmp_path: Path, kind: str) -> None:
        cells = [f"name {row}" for row in range(1200)] if kind == "names" else ["unknown", *map(str, range(1199))]
        path = tmp_path / "t.csv"
        path.write_text("f,y\n" + "".join(f"{cell},{row % 2}\n" for row, cell in enumerate(cells)))

        (message,) = refusals(path, target="y")

        assert "column 'f'" in message.lower() or "Column 'f'" in message


class TestGaps:
    """C39: gaps, the text NaN, and infinities. Refused by default, or left out, or filled from the training part."""

    FILE = DATA / "gaps.csv"

    def test_refused_by_default_with_columns_and_counts(self) -> None:
        # Counted by hand: f1 9 empty cells, f3 7 times NaN, f2 one inf, the target 2 gaps.
        found = " ".join(refusals(self.FILE, target="label"))

        for words in ("'f1' has 9 missing", "'f2' has 1 infinite", "'f3' has 7 missing", "'label' has 2 missing"):
            assert words in found

    def test_drop_trains_on_complete_rows_alone(self) -> None:
        data = prepared(self.FILE, target="label", missing="drop")

        rows = list(zip(*(column(name, self.FILE) for name in ("f1", "f2", "f3", "label")), strict=True))
        complete = [number for number, row in enumerate(rows, start=2) if not {"", "NaN", "inf"} & set(row)]
        assert data.row_numbers.tolist() == complete
        assert all(np.isfinite(part.x).all() for part in data.parts.values())

    @pytest.mark.parametrize("how", ["mean", "median"])
    def test_impute_fills_from_the_training_part_and_never_a_target(self, how: str) -> None:
        data = prepared(self.FILE, target="label", missing="impute", preprocess={"numeric": "none", "impute": how})

        labels = column("label", self.FILE)
        assert data.row_numbers.tolist() == [row for row, label in enumerate(labels, start=2) if label]
        cells = column("f1", self.FILE)
        train = [cells[number - 2] for number in data.row_numbers[data.division.train]]
        known = [float(cell) for cell in train if cell]
        expected = np.mean(known) if how == "mean" else np.median(known)
        gaps = [place for place, cell in enumerate(train) if not cell]
        assert gaps
        assert_allclose(data.parts["train"].x[gaps, 0], expected, rtol=1e-12)
        assert all(np.isfinite(part.x).all() for part in data.parts.values())

    def test_the_record_says_how_many(self) -> None:
        spec = accepted(self.FILE, target="label", missing="impute")
        notices = dict(features_and_target(read_table(self.FILE, None), spec).notices)

        assert notices["rows_without_target"].startswith("2 rows have no value in column 'label'")
        # One of the seven gaps of f3 is in a row without a target, which is not used.
        assert "'f1' (9), 'f2' (1), 'f3' (6)" in notices["values_imputed"]

    @pytest.mark.parametrize("gap", ["", "NA", "NaN", "null", "inf", "-Infinity", "1e999"])
    @pytest.mark.parametrize("missing", ["drop", "impute"])
    def test_any_spelling_of_a_gap_leaves_no_number_that_is_not_finite(
        self, tmp_path: Path, gap: str, missing: str
    ) -> None:
        path = tmp_path / "t.csv"
        path.write_text("a,b,y\n" + "".join(f"{gap if row % 9 == 4 else row},{row}.5,{row % 2}\n" for row in range(45)))

        data = prepared(path, target="y", missing=missing)

        assert all(np.isfinite(part.x).all() for part in data.parts.values())
        assert sum(len(part) for part in data.parts.values()) == (45 if missing == "impute" else 40)


class TestStatistics:
    """C40: what scales and fills comes from the training rows, which are stored, and from no other row."""

    FILE = DATA / "outliers.csv"

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("method", ["random", "stratified"])
    def test_are_those_of_the_stored_training_rows(self, method: str, seed: int) -> None:
        split = {"method": method, "validation": 0.3, "seed": seed}
        data = prepared(self.FILE, target="label", features=["f1", "f2", "f3"], split=split)
        values = np.array(column("f1", self.FILE), np.float64)

        stored = data.row_numbers[data.division.train]  # what split.safetensors holds
        fitted = data.encoder.to_json()["inputs"][0]

        train = values[stored - 2]
        assert fitted["mean"] == [pytest.approx(train.mean(), rel=1e-12)]
        assert fitted["scale"] == [pytest.approx(train.std(), rel=1e-12)]
        outliers = {7, 29, 44} - set((stored - 2).tolist())
        if outliers:  # 52.227 is the mean of all rows, which no row of validation may have moved
            assert abs(fitted["mean"][0] - 52.227) > 0.5

    def test_some_of_these_seeds_keep_an_outlier_from_training(self) -> None:
        split = {"method": "random", "validation": 0.3, "seed": 0}
        data = prepared(self.FILE, target="label", split=split)

        assert np.array(column("f1", self.FILE), np.float64).mean() == pytest.approx(52.227, abs=5e-4)
        assert {7, 29, 44} & set((data.row_numbers[data.division.validation] - 2).tolist())

    @pytest.mark.parametrize("change", [1e9, -1e9])
    @pytest.mark.parametrize("missing", ["error", "impute"])
    def test_no_value_of_another_part_changes_what_is_trained_on(
        self, tmp_path: Path, change: float, missing: str
    ) -> None:
        before = prepared(self.FILE, target="label", missing=missing)
        lines = self.FILE.read_text(encoding="utf-8").splitlines()
        for number in before.row_numbers[before.division.validation]:
            cells = lines[number - 1].split(",")
            lines[number - 1] = ",".join([cells[0], str(change), *cells[2:]])
        path = tmp_path / "t.csv"
        path.write_text("\n".join(lines))

        after = prepared(path, target="label", missing=missing)

        np.testing.assert_array_equal(after.parts["train"].x, before.parts["train"].x)


class TestRareClasses:
    """C41: a class of one row is trained and not measured, with a notice; every larger class is measured by itself."""

    FILE = DATA / "rare_class.csv"

    def test_every_class_is_trained_and_the_single_row_is_nowhere_else(self) -> None:
        data = prepared(self.FILE, target="label", split={"validation": 0.3})

        assert data.vocabulary is not None
        assert data.class_rows is not None
        assert data.vocabulary.labels == ("a", "b", "c")
        assert data.class_rows.min() >= 1
        assert 2 not in data.parts["validation"].y.tolist()
        assert sum(len(data.parts[name]) for name in PART_NAMES) == 60

    def test_the_notice_names_class_and_count(self) -> None:
        notices = dict(prepared(self.FILE, target="label").notices)

        assert notices["rare_class"].startswith("Class 'c' of 'label' has 1 row.")

    @pytest.mark.parametrize("counts", [(56, 3, 1), (40, 2), (30, 2, 2, 2), (20, 1, 1, 1)])
    @pytest.mark.parametrize("seed", range(3))
    def test_any_class_of_two_rows_is_trained(self, tmp_path: Path, counts: tuple[int, ...], seed: int) -> None:
        path = tmp_path / "t.csv"
        labels = [f"class {place}" for place, count in enumerate(counts) for _ in range(count)]
        path.write_text("f,label\n" + "".join(f"{row}.5,{label}\n" for row, label in enumerate(labels)))

        data = prepared(path, target="label", split={"validation": 0.3, "test": 0.2, "seed": seed})

        assert data.class_rows is not None
        assert data.class_rows.min() >= 1

    def test_a_random_split_that_leaves_one_out_says_so(self, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        path.write_text("f,label\n" + "".join(f"{row}.5,{'b' if row < 2 else 'a'}\n" for row in range(40)))
        split = {"method": "random", "validation": 0.9}

        left_out = [
            dict(prepared(path, target="label", split=split | {"seed": seed}).notices).get("class_not_trained", "")
            for seed in range(6)
        ]

        assert any("Class 'b' of 'label' has 2 rows, none of them for training" in notice for notice in left_out)

    def test_the_report_has_each_classs_recall(self) -> None:
        data = prepared(self.FILE, target="label", split={"validation": 0.3, "seed": 1})
        part = data.parts["validation"]
        assert data.vocabulary is not None
        always_a = np.tile([1.0, 0.0, 0.0], (len(part), 1))

        found = report(always_a, part.y, task="classification", loss="cross_entropy", labels=data.vocabulary.labels)

        recalls = {row["label"]: row["recall"] for row in found["classes"]}
        assert found["metrics"]["accuracy"] > 0.9  # which alone would say nothing of b and c
        assert recalls == {"a": 1.0, "b": 0.0, "c": None}
