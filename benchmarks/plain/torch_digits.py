"""The same work as a plain script: digits, an MLP, three epochs, the model saved. What a user would write in torch."""

import sys

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x, y = load_digits(return_X_y=True)
x_train, x_val, y_train, y_val = train_test_split(x, y, test_size=0.2, random_state=0, stratify=y)
mean, std = x_train.mean(0), x_train.std(0)
std[std == 0] = 1
train = TensorDataset(torch.tensor((x_train - mean) / std, dtype=torch.float32), torch.tensor(y_train))
val_x, val_y = torch.tensor((x_val - mean) / std, dtype=torch.float32), torch.tensor(y_val)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
criterion = torch.nn.CrossEntropyLoss()
for epoch in range(3):
    model.train()
    total = 0.0
    for rows, labels in DataLoader(train, batch_size=64, shuffle=True):
        optimizer.zero_grad()
        loss = criterion(model(rows), labels)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(rows)
    model.eval()
    with torch.no_grad():
        accuracy = (model(val_x).argmax(1) == val_y).float().mean().item()
    print(epoch, total / len(train), accuracy)
torch.save(model.state_dict(), sys.argv[1])
