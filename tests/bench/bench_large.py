"""All quantities of a large network in one run: values with errors, products, predicted and actual
price, peak memory.

GPT-2 small (124 million parameters, random weights, one text of 64 tokens), ResNet-50 (random
weights, four images of 64 x 64), or a tiny GPT-2. A price is predicted before each measurement, as
its products times the seconds of one that was timed before; of eigenpairs, as many products as
`hess-run diagnose` predicts, with what keeping vectors orthogonal adds to each. Seconds are
processor time; the peak is that of the process during the measurement.

Run: python -m tests.bench.bench_large [gpt2 | resnet50 | tiny] [PART ...]
"""

import argparse
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runner.curvature import (
    LayerOperator,
    ParameterOperator,
    as_linear_operator,
    inter_layer_metrics,
    spectral_density,
    top_eigenpairs,
    trace_estimate,
    upper_bound_estimate,
)
from runner.curvature.pairs.by_products import WITHOUT_FACTORS
from runner.curvature.pairs.probes import SWEPT
from runner.diagnose.parts import eigenpair_products
from runner.store.identity import software
from tests.bench.bench_operators import token_loss
from tests.bench.machine import forget_the_peak, gradient_of, in_turns, operations, status
from tests.draws import seeded


class Block(nn.Module):
    """Causal attention and an MLP, each behind a LayerNorm and around a skip connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        split = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1))
        attended = F.scaled_dot_product_attention(*split.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """Embeddings of tokens and places, blocks, and a head that shares the embedding's weight."""

    def __init__(self, vocabulary=50257, length=1024, layers=12, width=768, heads=12) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions with a skip connection (He et al., 2016; the stride in
    the second)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()

        outputs, relu = 4 * width, nn.ReLU()
        first, second = layer(inputs, width, 1), layer(width, width, 3, stride)
        self.body = nn.Sequential(first, relu, second, relu, layer(width, outputs, 1))
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = layer(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.shortcut(x) + self.body(x))


