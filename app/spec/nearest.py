"""The nearest known key or value to what a client wrote, and its right place."""

import difflib
import heapq
import re
from collections.abc import Iterable
from functools import cache

from pydantic import BaseModel

from app.spec.places import Place, every_field, models_in
from app.spec.script import ScriptSpec

_CUTOFF = 0.7  # similarity (difflib's ratio) from which two words are taken for the same one, misspelt
_FAR_CUTOFF = 0.85  # the same for a key of another level, where a wrong guess would only confuse
_LONGEST = 200  # characters that are looked at
_MOST_COMPARED = 100  # words; comparing one takes a tenth of a millisecond, and a table may have 16,384 columns

# Keys of other tools, and their place here; None = there is no such setting.
_ELSEWHERE: dict[str, str | None] = {
    "accelerator": "device_type",
    "amp": "hyperparameters.precision",
    "arch": "model",
    "architecture": "model",
    "backend": "framework",
    "batch": "hyperparameters.batch_size",
    "beta1": "hyperparameters.optimizer.beta_1",
    "beta2": "hyperparameters.optimizer.beta_2",
    "bs": "hyperparameters.batch_size",
    "channels": "model.filters",
    "class_weight": "hyperparameters.class_weights",
    "clipnorm": "hyperparameters.clip_norm",
    "clipvalue": "hyperparameters.clip_value",
    "columns": "data.features",
    "cmd": "script.command",
    "command": "script.command",
    "criterion": "loss",
    "csv": "data.source",
    "dataset": "data",
    "dataset_id": "data.source",
    "decay_rate": "hyperparameters.schedule.factor",
    "device": "device_type",
    "devices": "device_count",
    "dtype": "hyperparameters.precision",
    "env": "model.environment.variables",
    "eps": "hyperparameters.optimizer.epsilon",
    "eta_min": "hyperparameters.schedule.final_learning_rate",
    "file": "data.source",
    "fillna": "data.missing",
    "gamma": "hyperparameters.schedule.factor",
    "gpu": "device_count",
    "gpus": "device_count",
    "gradient_clip_val": "hyperparameters.clip_norm",
    "hidden_layer_sizes": "model.hidden",
    "hidden_layers": "model.hidden",
    "hidden_sizes": "model.hidden",
    "hidden_units": "model.hidden",
    "hparams": "hyperparameters",
    "image": None,
    "image_size": "model.input_shape",
    "inputs": "data.features",
    "kernel": "model.kernel_size",
    "label": "data.target",
    "label_column": "data.target",
    "layer_sizes": "model.hidden",
    "library": "framework",
    "lr": "hyperparameters.learning_rate",
    "lr_scheduler": "hyperparameters.schedule",
    "max_attempts": "retry.failures",
    "max_epochs": "hyperparameters.epochs",
    "max_grad_norm": "hyperparameters.clip_norm",
    "max_retries": "retry.failures",
    "max_runtime_seconds": "timeout_s",
    "metadata": "tags",
    "min_lr": "hyperparameters.schedule.min_learning_rate",
    "mixed_precision": "hyperparameters.precision",
    "n_epochs": "hyperparameters.epochs",
    "n_gpus": "device_count",
    "nb_epoch": "hyperparameters.epochs",
    "network": "model",
    "num_devices": "device_count",
    "num_epochs": "hyperparameters.epochs",
    "num_gpus": "device_count",
    "num_workers": None,
    "out_channels": "model.filters",
    "outputs": "data.target",
    "path": "data.source",
    "per_device_train_batch_size": "hyperparameters.batch_size",
    "pin_memory": None,
    "pretrained": "initialize_from",
    "random_seed": "hyperparameters.seed",
    "random_state": "hyperparameters.seed",
    "restore_best_weights": "hyperparameters.early_stopping.restore_best",
    "retries": "retry.failures",
    "scheduler": "hyperparameters.schedule",
    "step_size": "hyperparameters.schedule.every_epochs",
    "strategy": None,
    "test_size": "data.split.test",
    "timeout": "timeout_s",
    "train_batch_size": "hyperparameters.batch_size",
    "units": "model.hidden",
    "val_split": "data.split.validation",
    "validation_split": "data.split.validation",
    "wd": "hyperparameters.weight_decay",
    "workers": None,
}

# The same for script jobs, beside those of the above that they have too.
_ELSEWHERE_IN_SCRIPTS: dict[str, str | None] = {
    "args": "script.command",
    "argv": "script.command",
    "arguments": "script.command",
    "cmd": "script.command",
    "code": "script.bundle",
    "conda": None,
    "dataset": "script.data",
    "datasets": "script.data",
    "dependencies": "script.environment.requirements",
    "entrypoint": "script.command",
    "env": "script.environment.variables",
    "env_vars": "script.environment.variables",
    "environment_variables": "script.environment.variables",
    "inputs": "script.data",
    "internet": "script.network",
    "nproc_per_node": "script.processes",
    "packages": "script.environment.requirements",
    "pip": "script.environment.requirements",
    "random_seed": "script.seed",
    "random_state": "script.seed",
    "runtime_env": "script.environment",
    "shell": None,
    "working_dir": "script.bundle",
}

