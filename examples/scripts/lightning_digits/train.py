"""Lightning on scikit-learn's digits, one device or one process per device.

    python train.py --epochs 20                                       # needs requirements.txt
    trainshed run --requirements requirements.txt -- python train.py --epochs 20
    trainshed run --requirements requirements.txt --devices 2 --processes per_device -- python train.py

Lightning finds the ranks by torchrun's variables, and writes and reads its own checkpoints; the only addition is a
callback that prints the metrics as JSON.
"""

import argparse
import json
import os
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CHECKPOINTS = Path(os.environ.get("TRAINSHED_CHECKPOINT_DIR", "checkpoints"))
OUTPUTS = Path(os.environ.get("TRAINSHED_OUTPUT_DIR", "outputs"))
SEED = int(os.environ.get("TRAINSHED_SEED", "0"))
RANK = int(os.environ.get("RANK", "0"))
RANKS = int(os.environ.get("WORLD_SIZE", "1"))
LAST = CHECKPOINTS / "last.ckpt"

Batch = tuple[torch.Tensor, torch.Tensor]


class Digits(lightning.LightningModule):
    """A small network, as a LightningModule has it."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.rate = rate

    def training_step(self, batch: Batch, _number: int) -> torch.Tensor:
        rows, labels = batch
        loss = nn.functional.cross_entropy(self.net(rows), labels)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch: Batch, _number: int) -> None:
        rows, labels = batch
        logits = self.net(rows)
        self.log("val_loss", nn.functional.cross_entropy(logits, labels), sync_dist=True)
        self.log("val_accuracy", (logits.argmax(1) == labels).float().mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.rate)


class JsonLines(Callback):
    """Prints each epoch's metrics as a JSON object on a line of its own, and that the checkpoint before it is whole."""

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        del pl_module
        if trainer.is_global_zero and LAST.exists():
            print(json.dumps({"step": trainer.global_step, "checkpoint": LAST.name}), flush=True)

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        del pl_module
        if not trainer.is_global_zero:
            return
        values = {name: value.item() for name, value in trainer.callback_metrics.items()}
        place = {"epoch": trainer.current_epoch + 1, "epochs": trainer.max_epochs, "step": trainer.global_step}
        print(json.dumps({**place, **values}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.003)
    given = parser.parse_args()
    OUTPUTS.mkdir(parents=True, exist_ok=True)

    lightning.seed_everything(SEED)
    trainer = lightning.Trainer(
        max_epochs=given.epochs,
        devices=RANKS,
        # `last.ckpt` is written anew after each epoch.
        callbacks=[JsonLines(), ModelCheckpoint(CHECKPOINTS, filename="last", enable_version_counter=False)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    rows, val_rows = digits()
    # Its order comes from the seed and the number of the epoch, which Lightning tells it, also after a resume.
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(
        rows, num_replicas=RANKS, rank=RANK, seed=SEED
    )
    trainer.fit(
        Digits(given.lr),
        DataLoader(rows, 32 // RANKS, sampler=sampler),
        DataLoader(val_rows, 512),
        ckpt_path=LAST if LAST.exists() else None,
    )
    trainer.save_checkpoint(OUTPUTS / "model.ckpt", weights_only=True)


def digits() -> tuple[TensorDataset, TensorDataset]:
    """What to train on, and what to validate on."""
    found = load_digits()
    parts = train_test_split(found.data / 16, found.target, test_size=0.2, random_state=0, stratify=found.target)
    rows, val_rows, labels, val_labels = (torch.tensor(part) for part in parts)
    return TensorDataset(rows.float(), labels), TensorDataset(val_rows.float(), val_labels)


if __name__ == "__main__":
    main()
