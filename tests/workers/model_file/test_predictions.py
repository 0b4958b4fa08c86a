"""A saved model: the frameworks' own predictions, from NumPy alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from safetensors.numpy import load_file

from app.spec.layers import EmbeddingLayer, FlattenLayer
from app.tables import InvalidTable, features_and_target, read_table
from tests.workers.exports.models import MODELS, TABLE, VOCABULARY, random_rows, write_model
from tests.workers.model_file.saved import penguins, trained
from tests.workers.training_jobs import builtin_job, csv_job
from workers.data.encoding import InvalidRows
from workers.model_file import Columns, LoadedModel, Predictions, UnreadableModel, predict, predict_rows, predictions
from workers.protocol import Assignment


def table_of(assignment: Assignment) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Raw rows, targets and row numbers of a built-in set."""
    columns = features_and_target(read_table(None, assignment.spec.data.source), assignment.spec)
    return np.stack(list(columns.features.values()), axis=1).astype(float), columns.y, columns.row_numbers


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained on text features and gaps."""
    folder = tmp_path_factory.mktemp("penguins")
    data = {"target": "species", "missing": "impute"}
    settings = {"epochs": 30, "learning_rate": 0.01}
    return trained(csv_job(folder, penguins(), data, hyperparameters=settings))[0]


class TestPredict:
    @pytest.mark.parametrize("framework", ["torch", "tensorflow"])
    @pytest.mark.parametrize("activation", ["relu", "gelu"])
    def test_classes_and_loss_are_those_that_training_reported(
        self, tmp_path: Path, framework: str, activation: str
    ) -> None:
        assignment = builtin_job(
            tmp_path,
            {"source": "digits", "split": {"validation": 0.2, "test": 0.2}},
            framework,
            model={"type": "mlp", "hidden": [32], "activation": activation, "dropout": 0.2},
            hyperparameters={"epochs": 3},
        )
        folder, metrics = trained(assignment, framework)
        rows, targets, numbers = table_of(assignment)
        test = np.isin(numbers, load_file(folder / "split.safetensors")["test"])

        answer = predict(folder, rows[test])

        assert answer.labels is not None
        assert answer.probabilities is not None
        truth = targets[test].astype(int)
        assert np.mean(np.array(answer.labels) == truth) == pytest.approx(metrics["test_accuracy"], abs=1e-12)
        # The digits' classes are 0 to 9 in order, so a class is its own place.
        likelihood = answer.probabilities[np.arange(len(truth)), truth]
        assert -np.log(likelihood).mean() == pytest.approx(metrics["test_loss"], rel=1e-5)
        assert_allclose(answer.probabilities.sum(axis=1), 1, rtol=1e-12)

    @pytest.mark.parametrize("framework", ["torch", "tensorflow"])
    def test_values_come_in_the_targets_own_unit(self, tmp_path: Path, framework: str) -> None:
        assignment = builtin_job(tmp_path, {"source": "diabetes", "split": {"test": 0.2}}, framework)
        folder, metrics = trained(assignment, framework)
        rows, targets, numbers = table_of(assignment)
        test = np.isin(numbers, load_file(folder / "split.safetensors")["test"])

        answer = predict(folder, rows[test])

        assert answer.values is not None
        assert np.abs(answer.values - targets[test]).mean() == pytest.approx(metrics["test_mae"], rel=1e-5)

    def test_both_frameworks_give_the_same_answers(self, tmp_path: Path) -> None:
        answers = []
        for framework in ("torch", "tensorflow"):
            assignment = builtin_job(tmp_path / framework, "wine", framework, hyperparameters={"epochs": 5})
            answers.append(predict(trained(assignment, framework)[0], table_of(assignment)[0]))

        assert answers[0].labels == answers[1].labels
        assert_allclose(answers[0].probabilities, answers[1].probabilities, atol=1e-5)  # type: ignore[arg-type]

    def test_gives_labels_as_the_table_writes_them(self, tmp_path: Path) -> None:
        path = tmp_path / "trees.csv"
        path.write_text("f,kind\n" + "".join(f"{n},{'pine tree' if n < 30 else 'oak'}\n" for n in range(60)))
        settings = {"epochs": 60, "learning_rate": 0.05}
        folder, _ = trained(csv_job(tmp_path, path, {"target": "kind"}, hyperparameters=settings))

        assert predict(folder, np.array([[2.0], [58.0]])).labels == ["pine tree", "oak"]

    def test_one_row_is_a_table(self, tmp_path: Path) -> None:
        folder, _ = trained(builtin_job(tmp_path, "iris"))

        answer = predict(folder, np.array([[5.1, 3.5, 1.4, 0.2]]))

        assert answer.labels is not None
        assert len(answer.labels) == 1

    @pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 5)])
    def test_rows_of_another_width_are_refused_with_the_columns_names(
        self, tmp_path: Path, shape: tuple[int, ...]
    ) -> None:
        folder, _ = trained(builtin_job(tmp_path, "iris"))

        with pytest.raises(ValueError, match=r"Rows must have 4 columns, sepal length"):
            predict(folder, np.zeros(shape))

    def test_rows_of_arrays_have_the_arrays_shape(self, tmp_path: Path) -> None:
        shape, layers = MODELS["conv2d same"]
        folder = write_model(tmp_path, layers, shape)

        with pytest.raises(ValueError, match=r"the shape \(8, 7, 3\) each; these have \(7, 8, 3\)"):
            predict(folder, np.zeros((2, 7, 8, 3)))


class TestRows:
    """Text, gaps and the file's own labels: what a client sends is what the table had."""

    def test_rows_and_csv_are_answered_alike(self, model: Path) -> None:
        header, *lines = penguins().read_text().splitlines()
        names = header.split(",")
        lines = [line for line in lines if "NA" not in line][::40]
        rows = [
            {
                name: value if name in {"species", "island", "sex"} else float(value)
                for name, value in zip(names, line.split(","), strict=True)
            }
            for line in lines
        ]

        by_row = predict_rows(model, rows)
        by_file = predict_rows(model, "\n".join([header, *lines]).encode())

        assert by_row.labels == by_file.labels == [row["species"] for row in rows]
        assert by_row.probabilities is not None
        assert by_file.probabilities is not None
        assert by_row.probabilities.tolist() == by_file.probabilities.tolist()
        assert by_row.warnings == ()

    def test_gaps_are_filled_where_the_model_was_trained_with_them(self, model: Path) -> None:
        answer = predict_rows(model, [{"bill_length_mm": 39.1, "sex": None}])

        assert answer.labels is not None
        assert answer.labels[0] in {"Adelie", "Chinstrap", "Gentoo"}

    def test_category_that_was_not_seen_is_answered_with_a_warning(self, model: Path) -> None:
        answer = predict_rows(model, [{"island": "Atlantis"}])

        assert [(note.row, note.column) for note in answer.warnings] == [(1, "island")]
        assert "Atlantis" in answer.warnings[0].message

    def test_unknown_column_is_refused_with_row_and_column(self, model: Path) -> None:
        with pytest.raises(InvalidRows, match=r"Row 2: There is no column 'billlength'") as caught:
            predict_rows(model, [{}, {"billlength": 1.0}])

        assert [(problem.row, problem.column) for problem in caught.value.problems] == [(2, "billlength")]

    def test_file_that_is_no_table_is_refused(self, model: Path) -> None:
        with pytest.raises(InvalidTable):
            predict_rows(model, b"")

    def test_text_features_do_not_fit_into_an_array(self, model: Path) -> None:
        with pytest.raises(ValueError, match=r"'island' is text, which an array of numbers cannot hold"):
            predict(model, np.zeros((1, 7)))

    def test_model_of_another_place_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UnreadableModel, match="No such file"):
            predict_rows(tmp_path / "nothing", [{}])


