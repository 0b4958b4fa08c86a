"""Rows answered by python models, in real processes; a linear model's right answers are products of matrices."""

from collections.abc import Callable

import pytest
from numpy.testing import assert_allclose

from tests.workers.user_code.conftest import Asker
from tests.workers.user_code.models import CLASSES, FEATURES, MEAN, ROWS, SCALE, write_python_model
from workers.model_file import softmax
from workers.predictor_handle import PredictionRefused, PredictorGone

TABLE = "a,b,c,d\n5.1,3.5,1.4,0.2\n6.7,3.0,5.2,2.3\n"
FAR_S = 1e6


class TestAnswers:
    def test_rows_and_tables_are_answered_with_labels_and_probabilities(self, asker: Asker) -> None:
        saved = asker.write()
        expected = softmax(saved.logits(ROWS))

        for rows in (ROWS, TABLE):
            found = asker.ask(saved, rows)

            assert (found["task"], found["framework"], found["warnings"]) == ("classification", "torch", [])
            assert found["labels"] == saved.labels(ROWS)
            assert [list(row) for row in found["probabilities"]] == [list(CLASSES)] * 2
            assert_allclose([list(row.values()) for row in found["probabilities"]], expected, rtol=1e-5)

    def test_values_of_a_regression_are_in_the_targets_unit(self, asker: Asker) -> None:
        saved = asker.write(task="regression")

        found = asker.ask(saved, ROWS)

        assert_allclose(found["values"], saved.logits(ROWS)[:, 0] * SCALE + MEAN, rtol=1e-5)

    def test_rows_that_do_not_fit_are_named_and_the_process_stays(self, asker: Asker) -> None:
        saved = asker.write()
        asker.ask(saved, ROWS)
        before = asker.left()

        with pytest.raises(PredictionRefused) as caught:
            asker.ask(saved, [ROWS[0], {"a": 1, "b": "tall", "c": 1, "d": 1}])

        assert caught.value.code == "invalid_rows"
        assert [(item["row"], item["column"]) for item in caught.value.errors] == [(2, "b")]
        assert asker.left() == before
        assert asker.ask(saved, ROWS)["labels"] == saved.labels(ROWS)

    def test_no_rows_have_no_answers(self, asker: Asker) -> None:
        with pytest.raises(PredictionRefused, match="no row to predict"):
            asker.ask(asker.write(), [])

    def test_more_rows_than_go_through_at_once(self, asker: Asker) -> None:
        saved = asker.write()
        rows = [{name: float(place % 7 - 3) for name in FEATURES} for place in range(2_500)]

        assert asker.ask(saved, rows)["labels"] == saved.labels(rows)

    def test_a_number_that_is_too_large_is_named_with_its_row(self, asker: Asker) -> None:
        with pytest.raises(PredictionRefused, match="Row 2") as caught:
            asker.ask(asker.write(), [ROWS[0], dict.fromkeys(FEATURES, 1e200)])
        assert caught.value.code == "invalid_rows"

    def test_a_number_that_the_code_spoils_is_not_blamed_on_the_row_alone(self, asker: Asker) -> None:
        source = (
            "from torch import nn\n"
            "class Spoiled(nn.Linear):\n    def forward(self, x): return super().forward(x) * float('nan')\n"
            "def build(*, input_shape, output_units): return Spoiled(*input_shape, output_units)\n"
        )
        with pytest.raises(PredictionRefused, match="or its own code makes it so") as caught:
            asker.ask(asker.write(source), ROWS)
        assert caught.value.code == "invalid_rows"

    def test_parameters_variables_and_files_of_the_bundle_are_there(self, asker: Asker) -> None:
        source = (
            "import os, pathlib\nfrom torch import nn\n"
            "def build(width, input_shape, output_units):\n"
            "    assert width == 7 and os.environ['FLAVOUR'] == 'sour', (width, os.environ)\n"
            "    assert pathlib.Path(__file__).with_name('names.txt').read_text() == 'a b'\n"
            "    return nn.Linear(*input_shape, output_units)\n"
        )
        files = {"pack/__init__.py": "", "pack/net.py": source, "pack/names.txt": "a b"}
        saved = write_python_model(asker.folder / "m", files, entrypoint="pack.net:build", parameters={"width": 7})

        assert asker.ask(saved, ROWS, variables={"FLAVOUR": "sour"})["labels"] == saved.labels(ROWS)

    @pytest.mark.slow
    def test_a_keras_model_answers_too(self, asker: Asker) -> None:
        saved = asker.write(framework="tensorflow")

        found = asker.ask(saved, ROWS, framework="tensorflow")

        assert found["labels"] == saved.labels(ROWS)
        shares = [list(row.values()) for row in found["probabilities"]]
        assert_allclose(shares, softmax(saved.logits(ROWS)), rtol=1e-5)


class TestWhatIsKept:
    def test_one_process_for_a_model_and_the_last_few_models(self, make_asker: Callable[..., Asker]) -> None:
        asker = make_asker(kept=2)
        models = [asker.write(name=name, seed=seed) for seed, name in enumerate("abc")]

        for saved in models[:2]:
            asker.ask(saved, ROWS)
        first = asker.left()
        for saved in models[:2]:
            assert asker.ask(saved, ROWS)["labels"] == saved.labels(ROWS)
        assert asker.left() == first

        asker.ask(models[2], ROWS)
        second = asker.left()
        assert len(first) == len(second) == 2
        assert len({*first} & {*second}) == 1, "the one that nobody has asked for longest has gone"

    def test_what_nobody_asks_is_ended(self, make_asker: Callable[..., Asker]) -> None:
        now = [0.0]
        asker = make_asker(idle_s=100.0, load_s=FAR_S, answer_s=FAR_S, monotonic=lambda: now[0])
        saved = asker.write()
        asker.ask(saved, ROWS)
        now[0] = 99.0
        asker.pool.idle()
        assert len(asker.left()) == 1
        now[0] = 101.0
        asker.pool.idle()
        assert asker.left() == []
        assert asker.ask(saved, ROWS)["labels"] == saved.labels(ROWS)

    def test_after_a_stop_nothing_is_left_and_nobody_is_answered(self, asker: Asker) -> None:
        saved = asker.write()
        asker.ask(saved, ROWS)
        asker.pool.stop()
        asker.pool.stop()
        assert asker.left() == []
        with pytest.raises(PredictorGone):
            asker.ask(saved, ROWS)
        assert asker.left() == []


class TestWhatCannotBeStarted:
    def test_a_worker_without_the_framework(self, make_asker: Callable[..., Asker]) -> None:
        asker = make_asker()
        with pytest.raises(PredictorGone, match="no interpreter for python"):
            asker.ask(asker.write(), ROWS, framework="python")
        assert asker.left() == []

    def test_a_model_whose_code_is_not_there(self, asker: Asker) -> None:
        saved = asker.write()
        (saved.folder / "code.zip").unlink()
        with pytest.raises(PredictionRefused, match=r"code\.zip") as caught:
            asker.ask(saved, ROWS)
        assert caught.value.code == "artifact_unreadable"
        assert asker.left() == []
