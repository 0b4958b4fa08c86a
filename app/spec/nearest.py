"""The nearest known key or value to what a client wrote, and its right place."""

import difflib
import re
from collections.abc import Iterable
from functools import cache

from app.spec.job import JobSpec
from app.spec.places import Place, every_field, models_in

_CUTOFF = 0.7  # similarity (difflib's ratio) from which two words are taken for the same one, misspelt
_FAR_CUTOFF = 0.85  # the same for a key of another level, where a wrong guess would only confuse
_LONGEST = 200  # characters that are looked at

# Keys of other tools, and their place here; None = there is no such setting.
_ELSEWHERE: dict[str, str | None] = {
    "accelerator": "device_type",
    "architecture": "model",
    "arch": "model",
    "backend": "framework",
    "batch": "hyperparameters.batch_size",
    "bs": "hyperparameters.batch_size",
    "beta1": "hyperparameters.optimizer.beta_1",
    "beta2": "hyperparameters.optimizer.beta_2",
    "columns": "data.features",
    "command": None,
    "criterion": "loss",
    "csv": "data.source",
    "dataset": "data",
    "dataset_id": "data.source",
    "device": "device_type",
    "devices": "device_count",
    "entrypoint": None,
    "env": None,
    "eps": "hyperparameters.optimizer.epsilon",
    "eta_min": "hyperparameters.schedule.final_learning_rate",
    "file": "data.source",
    "gpu": "device_count",
    "gpus": "device_count",
    "hidden_layer_sizes": "model.hidden",
    "hidden_layers": "model.hidden",
    "hidden_sizes": "model.hidden",
    "hidden_units": "model.hidden",
    "hparams": "hyperparameters",
    "image": None,
    "inputs": "data.features",
    "label": "data.target",
    "label_column": "data.target",
    "layer_sizes": "model.hidden",
    "library": "framework",
    "lr": "hyperparameters.learning_rate",
    "lr_scheduler": "hyperparameters.schedule",
    "max_attempts": "retry.failures",
    "max_epochs": "hyperparameters.epochs",
    "max_retries": "retry.failures",
    "max_runtime_seconds": "timeout_s",
    "metadata": "tags",
    "n_epochs": "hyperparameters.epochs",
    "nb_epoch": "hyperparameters.epochs",
    "network": "model",
    "num_devices": "device_count",
    "num_epochs": "hyperparameters.epochs",
    "num_gpus": "device_count",
    "n_gpus": "device_count",
    "num_workers": None,
    "outputs": "data.target",
    "path": "data.source",
    "per_device_train_batch_size": "hyperparameters.batch_size",
    "pin_memory": None,
    "random_seed": "hyperparameters.seed",
    "random_state": "hyperparameters.seed",
    "retries": "retry.failures",
    "scheduler": "hyperparameters.schedule",
    "script": None,
    "strategy": None,
    "test_size": "data.split.test",
    "timeout": "timeout_s",
    "train_batch_size": "hyperparameters.batch_size",
    "units": "model.hidden",
    "val_split": "data.split.validation",
    "validation_split": "data.split.validation",
    "workers": None,
}

# Words of other tools for values of ours.
_SYNONYMS = {
    "acc": "accuracy",
    "adamw": "adam",
    "bce": "cross_entropy",
    "binary_crossentropy": "cross_entropy",
    "categorical_crossentropy": "cross_entropy",
    "crossentropy": "cross_entropy",
    "cosine_annealing": "cosine",
    "gpu": "cuda",
    "keras": "tensorflow",
    "leaky_relu": "relu",
    "mean_absolute_error": "mae",
    "mean_squared_error": "mse",
    "nll": "cross_entropy",
    "pytorch": "torch",
    "smooth_l1": "huber",
    "sparse_categorical_crossentropy": "cross_entropy",
    "rmse": "mse",
    "swish": "silu",
    "tf": "tensorflow",
}


@cache
def _paths() -> dict[str, list[str]]:
    """Every key of the spec, with the places that have it, the shallowest first."""
    found: dict[str, list[str]] = {}
    for path, _ in every_field(JobSpec):
        places = found.setdefault(path[-1], [])
        if ".".join(path) not in places:
            places.append(".".join(path))
    return {key: sorted(places, key=lambda place: place.count(".")) for key, places in found.items()}


def spelt_like_ours(key: str) -> str:
    """Write a key in our style: `batch-size`, `batchSize` and `Batch Size` become `batch_size`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key)
    return re.sub(r"[\s\-.]+", "_", spaced).lower()


def nearest_word(word: str, known: Iterable[str], *, cutoff: float = _CUTOFF) -> str | None:
    """Return the known word that `word` most likely means, or None."""
    words = list(known)
    plain = spelt_like_ours(word[:_LONGEST])
    if plain in words:
        return plain
    synonym = _SYNONYMS.get(plain)
    if synonym in words:
        return synonym
    close = difflib.get_close_matches(plain, words, n=1, cutoff=cutoff)
    return close[0] if close else None


def right_place(place: Place) -> tuple[str, str | None]:
    """Explain an unknown key: what to say after it (`{here}` = where it stands), and the key or dotted path meant."""
    here = list(place.owner.model_fields) if place.owner is not None else []
    plain = spelt_like_ours(str(place.parts[-1])[:_LONGEST])
    if plain in here:
        return "is not a key of {here}", plain
    others = [
        tag for tag, member in place.siblings.items() for model in models_in(member) if plain in model.model_fields
    ]
    if others:
        return f"is a key of {' and '.join(others)}, not of this kind of {{here}}", None
    if plain in _ELSEWHERE:
        path = _ELSEWHERE[plain]
        if path is None:
            return "is not a setting here", None
        return "is not a key of {here}", path.rsplit(".", 1)[-1] if path.rsplit(".", 1)[-1] in here else path
    return _close(plain, here, [part for part in place.parts[:-1] if isinstance(part, str)])


def _close(plain: str, here: list[str], inside: list[str]) -> tuple[str, str | None]:
    """Look for the key in other places, then for a similar one here, then for a similar one anywhere."""
    paths = _paths()
    if plain in paths:
        return "stands in the wrong place", _nearest_path(paths[plain], inside)
    close = nearest_word(plain, here)
    if close is not None:
        return "is not a key of {here}", close
    far = nearest_word(plain, paths, cutoff=_FAR_CUTOFF)
    if far is not None:
        return "is not a key of {here}", _nearest_path(paths[far], inside)
    return f"is not a key of {{here}}, which has {', '.join(here)}", None


def _nearest_path(paths: list[str], inside: list[str]) -> str:
    """Prefer a place below the one where the key was written, else the shallowest."""
    below = [path for path in paths if inside and path.startswith(".".join(inside) + ".")]
    return (below or paths)[0]
