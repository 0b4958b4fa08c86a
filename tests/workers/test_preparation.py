"""What comes before the first step: the program a spec stands for, and the weights it starts from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.errors import Cause
from app.spec import layers_of, weight_facts
from tests.workers.backends.fake import NumpyBackend
from tests.workers.training_jobs import CPU, Listener, builtin_job, csv_job
from workers.backends.base import Program
from workers.backends.initial import Weights, draw_weights
from workers.blueprint import blueprint_of
from workers.checkpoints import UnreadableCheckpoint, read, write
from workers.context import NullContext
from workers.failure import failure_of
from workers.loop import train
from workers.preparation import OtherModel, open_session, parameter_count, program_of, read_dataset
from workers.protocol import Assignment

SEVENTEEN = Path(__file__).parents[1] / "data" / "seventeen_rows.csv"


def program(assignment: Assignment, devices: int = 1) -> Program:
    data = read_dataset(assignment, NullContext())
    return program_of(assignment.spec, blueprint_of(assignment, data), data, devices)


def first(assignment: Assignment) -> Weights:
    """Open the session of a job, and give the weights that it starts from."""
    data = read_dataset(assignment, NullContext())
    return open_session(assignment, blueprint_of(assignment, data), data, NumpyBackend(), "float64").weights()


def job(work_dir: Path, hidden: int = 8, **settings: object) -> Assignment:
    work_dir.mkdir(parents=True, exist_ok=True)
    quick = {"epochs": 2, "batch_size": 16, **settings}
    return builtin_job(work_dir, "iris", model={"type": "mlp", "hidden": [hidden]}, hyperparameters=quick)


class TestProgram:
    def test_says_what_the_spec_says(self, tmp_path: Path) -> None:
        found = program(
            job(
                tmp_path,
                optimizer="adamw",
                weight_decay=0.01,
                l1=0.002,
                l2=0.003,
                clip_norm=2.0,
                clip_value=0.5,
                precision="bfloat16",
                seed=7,
            ),
            devices=2,
        )

        assert (found.input_shape, found.loss, found.optimizer.name) == ((4,), "cross_entropy", "adamw")
        assert (found.weight_decay, found.l1, found.l2) == (0.01, 0.002, 0.003)
        assert (found.clip_norm, found.clip_value, found.precision) == (2.0, 0.5, "bfloat16")
        assert (found.seed, found.world, found.dtype, found.class_weights) == (7, 2, "float32", None)

    def test_class_weights_stand_in_the_order_of_the_classes(self, tmp_path: Path) -> None:
        assert program(job(tmp_path, class_weights={"1": 3.0})).class_weights == (1.0, 3.0, 1.0)

    def test_a_batch_is_never_larger_than_the_training_part(self, tmp_path: Path) -> None:
        assert program(job(tmp_path, batch_size=1000)).batch_size == 120

    @pytest.mark.parametrize(("batch_norm", "largest"), [(False, 16), (True, 17)])
    def test_room_for_a_last_batch_of_one_row_that_joins_the_one_before(
        self, tmp_path: Path, *, batch_norm: bool, largest: int
    ) -> None:
        model = {"type": "mlp", "hidden": [4], "batch_norm": batch_norm}
        assignment = csv_job(
            tmp_path,
            SEVENTEEN,
            {"target": "label", "split": {"validation": 0.0, "test": 0.0}},
            model=model,
            hyperparameters={"batch_size": 16},
        )

        assert program(assignment).batch_size == largest


class TestParameterCount:
    def test_counts_what_is_trained(self, tmp_path: Path) -> None:
        model = {"type": "mlp", "hidden": [8], "batch_norm": True}
        assignment = builtin_job(tmp_path, "iris", model=model)
        data = read_dataset(assignment, NullContext())

        # 4 x 8 and 8 biases, unless batch norm makes them useless; 8 gammas and betas; 8 x 3 and 3.
        layers = layers_of(assignment.spec, 3, (4,))
        biased = getattr(layers[0], "use_bias", True)
        assert parameter_count(weight_facts(layers, data.input_shape)) == 32 + 8 * biased + 16 + 27


class TestInitializeFrom:
    @pytest.fixture
    def other(self, tmp_path: Path) -> Path:
        """The final checkpoint of another job of the same model, in a folder of its own."""
        listener = Listener()
        train(job(tmp_path / "other", seed=5), NumpyBackend(), listener, say=lambda _: None)
        return tmp_path / "other" / listener.checkpoints[-1].path

    def starting(self, assignment: Assignment, folder: Path) -> Assignment:
        place = Path(assignment.work_dir) / "initialize"
        write(place, read(folder))
        return assignment.model_copy(update={"initialize": "initialize"})

    def test_starts_from_its_weights(self, tmp_path: Path, other: Path) -> None:
        assignment = self.starting(job(tmp_path / "new"), other)

        found = first(assignment)

        wanted = read(other).weights
        assert {name: value.tolist() for name, value in found.items()} == {
            name: value.tolist() for name, value in wanted.items()
        }

    def test_takes_nothing_else_of_it(self, tmp_path: Path, other: Path) -> None:
        listener = Listener()

        train(self.starting(job(tmp_path / "new"), other), NumpyBackend(), listener, say=lambda _: None)

        assert listener.points[0].epoch == 1
        final = read(tmp_path / "new" / listener.checkpoints[-1].path)
        assert final.position.step == 16

    def test_learns_on_from_there(self, tmp_path: Path, other: Path) -> None:
        fresh, onward = Listener(), Listener()
        train(job(tmp_path / "fresh"), NumpyBackend(), fresh, say=lambda _: None)
        train(self.starting(job(tmp_path / "new"), other), NumpyBackend(), onward, say=lambda _: None)

        assert onward.series("loss")[0] < fresh.series("loss")[0]

    @pytest.mark.parametrize(
        ("model", "name"),
        [
            ({"type": "mlp", "hidden": [9]}, "dense_1.kernel"),
            ({"type": "mlp", "hidden": [8, 8]}, "dense_2.kernel"),
            ("linear", "output.kernel"),
        ],
    )
    def test_of_another_model_is_refused_by_name_and_shape(
        self, tmp_path: Path, other: Path, model: Any, name: str
    ) -> None:
        assignment = self.starting(builtin_job(tmp_path / "new", "iris", model=model), other)

        with pytest.raises(OtherModel, match=f"does not fit at '{name}'") as caught:
            train(assignment, NumpyBackend(), Listener(), say=lambda _: None)

        assert caught.value.name == name
        assert failure_of(caught.value, None).cause == Cause.INVALID_DATA
        assert "initialize_from null" in str(caught.value)

    def test_a_damaged_one_is_refused(self, tmp_path: Path, other: Path) -> None:
        assignment = self.starting(job(tmp_path / "new"), other)
        (tmp_path / "new" / "initialize" / "manifest.json").unlink()

        with pytest.raises(UnreadableCheckpoint):
            train(assignment, NumpyBackend(), Listener(), say=lambda _: None)

    def test_an_own_checkpoint_counts_more(self, tmp_path: Path, other: Path) -> None:
        listener, resumed = Listener(stop_at=2), Listener()
        begun = self.starting(job(tmp_path / "new"), other)
        train(begun, NumpyBackend(), listener, say=lambda _: None)
        second = begun.model_copy(update={"resume": listener.checkpoints[-1].path})

        train(second, NumpyBackend(), resumed, say=lambda _: None)

        assert resumed.reports[-1].step == 16


class TestDevices:
    def test_those_that_were_leased_are_the_programs_world(self, tmp_path: Path) -> None:
        worlds: list[int] = []

        class Recording(NumpyBackend):
            def open(self, program: Program, *rest: Any) -> Any:
                worlds.append(program.world)
                return super().open(program, *rest)

        slots = [CPU.model_copy(update={"id": f"cpu-{place}@host"}) for place in range(3)]
        train(job(tmp_path).model_copy(update={"devices": slots}), Recording(), NullContext(), say=lambda _: None)

        assert worlds == [3]


class TestFirstWeights:
    def test_are_drawn_from_the_seed(self, tmp_path: Path) -> None:
        assignment = job(tmp_path, seed=11)
        layers = layers_of(assignment.spec, 3, (4,))

        found = first(assignment)

        assert all(np.array_equal(value, found[name]) for name, value in draw_weights(layers, (4,), 11).items())
