"""Inputs changed in their last digit: what the rounding of another device does to a training.

Every input x_i is multiplied by 1 ± ε, ε about the rounding of float32, with the same sign for
pixel i in all examples, which is the same as changing the first layer's weights by as little.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from runner.contract.experiment import torch_generator
from runner.data.images import Split


@dataclass(frozen=True, kw_only=True)
class Perturbed(Split):
    """A split whose normalised inputs are multiplied by `factor`, of the shape of one example's
    input."""

    factor: Tensor

    def to(self, device: str | torch.device) -> Split:
        inputs = self.inputs.to(device)
        targets = self.targets.to(device)
        return replace(self, inputs=inputs, targets=targets, factor=self.factor.to(device))

    def normalised(self, pixels: Tensor, out: Tensor | None = None) -> Tensor:
        x = super().normalised(pixels, out)
        if x is pixels:
            return x * self.factor
        return x.mul_(self.factor)


def perturbed(split: Split, relative: float, seed: int) -> Split:
    """The split with every input changed by ± `relative` of itself, signs from the seed's stream
    "perturbation".

    The same factors for every split of one shape. The split itself for 0.
    """
    if relative == 0:
        return split
    shape = split.batch(slice(1))[0].shape[1:]
    signs = torch.randint(2, shape, generator=torch_generator(seed, "perturbation")) * 2 - 1
    return Perturbed(**vars(split), factor=(1 + relative * signs.double()).float())
