"""Random numbers in float64 and small networks, which most tests of the engine begin with."""

from itertools import pairwise

import torch
from torch import Tensor, nn


def seeded(seed: int = 0) -> torch.Generator:
    """A generator of its own for a test."""
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, generator: torch.Generator | None = None) -> Tensor:
    """Numbers of N(0, 1) in float64."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def tanh_net(*widths: int) -> nn.Sequential:
    """Linear layers of these widths, from inputs to outputs, with tanh between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def trained(net: nn.Module, x: Tensor, y: Tensor, steps: int) -> None:
    """Steps of Adam on the cross-entropy of one batch."""
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    optimiser.zero_grad()
