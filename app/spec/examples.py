"""Valid specs by name, as a client would post them; they are the examples of the API and of the tests."""

from typing import Any, Final

UPLOADED: Final = "ds_01k0000000000000000000000a"
"""Stands for the id of an uploaded dataset in an example."""

EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "shortest": {"framework": "torch", "model": "mlp", "data": "digits", "device_count": 1},
    "digits_tensorflow": {
        "name": "digits, all settings",
        "tags": {"team": "vision"},
        "framework": "tensorflow",
        "model": {"type": "mlp", "hidden": [128, 64], "activation": "relu", "dropout": 0.2},
        "data": {
            "source": "digits",
            "target": "target",
            "features": "all",
            "split": {"method": "stratified", "validation": 0.2, "test": 0.1, "seed": 7},
            "missing": "error",
            "preprocess": {"numeric": "standardize", "categorical": "one_hot"},
        },
        "task": "classification",
        "loss": "cross_entropy",
        "metrics": ["accuracy"],
        "hyperparameters": {
            "epochs": 20,
            "batch_size": 64,
            "learning_rate": 0.001,
            "optimizer": {"name": "adam", "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7},
            "schedule": {"name": "cosine", "final_learning_rate": 0.0},
            "l1": 0.0,
            "l2": 0.0001,
            "weight_decay": 0.0,
            "early_stopping": None,
            "checkpoint_every_epochs": 5,
            "seed": 0,
        },
        "device_count": 1,
        "device_type": "auto",
        "min_device_memory_bytes": None,
        "device_name": None,
        "initialize_from": None,
        "retry": {"failures": 0, "losses": 3},
        "timeout_s": 3600,
        "priority": 0,
        "not_before": None,
    },
    "diabetes_regression": {
        "name": "diabetes",
        "framework": "torch",
        "model": "linear",
        "data": {"source": "diabetes", "split": {"validation": 0.2, "test": 0.1}},
        "loss": "mse",
        "metrics": ["mae", "r2"],
        "hyperparameters": {
            "epochs": 100,
            "batch_size": 32,
            "learning_rate": 0.05,
            "optimizer": {"name": "sgd", "momentum": 0.9, "nesterov": True},
        },
        "device_count": 1,
        "device_type": "cpu",
    },
    "iris_layers": {
        "name": "iris, layer by layer",
        "framework": "torch",
        "model": {
            "type": "sequential",
            "layers": [
                {"type": "dense", "units": 16},
                {"type": "activation", "function": "gelu"},
                {"type": "dropout", "rate": 0.1},
                {"type": "dense", "units": 8, "activation": "tanh"},
            ],
        },
        "data": "iris",
        "hyperparameters": {"epochs": 50, "batch_size": 16, "learning_rate": 0.01, "schedule": "cosine"},
        "device_count": 1,
    },
    "uploaded_table": {
        "name": "penguins",
        "tags": {"team": "birds"},
        "framework": "torch",
        "model": {"type": "mlp", "hidden": [64, 64], "activation": "relu", "dropout": 0.2},
        "data": {
            "source": UPLOADED,
            "target": "species",
            "features": ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"],
            "missing": "drop",
        },
        "hyperparameters": {"epochs": 20, "learning_rate": 0.005},
        "device_count": 1,
        "retry": {"failures": 1},
    },
}
