"""Weights by name where Keras counts its layers anew."""

import pytest

from workers.user_model.names import matched, renumbered


class TestRenumbered:
    def test_counts_each_layer_of_a_path_from_nothing_in_the_order_of_its_number(self) -> None:
        # As Keras named a second model of one process.
        names = ["net_1/dense_12/kernel", "net_1/dense_9/kernel", "net_1/norm/gamma"]

        assert renumbered(names) == {
            "net_1/dense_12/kernel": "net/dense_1/kernel",
            "net_1/dense_9/kernel": "net/dense/kernel",
            "net_1/norm/gamma": "net/norm/gamma",
        }

    def test_leaves_names_without_a_number_as_they_are(self) -> None:
        assert renumbered(["features.0.weight", "out.bias"]) == {
            "features.0.weight": "features.0.weight",
            "out.bias": "out.bias",
        }

    def test_a_layer_is_counted_where_it_stands(self) -> None:
        assert renumbered(["a_3/b_3", "b_7/a_9"]) == {"a_3/b_3": "a/b", "b_7/a_9": "b/a"}


class TestMatched:
    def test_equal_names_stay(self) -> None:
        assert matched(["block_2/w", "block_3/w"], {"block_3/w": 3, "block_2/w": 2}) == {"block_2/w": 2, "block_3/w": 3}

    def test_a_later_model_of_the_same_function_takes_them_in_order(self) -> None:
        assert matched(
            ["net_1/dense_2/k", "net_1/dense_10/k"], {"net/dense/k": "first", "net/dense_1/k": "second"}
        ) == {
            "net_1/dense_2/k": "first",
            "net_1/dense_10/k": "second",
        }

    @pytest.mark.parametrize(
        "given",
        [{}, {"net/dense/k": 0}, {"net/dense/k": 0, "net/dense_1/b": 0}, {"n/d/k": 0, "n/d_1/k": 0, "n/d_2/k": 0}],
    )
    def test_another_models_are_none(self, given: dict[str, int]) -> None:
        assert matched(["net/dense/k", "net/dense_1/k"], given) is None

    def test_two_that_would_be_one_are_none(self) -> None:
        assert matched(["a/k", "a_1/k"], {"a_0/k": 0, "a/k": 1}) is None
