"""A convnet on the 8×8 digits, before and after training.

hess-run diagnose target=docs/examples/digits.py:convnet
"""

import torch
from sklearn.datasets import load_digits
from torch import nn


def convnet():
    digits = load_digits()
    x, y = (
        torch.tensor(digits.images[:256], dtype=torch.float32)[:, None] / 16,
        torch.tensor(digits.target[:256]),
    )
    loader = list(zip(x.split(32), y.split(32), strict=True))
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.SiLU(),
        nn.Conv2d(8, 8, 3, 2),
        nn.SiLU(),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    loss, adam = nn.CrossEntropyLoss(), torch.optim.Adam(net.parameters(), 1e-2)
    yield 0, net.eval(), loss, loader
    for step in range(40):
        given, target = loader[step % len(loader)]
        adam.zero_grad()
        loss(net.train()(given), target).backward()
        adam.step()
    yield 40, net.eval(), loss, loader
