"""A plain PyTorch loop on scikit-learn's digits, one device.

    python train.py --epochs 20
    trainshed run -- python train.py --epochs 20

Nothing of Trainshed is imported: folders come by environment variables, a JSON object alone on a line is a metric, and
what lies in the checkpoint folder at the start is gone on from. A run that is killed and goes on ends with the same
weights as one that is not, since batches are drawn from the seed and the number of the epoch.
"""

import argparse
import json
import os
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

CHECKPOINTS = Path(os.environ.get("TRAINSHED_CHECKPOINT_DIR", "checkpoints"))
OUTPUTS = Path(os.environ.get("TRAINSHED_OUTPUT_DIR", "outputs"))
SEED = int(os.environ.get("TRAINSHED_SEED", "0"))
LAST = CHECKPOINTS / "last.pt"
BATCH = 32


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.003)
    given = parser.parse_args()
    for folder in (CHECKPOINTS, OUTPUTS):
        folder.mkdir(parents=True, exist_ok=True)

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=given.lr)
    rows, labels, val_rows, val_labels = (part.to(device) for part in digits())

    done = 0
    if LAST.exists():
        state = torch.load(LAST, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["epoch"]
        print(f"going on after epoch {done}")

    for epoch in range(done + 1, given.epochs + 1):
        torch.manual_seed(SEED + epoch)  # batches and dropout of this epoch, whether or not the run began with it
        loss = train(model, optimizer, rows, labels)
        val_loss, val_accuracy = evaluate(model, val_rows, val_labels)
        save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, LAST)
        line = {
            "epoch": epoch,
            "epochs": given.epochs,
            "step": epoch * -(-len(rows) // BATCH),
            "loss": loss,
            "val_loss": val_loss,
            "val_accuracy": val_accuracy,
            "checkpoint": LAST.name,  # it is whole: no need to wait until the file is still
        }
        print(json.dumps(line), flush=True)

    save(model.state_dict(), OUTPUTS / "model.pt")


def digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows and labels to train on, and those to validate on."""
    found = load_digits()
    parts = train_test_split(found.data / 16, found.target, test_size=0.2, random_state=0, stratify=found.target)
    rows, val_rows, labels, val_labels = (torch.tensor(part) for part in parts)
    return rows.float(), labels, val_rows.float(), val_labels


def train(model: nn.Module, optimizer: torch.optim.Optimizer, rows: torch.Tensor, labels: torch.Tensor) -> float:
    """One epoch; the mean loss."""
    model.train()
    total = 0.0
    order = torch.randperm(len(rows)).to(rows.device)
    for start in range(0, len(rows), BATCH):
        batch = order[start : start + BATCH]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(rows[batch]), labels[batch])
        loss.backward()  # type: ignore[no-untyped-call] # torch's own
        optimizer.step()
        total += loss.item() * len(batch)
    return total / len(rows)


@torch.no_grad()
def evaluate(model: nn.Module, rows: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """Loss and accuracy."""
    model.eval()
    logits = model(rows)
    accuracy = (logits.argmax(1) == labels).float().mean()
    return nn.functional.cross_entropy(logits, labels).item(), accuracy.item()


def save(content: object, file: Path) -> None:
    """Write beside it, then rename: a kill in the middle leaves the old file whole."""
    fresh = file.with_suffix(".tmp")
    torch.save(content, fresh)
    fresh.replace(file)


if __name__ == "__main__":
    main()