# Words of other tools for values of ours.
_SYNONYMS = {
    "acc": "accuracy",
    "adam_w": "adamw",
    "average_pooling2d": "avg_pool2d",
    "averagepooling2d": "avg_pool2d",
    "batch_normalization": "batch_norm",
    "batchnorm": "batch_norm",
    "batchnormalization": "batch_norm",
    "bce": "cross_entropy",
    "bf16": "bfloat16",
    "binary_crossentropy": "cross_entropy",
    "categorical_crossentropy": "cross_entropy",
    "chronological": "time",
    "conv": "conv2d",
    "convnet": "cnn",
    "cosine_annealing": "cosine",
    "cosineannealinglr": "cosine",
    "crossentropy": "cross_entropy",
    "exponential_decay": "exponential",
    "exponentiallr": "exponential",
    "f1_score": "f1",
    "fc": "dense",
    "fill": "impute",
    "fp16": "float16",
    "global_average_pooling2d": "global_avg_pool2d",
    "gpu": "cuda",
    "half": "float16",
    "keras": "tensorflow",
    "lightgbm": "python",
    "layer_normalization": "layer_norm",
    "layernormalization": "layer_norm",
    "max_pool": "max_pool2d",
    "max_pooling2d": "max_pool2d",
    "mean_absolute_error": "mae",
    "mean_squared_error": "mse",
    "mixed_bfloat16": "bfloat16",
    "mixed_float16": "float16",
    "nll": "cross_entropy",
    "numpy": "python",
    "plateau": "reduce_on_plateau",
    "predefined": "given",
    "pytorch": "torch",
    "reducelronplateau": "reduce_on_plateau",
    "rmse": "mse",
    "roc_auc": "auc",
    "scikit_learn": "python",
    "sklearn": "python",
    "smooth_l1": "huber",
    "sparse_categorical_crossentropy": "cross_entropy",
    "swish": "silu",
    "tf": "tensorflow",
    "time_series": "time",
    "top_k": "top_5",
    "valid_loss": "val_loss",
    "validation_loss": "val_loss",
    "xgboost": "python",
}


@cache
def _paths(root: type[BaseModel]) -> dict[str, list[str]]:
    """Every key of a spec, with the places that have it, the shallowest first."""
    found: dict[str, list[str]] = {}
    for path, _ in every_field(root):
        places = found.setdefault(path[-1], [])
        if ".".join(path) not in places:
            places.append(".".join(path))
    return {key: sorted(places, key=lambda place: place.count(".")) for key, places in found.items()}


@cache
def elsewhere(root: type[BaseModel]) -> dict[str, str | None]:
    """Return the keys of other tools that mean something in this kind of spec, each with its place there."""
    if root is not ScriptSpec:
        return _ELSEWHERE
    known = {path for places in _paths(root).values() for path in places}
    shared = {key: path for key, path in _ELSEWHERE.items() if path is None or path in known}
    return shared | _ELSEWHERE_IN_SCRIPTS


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
    if len(words) > _MOST_COMPARED:
        words = heapq.nlargest(_MOST_COMPARED, words, key=lambda known: _same_ends(plain, known))
    close = difflib.get_close_matches(plain, words, n=1, cutoff=cutoff)
    return close[0] if close else None


def _same_ends(word: str, known: str) -> int:
    """Count the letters that both words begin and end with: all but the misspelt one, when there is one."""
    most = min(len(word), len(known))
    start = next((place for place in range(most) if word[place] != known[place]), most)
    return start + next((place for place in range(most - start) if word[-1 - place] != known[-1 - place]), most - start)


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
        owners = ", ".join(others[:-1]) + " and " + others[-1] if others[1:] else others[0]
        return f"is a key of {owners}, not of this kind of {{here}}", None
    aliases = elsewhere(place.root)
    if plain in aliases:
        path = aliases[plain]
        if path is None:
            return "is not a setting here", None
        return "is not a key of {here}", path.rsplit(".", 1)[-1] if path.rsplit(".", 1)[-1] in here else path
    return _close(plain, here, [part for part in place.parts[:-1] if isinstance(part, str)], _paths(place.root))


def _close(plain: str, here: list[str], inside: list[str], paths: dict[str, list[str]]) -> tuple[str, str | None]:
    """Look for the key in other places, then for a similar one here, then for a similar one anywhere."""
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
