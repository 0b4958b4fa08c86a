"""Valid specs by name, as a client would post them; they are the examples of the API and of the tests."""

from typing import Any, Final

UPLOADED: Final = "ds_01k0000000000000000000000a"
"""Stands for the id of an uploaded dataset in an example."""

BUNDLE: Final = "bun_01k0000000000000000000000a"
"""Stands for the id of uploaded code in an example."""

EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "shortest": {"framework": "torch", "model": "mlp", "data": "digits", "device_count": 1},
    "digits_tensorflow": {
        "name": "digits, all settings",
        "tags": {"team": "vision"},
        "framework": "tensorflow",
        "model": {"type": "mlp", "hidden": [128, 64], "activation": "relu", "dropout": 0.2, "batch_norm": True},
        "data": {
            "source": "digits",
            "target": "target",
            "features": "all",
            "split": {"method": "stratified", "column": None, "validation": 0.2, "test": 0.1, "seed": 7},
            "missing": "error",
            "preprocess": {"numeric": "standardize", "categorical": "one_hot", "impute": "mean"},
        },
        "task": "classification",
        "loss": "cross_entropy",
        "metrics": ["accuracy", "top_3", "f1"],
        "hyperparameters": {
            "epochs": 20,
            "batch_size": 64,
            "learning_rate": 0.001,
            "optimizer": {"name": "adam", "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7},
            "schedule": {"name": "cosine", "final_learning_rate": 0.0, "warmup_steps": 50},
            "l1": 0.0,
            "l2": 0.0001,
            "weight_decay": 0.0,
            "clip_norm": 5.0,
            "clip_value": None,
            "class_weights": None,
            "precision": "float32",
            "early_stopping": {"monitor": "val_accuracy", "patience": 5, "min_delta": 0.0, "restore_best": True},
            "checkpoint_every_epochs": 5,
            "seed": 0,
        },
        "device_count": 1,
        "device_type": "auto",
        "min_device_memory_bytes": None,
        "device_name": None,
        "initialize_from": None,
        "exports": ["report", "tensorboard", "onnx", "keras"],
        "retry": {"failures": 0, "losses": 3},
        "timeout_s": 3600,
        "stop_when_idle_s": None,
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
    "digits_cnn": {
        "name": "digits, a small convolutional network",
        "framework": "torch",
        "model": {"type": "cnn", "filters": [16, 32], "dense": [64], "dropout": 0.2},
        "data": {"source": "digits", "split": {"validation": 0.1, "test": 0.2}},
        "hyperparameters": {
            "epochs": 15,
            "learning_rate": 0.002,
            "optimizer": "adamw",
            "weight_decay": 0.01,
            "early_stopping": {"monitor": "val_loss", "patience": 5},
        },
        "exports": ["report", "onnx"],
    },
    "digits_resnet": {
        "name": "digits, a residual network",
        "framework": "tensorflow",
        "model": {"type": "resnet", "filters": [8, 16], "blocks": 1},
        "data": "digits",
        "hyperparameters": {
            "epochs": 10,
            "learning_rate": 0.1,
            "optimizer": {"name": "sgd", "momentum": 0.9, "nesterov": True},
            "schedule": {"name": "step", "every_epochs": 4, "factor": 0.1, "warmup_steps": 20},
        },
    },
    "digits_lstm": {
        "name": "digits, row by row",
        "framework": "torch",
        "model": {
            "type": "sequential",
            "layers": [
                {"type": "reshape", "shape": [8, 8]},
                {"type": "gru", "units": 32, "return_sequences": True},
                {"type": "layer_norm"},
                {"type": "lstm", "units": 32},
            ],
        },
        "data": "digits",
        "hyperparameters": {
            "epochs": 15,
            "learning_rate": 0.003,
            "optimizer": "rmsprop",
            "schedule": {"name": "exponential", "factor": 0.9},
            "clip_norm": 1.0,
        },
    },
    "digits_embedding": {
        "name": "digits, a vector for each grey level",
        "framework": "torch",
        "model": {
            "type": "sequential",
            "layers": [
                {"type": "embedding", "input_dim": 17, "output_dim": 4},
                {"type": "conv1d", "filters": 16, "kernel_size": 8, "strides": 8, "padding": "valid"},
                {"type": "flatten"},
                {"type": "dense", "units": 32, "activation": "leaky_relu"},
            ],
        },
        "data": {"source": "digits", "preprocess": {"numeric": "none"}},
        "hyperparameters": {"epochs": 10, "optimizer": "adagrad", "learning_rate": 0.05},
    },
    "digits_branches": {
        "name": "digits, nested layers",
        "framework": "tensorflow",
        "model": {
            "type": "sequential",
            "layers": [
                {"type": "reshape", "shape": [8, 8, 1]},
                {
                    "type": "parallel",
                    "merge": "concat",
                    "branches": [
                        [{"type": "conv2d", "filters": 8, "kernel_size": [3, 1]}],
                        [{"type": "conv2d", "filters": 8, "kernel_size": [1, 3]}],
                        [{"type": "max_pool2d", "pool_size": 3, "strides": 1, "padding": "same"}],
                    ],
                },
                {"type": "batch_norm"},
                {
                    "type": "residual",
                    "layers": [
                        {"type": "conv2d", "filters": 32, "kernel_size": 3, "strides": 2, "activation": "relu"},
                        {"type": "conv2d", "filters": 32, "kernel_size": 3, "dilation": 2},
                    ],
                    "shortcut": [
                        {"type": "avg_pool2d", "pool_size": 2},
                        {"type": "conv2d", "filters": 32, "kernel_size": 1, "use_bias": False},
                    ],
                },
                {"type": "activation", "function": "relu"},
                {"type": "global_avg_pool2d"},
            ],
        },
        "data": "digits",
        "hyperparameters": {"epochs": 10, "learning_rate": 0.003},
    },
    "uploaded_penguins": {
        "name": "penguins, with text and gaps",
        "framework": "torch",
        "model": {"type": "mlp", "hidden": [32, 32], "batch_norm": True},
        "data": {
            "source": UPLOADED,
            "target": "species",
            "missing": "impute",
            "preprocess": {"numeric": "standardize", "impute": "median"},
        },
        "metrics": ["accuracy", "f1", "auc"],
        "hyperparameters": {
            "epochs": 40,
            "learning_rate": 0.01,
            "class_weights": "balanced",
            "schedule": {"name": "reduce_on_plateau", "monitor": "val_f1", "patience": 3},
            "early_stopping": {"monitor": "val_f1", "patience": 10},
        },
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

CODE_EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "script_shortest": {
        "name": "a module",
        "script": {"command": ["python", "-m", "timeit", "-n1"], "success": "exit"},
    },
    "script_bundle": {
        "name": "a script of yours",
        "framework": "torch",
        "script": {"bundle": BUNDLE, "command": ["python", "train.py", "--lr", "0.1"]},
        "device_count": 1,
    },
    "script_all_settings": {
        "name": "a script on two devices, all settings",
        "tags": {"team": "vision"},
        "framework": "torch",
        "script": {
            "bundle": BUNDLE,
            "command": ["python", "train.py", "--epochs", "20"],
            "processes": "per_device",
            "data": {"train": UPLOADED},
            "environment": {"requirements": "requirements.txt", "variables": {"WANDB_MODE": "offline"}},
            "network": False,
            "success": "files",
            "monitor": {"metric": "val_loss", "mode": "min"},
            "seed": 7,
        },
        "device_count": 2,
        "device_type": "auto",
        "min_device_memory_bytes": None,
        "device_name": None,
        "retry": {"failures": 0, "losses": 3},
        "timeout_s": 3600,
        "stop_when_idle_s": None,
        "priority": 0,
        "not_before": None,
    },
    "python_model": {
        "name": "digits, a network of yours",
        "framework": "torch",
        "model": {"type": "python", "bundle": BUNDLE, "entrypoint": "nets.small:build", "parameters": {"width": 64}},
        "data": "digits",
        "hyperparameters": {"epochs": 20, "learning_rate": 0.001},
    },
}
"""Specs with code of the client's: each needs a key with the permission `code`."""
