"""Inputs in three disjoint parts, and the networks that learn them, several trials at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from runner.contract import Context
from runner.data.loading import load as load_kind
from runner.data.loading import load_images
from runner.kinds.dataset import DigitsData

if TYPE_CHECKING:
    from experiments.hsr.flat_training.settings import FlatContest

Part = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Data:
    """Inputs (N, d) and classes (N,) of three disjoint parts."""

    train: Part
    validation: Part
    test: Part


def load(experiment: FlatContest, ctx: Context) -> Data:
    """Three parts drawn by the seed from the digits, or from the training images of a set of images."""
    sizes = (experiment.train, experiment.validation, experiment.test)
    generator = ctx.torch_generator("split")
    if isinstance(experiment.dataset, DigitsData):
        x, y = load_kind(experiment.dataset, ctx)
        return Data(*((x[rows], y[rows]) for rows in _parts(len(y), sizes, generator)))
    images = load_images(experiment.dataset, ctx, flat=False).train
    parts = []
    for rows in _parts(len(images), sizes, generator):
        pixels, y = images.batch(rows)
        parts.append((F.avg_pool2d(pixels, experiment.pool).flatten(1), y))
    return Data(*parts)


def _parts(there: int, sizes: tuple[int, int, int], generator: torch.Generator) -> tuple[Tensor, ...]:
    return torch.randperm(there, generator=generator)[: sum(sizes)].split(sizes)


def network(experiment: FlatContest, inputs: int, ctx: Context, copies: int = 1) -> list[Tensor]:
    """Weight (copies, out, in) and bias (copies, out) of every layer; Glorot's initial values, alike in all copies."""
    generator = ctx.torch_generator("network")
    sizes, parameters = [inputs, *experiment.widths, experiment.dataset.classes], []
    for a, b in itertools.pairwise(sizes):
        limit = math.sqrt(6 / (a + b))
        weight = (2 * torch.rand(b, a, generator=generator) - 1) * limit
        parameters += [weight.repeat(copies, 1, 1), torch.zeros(copies, b)]
    return [p.requires_grad_() for p in parameters]


def logits(parameters: Sequence[Tensor], x: Tensor) -> Tensor:
    """(T, B, classes): linear layers with tanh between, smooth so that curvature is defined everywhere."""
    h = x.expand(len(parameters[0]), *x.shape)
    for i in range(0, len(parameters), 2):
        h = torch.baddbmm(parameters[i + 1].unsqueeze(1), torch.tanh(h) if i else h, parameters[i].mT)
    return h


def losses(parameters: Sequence[Tensor], part: Part) -> Tensor:
    """Mean cross-entropy of every trial, (T,)."""
    x, y = part
    z = logits(parameters, x)
    return F.cross_entropy(z.flatten(0, 1), y.repeat(len(z)), reduction="none").view(len(z), -1).mean(1)


@torch.no_grad()
def accuracies(parameters: Sequence[Tensor], part: Part) -> Tensor:
    """Share of right classes of every trial, (T,)."""
    x, y = part
    return (logits(parameters, x).argmax(2) == y).double().mean(1)
