"""Data-parallel PyTorch: one process per device, gradients averaged over all of them.

    python train.py                                                   # one process
    torchrun --nproc-per-node 2 train.py                              # two, without Trainshed
    trainshed run --devices 2 --processes per_device -- python train.py

The variables are torchrun's own (RANK, WORLD_SIZE, MASTER_ADDR, …), so the script needs no change between the three.
Rank 0 alone prints metrics and writes files.
"""

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CHECKPOINTS = Path(os.environ.get("TRAINSHED_CHECKPOINT_DIR", "checkpoints"))
OUTPUTS = Path(os.environ.get("TRAINSHED_OUTPUT_DIR", "outputs"))
SEED = int(os.environ.get("TRAINSHED_SEED", "0"))
RANK = int(os.environ.get("RANK", "0"))
RANKS = int(os.environ.get("WORLD_SIZE", "1"))
LAST = CHECKPOINTS / "last.pt"
BATCH = 64  # over all ranks, so that the curve does not depend on how many there are


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.003)
    given = parser.parse_args()
    device = own_device()
    if RANKS > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        fit(given.epochs, given.lr, device)
    finally:
        if RANKS > 1:
            dist.destroy_process_group()


def own_device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def fit(epochs: int, rate: float, device: torch.device) -> None:
    for folder in (CHECKPOINTS, OUTPUTS):
        folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    plain = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.Adam(plain.parameters(), lr=rate)
    done = restore(plain, optimizer, device)
    model = DistributedDataParallel(plain) if RANKS > 1 else plain
    rows, val_rows, val_labels = digits()
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(
        rows, num_replicas=RANKS, rank=RANK, seed=SEED
    )
    loader = DataLoader(rows, BATCH // RANKS, sampler=sampler)
    for epoch in range(done + 1, epochs + 1):
        sampler.set_epoch(epoch)  # the order is drawn from the seed and this number
        loss = train(model, optimizer, loader, device)
        if RANK > 0:
            continue
        accuracy = (plain(val_rows.to(device)).argmax(1).cpu() == val_labels).float().mean().item()
        save({"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, LAST)
        line = {"epoch": epoch, "epochs": epochs, "step": epoch * len(loader), "loss": loss, "val_accuracy": accuracy}
        print(json.dumps({**line, "checkpoint": LAST.name}), flush=True)
    if RANK == 0:
        save(plain.state_dict(), OUTPUTS / "model.pt")


def digits() -> tuple[TensorDataset, torch.Tensor, torch.Tensor]:
    """What to train on, and rows and labels to validate on."""
    found = load_digits()
    parts = train_test_split(found.data / 16, found.target, test_size=0.2, random_state=0, stratify=found.target)
    rows, val_rows, labels, val_labels = (torch.tensor(part) for part in parts)
    return TensorDataset(rows.float(), labels), val_rows.float(), val_labels


def restore(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Load the last checkpoint where there is one; how many epochs are done."""
    if not LAST.exists():
        return 0
    state = torch.load(LAST, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epoch"])


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader[tuple[torch.Tensor, ...]],
    device: torch.device,
) -> float:
    """One epoch; the mean loss over all ranks."""
    total = torch.zeros(2, device=device)
    for rows, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(rows.to(device)), labels.to(device))
        loss.backward()  # type: ignore[no-untyped-call] # torch's own
        optimizer.step()
        total += torch.tensor([loss.item() * len(rows), len(rows)], device=device)
    if RANKS > 1:
        dist.all_reduce(total)
    return (total[0] / total[1]).item()


def save(content: object, file: Path) -> None:
    """Write beside it, then rename: a kill in the middle leaves the old file whole."""
    fresh = file.with_suffix(".tmp")
    torch.save(content, fresh)
    fresh.replace(file)


if __name__ == "__main__":
    main()
