"""A part measured: every row once, block by block, the same whatever the blocks."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from app.spec import layers_of
from app.spec.layers import Conv2dLayer, DenseLayer, Layer, LstmLayer
from tests.workers.training_jobs import builtin_job
from workers.backends.base import Session
from workers.context import NullContext
from workers.data.metrics import evaluate
from workers.evaluation import Evaluator, block_rows
from workers.preparation import read_dataset


class Asked:
    """A session that answers each row with its own number, and remembers what it was asked."""

    def __init__(self) -> None:
        self.blocks: list[tuple[str, int, int]] = []

    def outputs(self, part: str, start: int, stop: int) -> NDArray[np.floating]:
        self.blocks.append((part, start, stop))
        rows = np.arange(start, stop, dtype=np.float64)
        return np.stack([np.cos(rows), np.sin(rows), rows % 3], axis=1)


class Scene:
    def __init__(self, work_dir: Path, block: int, **data: object) -> None:
        self.assignment = builtin_job(work_dir, {"source": "iris", "split": {"validation": 0.2, "test": 0.0}, **data})
        self.data = read_dataset(self.assignment, NullContext())
        self.session = Asked()
        self.safe_points = 0
        self.evaluator = Evaluator(
            cast("Session", self.session), self.data, self.assignment.spec, block, self._safe_point
        )

    def _safe_point(self) -> None:
        self.safe_points += 1


class TestOutputs:
    @pytest.mark.parametrize("block", [1, 7, 30, 1000])
    def test_every_row_once_whatever_the_blocks(self, tmp_path: Path, block: int) -> None:
        scene = Scene(tmp_path, block)

        outputs = scene.evaluator.outputs("validation")

        assert outputs.tolist() == Asked().outputs("validation", 0, 30).tolist()
        assert scene.safe_points == len(scene.session.blocks) == -(-30 // block)

    def test_of_the_first_rows_alone(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path, 5)

        assert len(scene.evaluator.outputs("validation", limit=8)) == 8
        assert scene.session.blocks == [("validation", 0, 5), ("validation", 5, 8)]


class TestMeasure:
    def test_names_have_the_prefix_and_values_are_those_of_all_rows(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path, 7)

        found = scene.evaluator.measure("validation", "val_")

        y = scene.data.parts["validation"].y
        whole = evaluate(Asked().outputs("validation", 0, 30), y, "classification", ["accuracy"], 1.0, "cross_entropy")
        assert found == {f"val_{name}": value for name, value in whole.items()}

    def test_an_empty_part_has_no_values(self, tmp_path: Path) -> None:
        scene = Scene(tmp_path, 7)

        assert scene.evaluator.measure("test", "test_") == {}
        assert scene.evaluator.report("test") == {"rows": 0}
        assert scene.session.blocks == []


def block(*layers: Layer, shape: tuple[int, ...]) -> int:
    return block_rows(layers, shape)


class TestBlockRows:
    def test_small_models_take_many_rows(self) -> None:
        assert block(DenseLayer("output", 3), shape=(4,)) == 8192

    def test_large_models_take_fewer(self) -> None:
        # 10^9 multiplications over 1000 x 1000 + 1000 a row.
        assert block(DenseLayer("output", 1000), shape=(1000,)) == 999

    def test_a_convolution_costs_its_kernel_at_every_place(self) -> None:
        # 3 x 3 x 8 x 16 + 16 weights at 28 x 28 places; 784 x 16 values given out.
        wide = block(Conv2dLayer("conv2d_1", 16, (3, 3)), shape=(28, 28, 8))

        assert wide == int(1e9 / (1 + 784 * (9 * 8 * 16 + 16)))

    def test_a_cell_costs_its_weights_at_every_step(self) -> None:
        steps = 50
        weights = 4 * 64 * (10 + 64 + 1)

        assert block(LstmLayer("lstm_1", 64), shape=(steps, 10)) == int(1e9 / (1 + steps * weights))

    def test_wide_pictures_are_bounded_by_what_they_give_out(self) -> None:
        assert block(Conv2dLayer("conv2d_1", 4, (1, 1)), shape=(256, 256, 1)) == (1 << 24) // (256 * 256 * 4)

    def test_at_least_some(self) -> None:
        assert block(DenseLayer("output", 60_000), shape=(60_000,)) == 32

    def test_is_the_same_for_the_layers_of_a_spec_each_time(self, tmp_path: Path) -> None:
        scene: Any = SimpleNamespace(spec=builtin_job(tmp_path, "digits").spec)

        assert block_rows(layers_of(scene.spec, 10), (64,)) == block_rows(layers_of(scene.spec, 10), (64,)) == 8192
