"""Curvature of a network of the size of GPT-2 small (124 million parameters, random weights, one text of 64 tokens).

Prints the predicted cost first (products, seconds of two timed products), then each measurement with its products,
seconds and the peak memory of the process so far. One process; threads as torch has them.

Run: python -m tests.bench.gpt2 [--small] [--eigenpairs K] [--probes M] [--steps N] [--budget GIB]
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runner.curvature import (
    ParameterOperator,
    discarded_coupling,
    inter_layer_metrics,
    spectral_density,
    top_eigenpairs,
    trace_estimate,
    trace_module,
    upper_bound_estimate,
)


class Block(nn.Module):
    """Causal attention and an MLP, each behind a LayerNorm and around a skip connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """Embeddings of tokens and places, blocks, and a head that shares the embedding's weight."""

    def __init__(
        self, vocabulary: int = 50257, length: int = 1024, layers: int = 12, width: int = 768, heads: int = 12
    ) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def language_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the next token."""
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def timed(what: str, measure: Callable[[], Any]) -> Any:
    start, cpu = time.perf_counter(), time.process_time()
    found = measure()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    cost = f"{time.process_time() - cpu:.1f} s CPU, {time.perf_counter() - start:.1f} s, peak {peak:.2f} GiB"
    print(f"{what}: {cost}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="two narrow layers and 300 tokens")
    parser.add_argument("--eigenpairs", type=int, default=10)
    parser.add_argument("--probes", type=int, default=10)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--products", type=int, default=200, help="most products of the eigenpairs")
    parser.add_argument("--budget", type=float, default=8.0, help="GiB for the vectors and for the graph")
    parser.add_argument("--skip-layers", action="store_true")
    given = parser.parse_args()
    torch.manual_seed(0)
    net = (GPT2(300, 64, 2, 32, 4) if given.small else GPT2()).eval()
    tokens = torch.randint(net.wte.num_embeddings, (1, 65))
    x, y, budget = tokens[:, :-1], tokens[:, 1:], int(given.budget * 2**30)
    print(f"{sum(p.numel() for p in net.parameters()):,} parameters, {torch.get_num_threads()} thread(s)")
    gradient = timed("gradient", lambda: torch.autograd.grad(language_loss(net(x), y), list(net.parameters())))
    del gradient
    groups = {"embeddings": ["wte", "wpe"], "blocks": ["blocks", "norm"]}
    operator = timed("operator", lambda: ParameterOperator(net, language_loss, (x, y), groups, memory_budget=budget))
    print(operator.planned)
    v = torch.randn(operator.shape[0])
    timed("product (makes the graph)", lambda: operator @ v)
    start = time.process_time()
    timed("product", lambda: operator @ v)
    each = time.process_time() - start
    n = given.probes
    plan = {"trace": n, "bound": n, "coupling": 2 * n, "density": 2 * given.steps, "eigenpairs": given.products}
    print("predicted seconds:", {k: round(count * each) for k, count in plan.items()}, flush=True)
    print(timed("trace", lambda: trace_estimate(operator, n, "hutchinson", generator=seeded(1))))
    print(timed("bound", lambda: upper_bound_estimate(operator, n, generator=seeded(2))))
    print(timed("coupling", lambda: discarded_coupling(operator, n, generator=seeded(3))))
    density = timed(
        "density",
        lambda: spectral_density(operator, 2, given.steps, memory_budget=0, generator=seeded(4)),
    )
    print(density)
    del density
    pairs = timed(
        "eigenpairs",
        lambda: top_eigenpairs(
            operator, given.eigenpairs, max_products=given.products, memory_budget=budget, generator=seeded(5)
        ),
    )
    print(pairs, pairs.residuals.tolist())
    if not given.skip_layers:
        del pairs, operator
        dag = timed("graph of the blocks", lambda: trace_module(net, language_loss, (x, y), ["blocks.*"]))
        found = timed("R, C, D between blocks", lambda: inter_layer_metrics(dag, dag.x, dag.y, generator=seeded(6)))
        print(found.to_frame().to_string())


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


if __name__ == "__main__":
    main()
