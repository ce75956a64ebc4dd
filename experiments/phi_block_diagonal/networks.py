"""Small networks of three architectures, with or without residual connections."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from runner.models.network import default_init

INPUTS = 16
"""Entries of an example."""


class Block(nn.Module):
    """branch(h), or h + branch(h)."""

    def __init__(self, branch: nn.Module, residual: bool) -> None:
        super().__init__()
        self.branch = branch
        self.residual = residual

    def forward(self, h: Tensor) -> Tensor:
        if self.residual:
            return h + self.branch(h)
        return self.branch(h)


class SelfAttention(nn.Module):
    """One head of softmax attention, written out: it is differentiated twice."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(size, size)
        self.value = nn.Linear(size, size)
        self.out = nn.Linear(size, size)

    def forward(self, h: Tensor) -> Tensor:
        scores = self.query(h) @ self.key(h).mT / h.shape[-1] ** 0.5
        attention = torch.softmax(scores, -1)
        return self.out(attention @ self.value(h))


class Mean(nn.Module):
    """Mean over tokens."""

    def forward(self, h: Tensor) -> Tensor:
        return h.mean(1)


def network(
    architecture: str, residual: bool, classes: int, width: int, generator: torch.Generator
) -> nn.Sequential:
    """Float64, torch's initial values from `generator`; smooth, so that the Hessian exists
    everywhere."""
    make = {"mlp": perceptron, "convnet": convolutional, "transformer": transformer}[architecture]
    with default_init(generator):
        return make(residual, classes, width).double()


def perceptron(residual: bool, classes: int, width: int) -> nn.Sequential:
    blocks = []
    for _ in range(2):
        blocks.append(Block(nn.Sequential(nn.Linear(width, width), nn.GELU()), residual))
    first = nn.Linear(INPUTS, width)
    last = nn.Linear(width, classes)
    return nn.Sequential(first, nn.GELU(), *blocks, last)


def convolutional(residual: bool, classes: int, width: int) -> nn.Sequential:
    channels = 2 * width // 3
    branch = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.GELU())
    start = [nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, channels, 3, padding=1), nn.GELU()]
    last = nn.Linear(2 * channels, classes)
    end = [nn.AdaptiveAvgPool2d((1, 2)), nn.Flatten(), last]
    return nn.Sequential(*start, Block(branch, residual), *end)


def transformer(residual: bool, classes: int, width: int) -> nn.Sequential:
    size = 2 * width // 3
    attention = nn.Sequential(nn.LayerNorm(size), SelfAttention(size))
    wide = [nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size)]
    feed = nn.Sequential(nn.LayerNorm(size), *wide)
    start = [nn.Unflatten(1, (4, 4)), nn.Linear(4, size)]
    blocks = [Block(attention, residual), Block(feed, residual)]
    last = nn.Linear(size, classes)
    return nn.Sequential(*start, *blocks, Mean(), last)