class TestWhatAModelCannotAnswer:
    def test_number_beyond_float32_names_its_row(self, tmp_path: Path) -> None:
        shape, layers = MODELS["dense"]
        folder = write_model(tmp_path, layers, shape)
        rows = np.zeros((3, *TABLE))
        rows[1, 2] = 1e300

        with pytest.raises(InvalidRows, match=r"Row 2: the model's answer is not a finite number"):
            predict(folder, rows)

    def test_value_beyond_float64_names_its_row(self, tmp_path: Path) -> None:
        shape, layers = MODELS["dense"]
        model = LoadedModel.load(write_model(tmp_path, layers, shape, task="regression"))
        vast = model.description.model_copy(update={"target_scaling": Columns(mean=[0.0], scale=[1e308])})
        rows = [{"pixels": [0.0] * 6}, {"pixels": [1e4] * 6}]
        with pytest.raises(InvalidRows, match="Row 2: the model's answer is not a finite number"):
            replace(model, description=vast).answer(rows)

    def test_number_without_an_embedding_names_its_row(self, tmp_path: Path) -> None:
        folder = write_model(tmp_path, [EmbeddingLayer("embedding_1", VOCABULARY, 3), FlattenLayer("flatten_1")], (7,))

        with pytest.raises(InvalidRows, match=r"Row 2: Layer 'embedding_1' has a row for each whole number") as caught:
            predict_rows(folder, [{"pixels": [0] * 7}, {"pixels": [0, 0, 11, 0, 0, 0, 0]}])
        assert caught.value.problems[0].row == 2


class TestBlocks:
    @pytest.mark.parametrize("name", ["conv2d same", "lstm"])
    def test_many_rows_are_answered_block_by_block_and_in_order(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        shape, layers = MODELS[name]
        model = LoadedModel.load(write_model(tmp_path, layers, shape))
        rows, numbers = random_rows(name, 9), np.arange(1, 10)

        def answer() -> Predictions:
            return model.decide(rows.reshape(9, -1), numbers)

        whole = answer()
        monkeypatch.setattr(predictions, "_VALUES", 2000)  # of the widest layer, a few rows

        assert whole.probabilities is not None
        assert_allclose(answer().probabilities, whole.probabilities, rtol=1e-5)  # type: ignore[arg-type]

    def test_regression_without_a_scaling_gives_what_the_model_gives(self, tmp_path: Path) -> None:
        shape, layers = MODELS["dense"]
        loaded = LoadedModel.load(write_model(tmp_path, layers, shape, task="regression"))
        bare = LoadedModel(
            loaded.description.model_copy(update={"target_scaling": None}), loaded.weights, loaded.encoder
        )
        rows, numbers = random_rows("dense"), np.arange(1, 6)

        scaled, plain = loaded.decide(rows, numbers).values, bare.decide(rows, numbers).values

        assert scaled is not None
        assert plain is not None
        assert_allclose(scaled, plain * 70 + 150, rtol=1e-12)
