"""Penalties and clipping, against formulas and against torch's own functions."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from workers.backends.torch.gradients import Penalty, clipped


def tensors(scale: float = 1.0) -> list[Tensor]:
    generator = np.random.default_rng(2)
    return [torch.from_numpy(scale * generator.normal(size=shape)) for shape in ((4, 3), (3,), (3, 2))]


def flat(values: Sequence[Tensor]) -> list[float]:
    return torch.cat([value.ravel() for value in values]).tolist()


class TestPenalty:
    @pytest.mark.parametrize(("l1", "l2"), [(0.3, 0.0), (0.0, 0.2), (0.3, 0.2)])
    def test_is_the_derivative_of_l1_and_l2_of_the_kernels(self, l1: float, l2: float) -> None:
        weights = [tensor.requires_grad_() for tensor in tensors()]
        kernels, places = [weights[0], weights[2]], [0, 2]
        total = sum(l1 * kernel.abs().sum() + l2 * kernel.square().sum() for kernel in kernels)
        assert isinstance(total, Tensor)
        expected = torch.autograd.grad(total, kernels)

        added = Penalty(kernels, places, l1, l2).added([torch.zeros_like(weight) for weight in weights])

        assert_allclose(added[0].numpy(), expected[0].numpy(), rtol=1e-12)
        assert_allclose(added[2].numpy(), expected[1].numpy(), rtol=1e-12)
        assert added[1].tolist() == [0.0, 0.0, 0.0]

    def test_leaves_the_gradients_that_came_in(self) -> None:
        gradients = tensors()
        before = flat(gradients)

        Penalty([gradients[0]], [0], 0.1, 0.1).added(gradients)

        assert flat(gradients) == before

    def test_a_weight_of_zero_is_not_pushed_by_l1(self) -> None:
        (added,) = Penalty([torch.zeros(2)], [0], 0.5, 0.0).added([torch.zeros(2)])

        assert added.tolist() == [0.0, 0.0]


class TestClipValue:
    def test_cuts_each_number(self) -> None:
        gradients = [torch.tensor([-3.0, 0.5, 7.0])]

        assert clipped(gradients, 1.0, None)[0].tolist() == [-1.0, 0.5, 1.0]

    def test_comes_before_the_norm(self) -> None:
        # (3, 0.5) is cut to (1, 0.5), whose norm is the root of 1.25.
        (found,) = clipped([torch.tensor([3.0, 0.5], dtype=torch.float64)], 1.0, 0.1)

        assert_allclose(found.numpy(), np.array([1.0, 0.5]) * 0.1 / (np.sqrt(1.25) + 1e-6), rtol=1e-12)


class TestClipNorm:
    @pytest.mark.parametrize("largest", [0.1, 1.0, 1e6])
    def test_equals_torchs_own(self, largest: float) -> None:
        weights = [torch.zeros_like(gradient).requires_grad_() for gradient in tensors()]
        for weight, gradient in zip(weights, tensors(), strict=True):
            weight.grad = gradient
        torch.nn.utils.clip_grad_norm_(weights, largest)

        found = clipped(tensors(), None, largest)

        assert flat(found) == pytest.approx(flat([weight.grad for weight in weights if weight.grad is not None]), 1e-14)

    def test_leaves_the_gradients_that_came_in(self) -> None:
        # Two of them may be one tensor: the biases of two branches that are added, in a batch of one row.
        shared = torch.ones(3, dtype=torch.float64)

        one, other = clipped([shared, shared], None, 1.0)

        assert shared.tolist() == [1.0, 1.0, 1.0]
        assert one.tolist() == other.tolist()
        assert_allclose(one.numpy(), 1 / (np.sqrt(6) + 1e-6), rtol=1e-12)

    @pytest.mark.parametrize("strange", [float("inf"), float("nan")])
    def test_what_has_no_norm_becomes_nan_everywhere(self, strange: float) -> None:
        # Scaled by 0 instead, the model would stand still with a finite loss.
        found = clipped([torch.tensor([strange, 1.0]), torch.ones(2)], None, 1.0)

        assert np.isnan(flat(found)).all()
