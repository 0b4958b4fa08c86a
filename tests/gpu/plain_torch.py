"""The plain script in torch: digits, an MLP, the data on the card; prints the rows per second of its best epoch."""

import sys
import time

import torch
from sklearn.datasets import load_digits

epochs, batch = int(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(0)
x, y = load_digits(return_X_y=True)
rows = torch.tensor(x / 16, dtype=torch.float32, device="cuda")
labels = torch.tensor(y, device="cuda")
model = torch.nn.Sequential(
    torch.nn.Linear(64, 1024),
    torch.nn.ReLU(),
    torch.nn.Linear(1024, 1024),
    torch.nn.ReLU(),
    torch.nn.Linear(1024, 10),
).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
best = 0.0
for _epoch in range(epochs):
    began = time.perf_counter()
    for part in torch.randperm(len(rows), device="cuda").split(batch):  # type: ignore[no-untyped-call]
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(rows[part]), labels[part])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    torch.cuda.synchronize()
    best = max(best, len(rows) / (time.perf_counter() - began))
sys.stdout.write(f"{best}\n")
