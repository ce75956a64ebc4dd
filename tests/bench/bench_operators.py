"""Operators of a user's network next to what a competent user writes by hand, in one run.

By hand: double backward with the graph of the gradient kept (lists of tensors, no flat vector),
several vectors by `is_grads_batched` or a loop. Times are processor time of one thread, after a
first call of both ways; the graph is made before.

Run: python -m tests.bench operators [--quick]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runner.curvature import LayerOperator, ParameterOperator, inter_layer_metrics
from runner.curvature.basics.peak import allocations
from runner.models.resnet import resnet18
from tests.bench.machine import gradient_of, in_turns
from tests.bench.table import Row, price
from tests.draws import seeded, tanh_net

CROSS = nn.CrossEntropyLoss()
AMPLE = 1 << 34
Network = tuple[nn.Module, Callable[[Tensor, Tensor], Tensor], Tensor, Tensor]


def mlp(*widths: int) -> Network:
    return tanh_net(*widths), CROSS, torch.randn(64, widths[0]), torch.randint(0, 10, (64,))


class Tokens(nn.Module):
    """A GRU or LSTM with an output for every token, (B, T, K)."""

    def __init__(self, kind: type[nn.RNNBase], width: int, classes: int) -> None:
        super().__init__()
        self.embed, self.cells = nn.Embedding(classes, width), kind(width, width, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, t: Tensor) -> Tensor:
        return self.head(self.cells(self.embed(t))[0])


def token_loss(f: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(f.flatten(0, 1), y.flatten())


def recurrent(kind: type[nn.RNNBase], width: int = 32, classes: int = 30) -> Network:
    x = torch.randint(0, classes, (32, 16))
    return Tokens(kind, width, classes), token_loss, x, x.roll(-1, 1)


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); attention written out, since the fused one has
    no second derivative."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        split = self.qkv(self.norms[0](x)).unflatten(2, (3, self.heads, -1))
        q, k, v = split.permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if self.causal:
            later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class Transformer(nn.Module):
    """Blocks on embedded tokens (B, T), with an output for each, or on patches of images
    (B, 3, 32, 32), with one for all."""

    def __init__(self, embed: nn.Module, length: int, classes: int, causal: bool) -> None:
        super().__init__()
        width = 192
        self.embed, self.places = embed, nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.Sequential(*[Block(width, 6, causal) for _ in range(3)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, t: Tensor) -> Tensor:
        x = self.embed(t)
        tokens = x.flatten(2).mT if x.dim() == 4 else x
        x = self.blocks(tokens + self.places)
        return self.head(x.mean(1) if t.dim() == 4 else x)


def gpt(length: int = 32, classes: int = 64) -> Network:
    x = torch.randint(0, classes, (16, length))
    module = Transformer(nn.Embedding(classes, 192), length, classes, True)
    return module, token_loss, x, x.roll(-1, 1)


def vit() -> Network:
    module = Transformer(nn.Conv2d(3, 192, 4, 4), 64, 10, False)
    return module, CROSS, torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))


def resnet(batch: int) -> Network:
    x, y = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    return resnet18(generator=seeded()).eval(), CROSS, x, y


NETWORKS: dict[str, Callable[[], Network]] = {
    "MLP, n = 754": lambda: mlp(10, 24, 10, 10, 10),
    "MLP, n = 670k": lambda: mlp(784, 512, 512, 10),
    "LSTM": lambda: recurrent(nn.LSTM),
    "GPT, width 192": gpt,
    "ViT, width 192": vit,
    "ResNet-18, B = 16": lambda: resnet(16),
}


Product = Callable[[list[Tensor]], object]


def by_hand(network: Network) -> tuple[Product, Product]:
    """One product, and several with `is_grads_batched`, from one kept graph."""
    module, loss, x, y = network
    wrt = list(module.parameters())
    has_cells = any(isinstance(m, nn.RNNBase) for m in module.modules())
    with torch.backends.mkldnn.flags(enabled=not has_cells):
        slopes = torch.autograd.grad(loss(module(x), y), wrt, create_graph=True)
    product = partial(torch.autograd.grad, slopes, wrt, retain_graph=True)
    return product, partial(product, is_grads_batched=True)


cost = partial(price, "operators")


def hessian_products(name: str, repeats: int) -> Iterator[Row]:
    """One product, eight at once, and the building of the operator."""
    network = NETWORKS[name]()
    module, loss, x, y = network
    operator = ParameterOperator(module, loss, [(x, y)], memory_budget=AMPLE)
    v = torch.randn(operator.shape[0])
    sizes = [p.numel() for p in module.parameters()]
    vs = [p.view_as(q) for p, q in zip(v.split(sizes), module.parameters(), strict=True)]
    one, many = by_hand(network)
    what = f"{name}: one Hessian product, kept double backward"
    yield cost(what, lambda: operator @ v, lambda: one(vs), 1.1, repeats)
    rows = torch.randn(operator.shape[0], 8)
    pieces = rows.mT.split(sizes, 1)
    batch = [t.reshape(8, *p.shape) for t, p in zip(pieces, module.parameters(), strict=True)]
    vectors = [list(parts) for parts in zip(*batch, strict=True)]
    ways = [lambda: operator @ rows, lambda: [one(vector) for vector in vectors]]
    if not name.startswith("ResNet"):
        ways.append(lambda: many(batch))
    ours, *others = in_turns(*ways, repeats=repeats)
    best = min(others, key=median)
    what = f"{name}: eight Hessian products, the best by hand"
    yield Row("operators", what, ours, best, 1.1, at_least=False, note=operator.method)
    build = partial(ParameterOperator, module, loss, [(x, y)], memory_budget=AMPLE)
    what = f"{name}: building, in gradients of the batch"
    yield cost(what, build, gradient_of(*network), 12, repeats)


def gauss_newton(repeats: int) -> Iterator[Row]:
    module, loss, x, y = resnet(16)
    operator = ParameterOperator(module, loss, [(x, y)], part="gauss_newton", memory_budget=AMPLE)
    v = torch.randn(operator.shape[0])
    operator @ v
    what, theirs = (
        "ResNet-18, B = 16: Gauss-Newton product, in gradients",
        gradient_of(module, loss, x, y),
    )
    yield cost(what, lambda: operator @ v, theirs, 1.35, repeats, operator.method)


def tokens_between_layers(repeats: int) -> Iterator[Row]:
    """R, C, D and gap of a GRU language model, against dense blocks by vectors in a batch; and the
    peak."""
    module, loss, x, y = recurrent(nn.GRU)
    operator = LayerOperator(module, loss, (x, y), ["embed", "cells", "head"])
    smooth, ours = operator.with_part("gauss_newton"), partial(inter_layer_metrics, operator)
    note = f"peak {max(allocations(ours)) / 2**20:.0f} MiB at a budget of 1024"
    what = "GRU, outputs (32, 16, 30): R, C, D, gap, against both dense matrices"
    yield cost(what, ours, lambda: (operator.dense(), smooth.dense()), 1.5, repeats, note)


def rows(quick: bool, word: str = "") -> Iterator[Row]:
    repeats = 3 if quick else 5
    for name in NETWORKS:
        if word in name:
            yield from hessian_products(name, repeats)
    if word in "ResNet":
        yield from gauss_newton(repeats)
    if word in "GRU":
        yield from tokens_between_layers(repeats)
