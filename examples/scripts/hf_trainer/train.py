"""Hugging Face's Trainer with a tiny BERT that begins with random weights: nothing is downloaded.

    python train.py --epochs 10                                       # needs requirements.txt
    trainshed run --requirements requirements.txt -- python train.py --epochs 10

An image of scikit-learn's digits is 8 × 8 numbers from 0 to 16: a text of 64 words, in a language of 17. The Trainer
writes `checkpoint-<step>` folders and goes on from the newest; the only addition is a callback that prints its log as
JSON.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EvalPrediction,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

CHECKPOINTS = Path(os.environ.get("TRAINSHED_CHECKPOINT_DIR", "checkpoints"))
OUTPUTS = Path(os.environ.get("TRAINSHED_OUTPUT_DIR", "outputs"))
SEED = int(os.environ.get("TRAINSHED_SEED", "0"))


class Digits(Dataset[dict[str, torch.Tensor]]):
    """Each image as a text, under the names that the model's `forward` has."""

    def __init__(self, rows: Any, labels: Any) -> None:
        self.rows = torch.tensor(rows, dtype=torch.long)
        self.labels = torch.tensor(labels)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.labels[index]}


class JsonLines(TrainerCallback):
    """Prints what the Trainer logs as a JSON object on a line of its own, and which checkpoint is whole."""

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict[str, Any], **_rest: Any
    ) -> None:
        del control
        place = {"step": state.global_step, "steps": state.max_steps, "epochs": args.num_train_epochs}
        print(json.dumps({**logs, **place}), flush=True)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_rest: Any) -> None:
        del args, control
        print(json.dumps({"step": state.global_step, "checkpoint": f"checkpoint-{state.global_step}"}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.002)
    given = parser.parse_args()
    CHECKPOINTS.mkdir(parents=True, exist_ok=True)

    found = load_digits()
    rows, val_rows, labels, val_labels = train_test_split(
        found.data, found.target, test_size=0.2, random_state=0, stratify=found.target
    )
    torch.manual_seed(SEED)
    config = BertConfig(
        vocab_size=17,
        max_position_embeddings=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        initializer_range=0.1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=10,
    )
    trainer = Trainer(
        BertForSequenceClassification(config),
        TrainingArguments(
            str(CHECKPOINTS),
            num_train_epochs=given.epochs,
            learning_rate=given.lr,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=128,
            eval_strategy="epoch",
            logging_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            seed=SEED,
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=torch.cuda.is_available(),
        ),
        train_dataset=Digits(rows, labels),
        eval_dataset=Digits(val_rows, val_labels),
        compute_metrics=accuracy,
        callbacks=[JsonLines()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(CHECKPOINTS)))
    trainer.save_model(str(OUTPUTS / "model"))


def accuracy(seen: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float(np.mean(np.argmax(seen.predictions, axis=1) == seen.label_ids))}


if __name__ == "__main__":
    main()
