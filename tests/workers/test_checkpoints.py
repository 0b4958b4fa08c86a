"""A checkpoint on disk: the same bits come back, or a clear refusal, wherever the writer was killed."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from workers import checkpoints
from workers.checkpoints import (
    BEST_NAME,
    MANIFEST_NAME,
    STATE_NAME,
    WEIGHTS_NAME,
    BestSoFar,
    Partial,
    PatienceState,
    Position,
    State,
    UnreadableCheckpoint,
    read,
    read_weights,
    verify,
    write,
)

Damage = Callable[[Path], object]

POSITION = Position(
    step=17,
    epoch=2,
    partial=Partial(steps=3, rows=48, sums=[0.1 + 0.2, 40.0], seconds=0.25, rate=1e-3 / 3),
    metrics={"loss": 1 / 3, "val_loss": 0.7},
    best=BestSoFar(value=0.7, epoch=2, step=14, metrics={"val_loss": 0.7}),
    patience=PatienceState(reference=0.7, waited=1),
    plateau={"scale": 0.5, "best": None, "bad": 2, "cooling": 0},
    framework="torch",
    threads=2,
    spec_digest="ab" * 32,
)


def state(*, best: bool = True, seed: int = 0) -> State:
    generator = np.random.default_rng(seed)
    weights: dict[str, NDArray[np.floating]] = {
        "dense_1.kernel": generator.normal(size=(4, 3)).astype(np.float32),
        "dense_1.bias": np.asfortranarray(generator.normal(size=(3, 2))),
    }
    optimizer: dict[str, NDArray[np.generic]] = {
        "dense_1.kernel.mean": generator.normal(size=(3, 4)).T.astype(np.float32),
        "loss_scale.scale": np.array(32768.0, np.float32),
        "loss_scale.good_steps": np.array(7, np.int64),
    }
    return State(weights, optimizer, {"dense_1.kernel": np.ones((4, 3), np.float32)} if best else None, POSITION)


class TestRoundTrip:
    def test_every_bit_comes_back(self, tmp_path: Path) -> None:
        written = state()

        write(tmp_path / "c", written)
        found = read(tmp_path / "c")

        assert found.position == written.position
        for before, after in ((written.weights, found.weights), (written.optimizer, found.optimizer)):
            assert set(before) == set(after)
            for name, value in before.items():
                # A number stays a number: a loss scale of shape (1,) no longer fits where it came from.
                assert (after[name].dtype, after[name].shape) == (value.dtype, value.shape)
                assert after[name].tolist() == value.tolist()
        assert found.best is not None
        assert found.best["dense_1.kernel"].tolist() == np.ones((4, 3)).tolist()

    def test_best_weights_are_there_only_where_they_are_kept(self, tmp_path: Path) -> None:
        write(tmp_path / "c", state(best=False))

        assert read(tmp_path / "c").best is None
        assert not (tmp_path / "c" / BEST_NAME).exists()

    def test_manifest_names_step_epoch_and_every_file(self, tmp_path: Path) -> None:
        manifest = write(tmp_path / "c", state())

        assert (manifest.step, manifest.epoch) == (17, 2)
        names = {path.name for path in (tmp_path / "c").iterdir()}
        assert {facts.name for facts in manifest.files} | {MANIFEST_NAME} == names
        assert verify(tmp_path / "c") == manifest
        for facts in manifest.files:
            assert facts.size_bytes == (tmp_path / "c" / facts.name).stat().st_size

    def test_an_optimizer_without_memory_has_no_state(self, tmp_path: Path) -> None:
        write(tmp_path / "c", State(state().weights, {}, None, POSITION))

        assert read(tmp_path / "c").optimizer == {}

    def test_weights_alone_can_be_read(self, tmp_path: Path) -> None:
        write(tmp_path / "c", state())

        assert set(read_weights(tmp_path / "c")) == {"dense_1.kernel", "dense_1.bias"}

    def test_numbers_that_are_not_finite_cannot_become_a_state(self) -> None:
        with pytest.raises(ValueError, match="finite"):
            POSITION.model_copy().model_validate(POSITION.model_dump() | {"metrics": {"loss": float("nan")}})


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


DAMAGES: dict[str, Damage] = {
    "a file is missing": lambda folder: (folder / WEIGHTS_NAME).unlink(),
    "a file is short": lambda folder: _cut(folder / WEIGHTS_NAME),
    "one bit is wrong": lambda folder: _flip(folder / "optimizer.safetensors"),
    "the state is another": lambda folder: _flip(folder / STATE_NAME),
    "there is no manifest": lambda folder: (folder / MANIFEST_NAME).unlink(),
    "the manifest is cut": lambda folder: _cut(folder / MANIFEST_NAME),
    "the manifest is empty": lambda folder: (folder / MANIFEST_NAME).write_text("{}"),
}


class TestDamage:
    @pytest.mark.parametrize("damage", list(DAMAGES.values()), ids=list(DAMAGES))
    @pytest.mark.parametrize("look", [verify, read, read_weights])
    def test_is_found_before_anything_is_used(self, tmp_path: Path, damage: Damage, look: Damage) -> None:
        write(tmp_path / "c", state())
        damage(tmp_path / "c")

        with pytest.raises(UnreadableCheckpoint, match="checkpoint in 'c' cannot be used") as caught:
            look(tmp_path / "c")

        assert caught.value.code == "artifact_unreadable"

    @pytest.mark.parametrize("name", ["../secret.json", "/etc/passwd", "sub/weights.safetensors"])
    def test_a_manifest_cannot_name_a_file_outside(self, tmp_path: Path, name: str) -> None:
        write(tmp_path / "c", state())
        path = tmp_path / "c" / MANIFEST_NAME
        content = json.loads(path.read_text())
        content["files"][0]["name"] = name
        path.write_text(json.dumps(content))

        with pytest.raises(UnreadableCheckpoint, match="no list of a checkpoint's files"):
            verify(tmp_path / "c")

    def test_tensors_that_are_none_are_refused(self, tmp_path: Path) -> None:
        write(tmp_path / "c", State({"w": np.array([1j, 2j], np.complex64)}, {}, None, POSITION))

        with pytest.raises(UnreadableCheckpoint, match="does not hold numbers"):
            read(tmp_path / "c")


class TestHalfWritten:
    """Case C35: whatever the writer did not finish has no final name, and what was there before stays as it was."""

    @pytest.mark.parametrize("passes", [1, 2, 3, 4, 5])
    def test_a_writer_that_breaks_after_half_the_bytes_leaves_no_checkpoint(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passes: int
    ) -> None:
        write(tmp_path / "before", state())
        seen: list[str] = []

        def breaks(name: str) -> None:
            seen.append(name)
            if seen.count("checkpoint.half_written") == passes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(checkpoints, "point", breaks)
        with pytest.raises(OSError, match="No space left"):
            write(tmp_path / "c", state())

        with pytest.raises(UnreadableCheckpoint):
            read(tmp_path / "c")
        finals = [path for path in (tmp_path / "c").iterdir() if path.suffix != ".tmp"]
        assert len(finals) == passes - 1
        assert read(tmp_path / "before").position == POSITION

    def test_the_manifest_is_the_last_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        there: dict[str, set[str]] = {}

        def look(name: str) -> None:
            folder = tmp_path / "c"
            there[name] = {path.name for path in folder.iterdir()} if folder.exists() else set()

        monkeypatch.setattr(checkpoints, "point", look)
        write(tmp_path / "c", state())

        assert there["checkpoint.begin"] == set()
        assert MANIFEST_NAME not in there["checkpoint.before_manifest"]
        assert len(there["checkpoint.before_manifest"]) == 4
        assert MANIFEST_NAME in there["checkpoint.after_manifest"]

    def test_a_folder_is_never_written_twice(self, tmp_path: Path) -> None:
        write(tmp_path / "c", state(seed=1))

        with pytest.raises(FileExistsError):
            write(tmp_path / "c", state(seed=2))

        assert (
            read(tmp_path / "c").weights["dense_1.kernel"].tolist() == state(seed=1).weights["dense_1.kernel"].tolist()
        )