def layer(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Module:
    """A convolution and its normalisation."""
    convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


class ResNet50(nn.Module):
    """Stem, 16 bottleneck blocks, and 1000 classes: 25,557,032 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(layer(3, 64, 7, 2), nn.ReLU())
        self.pool, self.blocks, inputs = nn.MaxPool2d(3, 2, 1), nn.Sequential(), 64
        for stage, count in enumerate((3, 4, 6, 3)):
            for k in range(count):
                self.blocks.append(Bottleneck(inputs, 64 << stage, 2 if stage and k == 0 else 1))
                inputs = 256 << stage
        self.head = nn.Linear(inputs, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.pool(self.stem(x))).mean((2, 3)))


PARTS = ("gauss_newton", "layers", "hessian", "trace", "bound", "density", "eigenpairs")


@dataclass(frozen=True)
class Case:
    """A network with one batch, groups of its parameters, and how much is asked of each estimate.

    probes: of traces. steps: of each of two runs of Lanczos. budget: bytes of the vectors and of
    the graphs.
    between: bytes of products between layers.
    repeats: timed products.
    """

    module: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    batch: tuple[Tensor, Tensor]
    groups: dict[str, list[str]]
    probes: int = 9
    steps: int = 15
    eigenpairs: int = 10
    budget: int = 6 << 30
    between: int = 1 << 30
    repeats: int = 3


def language_case(net: GPT2, length: int, **settings: int) -> Case:
    net.eval()
    tokens = torch.randint(net.wte.num_embeddings, (1, length + 1))
    blocks = {f"block {i}": [f"blocks.{i}"] for i in range(len(net.blocks))}
    groups = {"embeddings and norm": ["wte", "wpe", "norm"], **blocks}
    return Case(net, token_loss, (tokens[:, :-1], tokens[:, 1:]), groups, **settings)


def image_case() -> Case:
    """BatchNorm has the statistics of the batch: with those of a new module, every block doubles
    the variance."""
    net, x, y = ResNet50(), torch.randn(4, 3, 64, 64), torch.randint(1000, (4,))
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.momentum = 1.0
    with torch.no_grad():
        net(x)
    blocks = {f"block {i}": [f"blocks.{i}"] for i in range(16)}
    groups = {"stem": ["stem"], **blocks, "head": ["head"]}
    return Case(net.eval(), nn.CrossEntropyLoss(), (x, y), groups, budget=3 << 30)


TINY = {"probes": 60, "steps": 40, "eigenpairs": 5, "between": 1 << 22}
SMALL = {"probes": 6, "repeats": 2, "budget": 9 << 30, "between": 4 << 30}
CASES: dict[str, Callable[[], Case]] = {
    "gpt2": lambda: language_case(GPT2(), 64, **SMALL),
    "resnet50": image_case,
    "tiny": lambda: language_case(GPT2(100, 16, 2, 8, 2), 16, **TINY),
}


@dataclass
class Clock:
    """Prints a line for each measurement: its value, products, predicted and actual seconds, and
    the peak of memory."""

    results: dict[str, Any] = field(default_factory=dict)

    def __call__(
        self, name: str, measure: Callable[[], Any], products: int = 0, each: float = 0.0
    ) -> Any:
        forget_the_peak()
        start, cpu = time.perf_counter(), time.process_time()
        found = measure()
        seconds, wall = time.process_time() - cpu, time.perf_counter() - start
        predicted = products * each
        price = f"{predicted:.0f} | {seconds / predicted:.2f}" if predicted else "|"
        cost = f"{products or ''} | {seconds:.1f} | {price} | {wall:.0f}"
        print(f"| {name} | {told(found)} | {cost} | {status('VmHWM') / 1024:.2f} |", flush=True)
        self.results[name] = found
        return found


PASSES = 8
"""What Lanczos does with a new vector besides keeping it orthogonal, in vectors."""


def orthogonal_seconds(operator: ParameterOperator, vectors: float) -> float:
    """What keeping a new vector orthogonal to `vectors` others adds to a product, timed with
    two."""
    basis = torch.ones(2, operator.shape[0], dtype=torch.float64)
    vector = basis[0].clone()
    (times,) = in_turns(lambda: torch.addmv(vector, basis.mT, basis @ vector), repeats=2)
    return median(times) / 2 * (vectors + PASSES)


HEADER = """\
| quantity | value | products | seconds | predicted | ratio | wall seconds | peak, GiB |
| --- | --- | --- | --- | --- | --- | --- | --- |"""


def told(found: Any) -> str:
    """A result in one cell of a table."""
    if isinstance(found, ParameterOperator):
        kept = "kept" if found.planned.keep else "not kept"
        return f"{found.shape[0]:,} parameters, graphs {kept}"
    return found.summary() if hasattr(found, "summary") else ""


def measured(case: Case, clock: Clock, parts: Collection[str] = PARTS) -> None:
    """The parts that are asked for."""
    print(HEADER)
    if "layers" in parts:
        layers(case, clock)
    if "gauss_newton" in parts:
        product(case, clock, "gauss_newton")
    if not set(parts) - {"layers", "gauss_newton"}:
        return
    operator, each = product(case, clock, "hessian")
    n, budget = case.probes, case.budget

    def estimate(name: str, products: int, measure: Callable, *about: Any, **more: Any) -> None:
        clock(name, lambda: measure(operator, *about, **more), products, each)

    if "trace" in parts:
        estimate("trace", n, trace_estimate, n, "hutchinson", generator=seeded(1))
    if "bound" in parts:
        estimate("λ_sup", n, upper_bound_estimate, n, generator=seeded(2))
    if "density" in parts:
        runs = 2, case.steps
        more = {"memory_budget": 0, "generator": seeded(4)}
        estimate("spectral density", 2 * case.steps, spectral_density, *runs, **more)
    if "eigenpairs" in parts:
        k, vector = case.eigenpairs, operator.dtype.itemsize * operator.shape[0]
        held = max(k + 3, min(4 * k, budget // vector - 1))
        each += orthogonal_seconds(operator, (k + 3 * held) / 4)
        more = {"memory_budget": budget, "generator": seeded(5)}
        products = eigenpair_products(k, operator.shape[0])
        estimate(f"{k} eigenpairs", products, top_eigenpairs, k, **more)


def product(case: Case, clock: Clock, part: str) -> tuple[ParameterOperator, float]:
    """The operator, and the seconds of a product as the estimators take it, with a vector in
    float64."""
    given: tuple[Any, ...] = (case.module, case.loss, case.batch, case.groups, part)
    make = partial(ParameterOperator, *given, memory_budget=case.budget)
    operator: ParameterOperator = clock(f"operator, {part}", make)
    view, gradient = as_linear_operator(operator), gradient_of(case.module, case.loss, *case.batch)
    wide = torch.randn(operator.shape[0], generator=seeded(0)).double()
    v = wide.to(operator.dtype)
    ours, one, whole = in_turns(
        lambda: operator @ v, gradient, lambda: view.matvec(wide.numpy()), repeats=case.repeats
    )
    counted = operations(lambda: operator @ v) / operations(gradient)
    ratio = f"{median(ours) / median(one):.2f} gradients ({counted:.2f} by operations)"
    print(f"| product, {part} | {ratio} | 1 | {median(ours):.2f} | | | | |", flush=True)
    return operator, median(whole)


def layers(case: Case, clock: Clock) -> None:
    """R, C and D between all blocks of the network: products with the Hessian and its Gauss-Newton
    part on each."""
    given = case.module, case.loss, case.batch, ["blocks.*"]
    make = partial(LayerOperator, *given, memory_budget=case.between)
    operator: LayerOperator = clock("operator between blocks", make)
    products = (2 * WITHOUT_FACTORS + SWEPT) * len(operator.nodes)
    measure, each = partial(inter_layer_metrics, operator), seconds_between(operator)
    found = clock("R, C, D between blocks", partial(measure, generator=seeded(7)), products, each)
    print(found.to_frame().to_string(), flush=True)


def seconds_between(operator: LayerOperator) -> float:
    """Of one product with the Hessian between the layers, as many at once as the estimates take."""
    layer = operator.nodes[0]
    probes = {layer: torch.randn(WITHOUT_FACTORS, operator.sizes[layer], generator=seeded(6))}
    (times,) = in_turns(lambda: operator.apply(probes), repeats=1)
    return median(times) / WITHOUT_FACTORS


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("network", nargs="?", choices=CASES, default="tiny")
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; default: all")
    known = parser.parse_args()
    torch.manual_seed(0)
    machine = software()
    threads, commit = torch.get_num_threads(), machine["git_commit"]
    print(f"{known.network}: {machine['cpu']}, {threads} thread(s), commit {commit}")
    measured(CASES[known.network](), Clock(), known.parts or PARTS)


if __name__ == "__main__":
    main()
