"""Dropout masks: the same bits everywhere, and as good as drawn."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from app.spec.layers import (
    ActivationLayer,
    Conv2dLayer,
    DenseLayer,
    DropoutLayer,
    Layer,
    ParallelLayer,
    ResidualLayer,
)
from workers.backends.hashing import dropouts, kept, mix, places, scramble, step_keys, threshold
from workers.backends.tensorflow import dropout as tensorflow_dropout
from workers.backends.tensorflow.framework import tf
from workers.backends.torch import dropout as torch_dropout

Mask = NDArray[np.bool_]
Draw = Callable[[NDArray[np.uint32], int, float], Mask]


def in_torch(hashed: NDArray[np.uint32], key: int, rate: float) -> Mask:
    words = torch.from_numpy(hashed.view(np.int32))
    return np.asarray(torch_dropout.keep(words, torch_dropout.signed(key), rate).numpy())


def in_tensorflow(word: str, wrap: Callable[[Callable[..., Any]], Any]) -> Draw:
    def draw(hashed: NDArray[np.uint32], key: int, rate: float) -> Mask:
        keep = wrap(lambda place, key: tensorflow_dropout.keep(place, key, rate))
        return np.asarray(keep(tf.constant(hashed, word), tf.constant(key, word)).numpy())

    return draw


FRAMEWORKS: dict[str, Draw] = {
    "torch": in_torch,
    "tensorflow eager": in_tensorflow("uint32", lambda keep: keep),
    "tensorflow graph": in_tensorflow("uint32", tf.function),
    "tensorflow XLA": in_tensorflow("uint32", lambda keep: tf.function(keep, jit_compile=True)),
    "tensorflow words of a CUDA device": in_tensorflow("int64", tf.function),
}


class TestMix:
    def test_equals_the_published_function(self) -> None:
        # "lowbias32" of https://nullprogram.com/blog/2018/07/31/, in Python's whole numbers.
        def lowbias32(x: int) -> int:
            x = (x ^ x >> 16) * 0x7FEB352D & 0xFFFFFFFF
            x = (x ^ x >> 15) * 0x846CA68B & 0xFFFFFFFF
            return x ^ x >> 16

        numbers = [0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 123456789]

        assert mix(np.array(numbers, np.uint32)).tolist() == [lowbias32(number) for number in numbers]

    def test_is_a_bijection_on_a_range(self) -> None:
        assert len(np.unique(mix(np.arange(1 << 18, dtype=np.uint32)))) == 1 << 18

    def test_scramble_is_mix_up_to_the_low_half(self) -> None:
        numbers = np.arange(1000, dtype=np.uint32)

        assert (scramble(numbers) >> 16).tolist() == (mix(numbers) >> 16).tolist()


class TestMasks:
    @pytest.mark.parametrize("framework", FRAMEWORKS)
    @pytest.mark.parametrize("rate", [0.0, 0.1, 0.3, 0.5, 0.9, 0.999])
    def test_frameworks_draw_the_same_bits(self, framework: str, rate: float) -> None:
        hashed = places(33, 65)

        for key in [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, *step_keys(7, 1, 0, 20)[:, 0].tolist()]:
            expected = kept(hashed, np.uint32(key), rate)
            assert FRAMEWORKS[framework](hashed, int(key), rate).tobytes() == expected.tobytes()

    @pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
    def test_share_kept_is_what_the_rate_says(self, rate: float) -> None:
        masks = np.stack([kept(places(64, 256), key, rate) for key in step_keys(1, 1, 0, 200)[:, 0]])

        # 3.3 million draws: five standard deviations of their mean, and each mask's own within five of its.
        spread = math.sqrt(rate * (1 - rate))
        assert abs(masks.mean() - (1 - rate)) < 5 * spread / math.sqrt(masks.size)
        assert np.abs(masks.mean(axis=(1, 2)) - (1 - rate)).max() < 5 * spread / math.sqrt(masks[0].size)

    def test_masks_of_different_steps_are_unrelated(self) -> None:
        masks = np.stack([kept(places(64, 128), key, 0.5).ravel() for key in step_keys(1, 1, 0, 200)[:, 0]])

        correlation = np.corrcoef(masks.astype(float))
        np.fill_diagonal(correlation, 0)
        # 20 000 pairs of 8192 draws: the largest of so many is below 5.5 standard deviations.
        assert np.abs(correlation).max() < 5.5 / math.sqrt(64 * 128)

    def test_values_of_one_mask_are_unrelated(self) -> None:
        masks = np.stack([kept(places(16, 16), key, 0.5).ravel() for key in step_keys(1, 1, 0, 4000)[:, 0]])

        correlation = np.corrcoef(masks.T.astype(float))
        np.fill_diagonal(correlation, 0)
        assert np.abs(correlation).max() < 5.5 / math.sqrt(4000)

    def test_mask_of_a_step_is_no_shifted_copy_of_anothers(self) -> None:
        first, second = (kept(places(64, 64), key, 0.5).ravel() for key in step_keys(1, 1, 0, 2)[:, 0])

        agreement = [np.mean(first == np.roll(second, shift)) for shift in range(-200, 201)]
        assert max(agreement) < 0.5 + 5.5 * 0.5 / 64

    def test_smaller_batch_has_the_first_rows_of_the_larger_ones_mask(self) -> None:
        # So the uneven last batch, or a device's share of a batch, needs no table of its own.
        assert places(5, 12).tolist() == places(16, 12)[:5].tolist()

    def test_rate_zero_keeps_all(self) -> None:
        assert kept(places(64, 64), np.uint32(5), 0.0).all()
        assert threshold(0.0) == 0xFFFFFFFF


class TestStepKeys:
    def test_differ_by_seed_layer_and_step(self) -> None:
        keys = np.concatenate([step_keys(seed, 3, 0, 500).ravel() for seed in (0, 1, 1 << 32)])

        assert len(np.unique(keys)) == 4500

    def test_depend_on_the_step_and_not_on_the_chunk(self) -> None:
        assert step_keys(9, 2, 100, 5).tolist() == step_keys(9, 2, 0, 105)[100:].tolist()

    def test_another_layer_leaves_the_keys_of_those_before_it(self) -> None:
        assert step_keys(9, 3, 0, 4)[:, :2].tolist() == step_keys(9, 2, 0, 4).tolist()


class TestDropouts:
    def test_gives_each_dropout_layer_with_its_width(self) -> None:
        first, second = DropoutLayer("dropout_1", 0.1), DropoutLayer("dropout_2", 0.2)
        layers: list[Layer] = [first, DenseLayer("dense_1", 9), ActivationLayer("activation_1", "relu"), second]

        assert dropouts(layers, (4,)) == [(first, 4), (second, 9)]

    def test_goes_depth_first_and_counts_the_flattened_row(self) -> None:
        one, two, three, four = (DropoutLayer(f"dropout_{number}", 0.1) for number in range(1, 5))
        layers: list[Layer] = [
            ResidualLayer(
                "residual_1",
                (Conv2dLayer("conv2d_1", 5, (3, 3), (2, 2)), ParallelLayer("parallel_1", ((one,), (two,)), "add")),
                (three, Conv2dLayer("conv2d_2", 5, (1, 1), (2, 2))),
            ),
            four,
        ]

        # 7 x 6 with strides of 2 is 4 x 3, with five channels; the shortcut still has 7 x 6 with three.
        assert dropouts(layers, (7, 6, 3)) == [(one, 60), (two, 60), (three, 126), (four, 60)]

    def test_one_table_serves_every_width(self) -> None:
        assert places(4, 12).ravel()[:20].tolist() == places(4, 5).ravel().tolist()
