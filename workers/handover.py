"""The end of a training that went well: its files written, and handed to whoever stores them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from safetensors.numpy import save_file

from app.spec import EffectiveSpec, Layer
from workers.backends.initial import Weights
from workers.context import Context
from workers.data.dataset import Dataset
from workers.data.split import PART_NAMES
from workers.model_file import TrainedModel, save

MODEL_FOLDER: Final = "model"
SPLIT_NAME: Final = "split.safetensors"
"""Row numbers of each part, as the table counts them: `train`, `validation`, `test`, int64."""


def hand_over(
    work_dir: Path,
    context: Context,
    spec: EffectiveSpec,
    layers: Sequence[Layer],
    data: Dataset,
    weights: Weights,
    metrics: Mapping[str, float],
) -> list[str]:
    """Write the model and the division of the rows; returns the names under which they are stored."""
    folder = work_dir / MODEL_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    model = TrainedModel(
        weights=weights,
        layers=layers,
        inputs=data.inputs,
        classes=data.vocabulary.labels if data.vocabulary else None,
        target=data.target,
        spec=spec,
        metrics=metrics,
    )
    paths = save(folder, model)
    for path in paths:
        media = "application/json" if path.suffix == ".json" else "application/octet-stream"
        context.artifact(path.name, path, media, "model")
    split = folder / SPLIT_NAME
    save_file({name: data.row_numbers[data.division.rows(name)] for name in PART_NAMES}, split)
    context.artifact(split.name, split, "application/octet-stream", "report")
    return [path.name for path in (*paths, split)]
