"""R, C, D and the GN-gap of every pair: inter_layer_metrics against 30 probes and 20 power steps,
pair by pair.

The published way (published.py) runs all of its probes and steps for the MLP, and some of each for
ResNet-18, where all of a pair are alike. Operation counts stand in
runner/curvature/graphs/metrics.py; those of both ways are counted.

The errors of both ways stand beside the ratio (ResNet-18: not with --quick): root mean square over
the pairs and some seeds, against exact values (MLP: exact blocks; ResNet-18 with ReLU: by factors)
or a long run of a minute (SiLU: 0.8 % asked for). The published way's are those of the engine's
estimators with the same 30 probes and 20 steps.

Run: python -m tests.bench inter_layer [--quick]
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from experiments.dag.protocol.probes import part_norms, spectral_norms
from runner.curvature import Dag, LayerOperator, graph_metrics
from runner.curvature.graphs.metrics import metrics_from_blocks
from runner.curvature.pairs.ratios import Asked
from runner.models.architectures import mlp
from runner.models.resnet import resnet18
from tests.bench.machine import in_turns, operations, peak, seconds as cpu_seconds
from tests.bench.published import PROBES, STEPS, Pair, published_costs
from tests.bench.table import Row
from tests.draws import seeded

GOALS = {"MLP L=6 width 256": (6, 6, 6), "ResNet-18 ReLU": (25, 80, 0), "ResNet-18 SiLU": (0, 8, 5)}
"""Ratios asked for: of R, of R and D, of the gap; 0 where none is."""
WHAT = ("R", "R and D", "gap")
QUANTITIES = ("R", "D", "gap")
SEEDS = {"MLP L=6 width 256": 16, "ResNet-18 ReLU": 1, "ResNet-18 SiLU": 3}
"""Of which the errors are the root mean square; one where ours are zero."""


def network(name: str) -> tuple[Dag, tuple[str, ...], tuple[int, ...]]:
    generator = seeded()
    if name.startswith("ResNet"):
        net = resnet18(activation=name.split()[1].lower(), generator=generator).eval()
        return net.to_dag(), net.measured, (3, 32, 32)
    net = mlp(depth=6, width=256, activation="silu", generator=generator)
    return net.to_dag(), net.measured, (3072,)


def inputs(name: str) -> tuple[Dag, Tensor, Tensor, tuple[str, ...]]:
    """The network without gradients for its weights, and B = 32 random examples."""
    dag, nodes, shape = network(name)
    generator = seeded(4)
    x = torch.randn(32, *shape, generator=generator)
    y = torch.randint(0, 10, (32,), generator=generator)
    for node in dag.nodes.values():
        for p in node.parameters().values():
            p.requires_grad_(False)
    return dag, x, y, nodes


def compared(name: str, quick: bool) -> Iterator[Row]:
    """A row for each goal of the network."""
    dag, x, y, nodes = inputs(name)

    def ours(**about: Any) -> dict:
        return graph_metrics(dag, x, y, nodes, generator=seeded(5), **about)

    found: dict = {}  # the calls that are counted warm up, too
    both = operations(lambda: found.update(ours()))
    norms_alone = partial(ours, ranks=False)
    count = {"R and D": both} | dict.fromkeys(("R", "gap"), operations(norms_alone))
    small = name.startswith("MLP")
    pairs = list(found)
    timed = PROBES if small else 1
    repeats = 9 if small else 2
    if quick:
        repeats = 1
    each = partial(cpu_seconds, count=timed)
    ranked: tuple[float, ...] = ()
    norms: tuple[float, ...] = ()
    theirs = []
    for k in range(repeats):  # in turns: the machine is not equally fast in every second
        one, other = in_turns(ours, norms_alone, repeats=1, warm=True)
        ranked += one
        norms += other
        if small or k == 0:
            theirs.append(published_costs(dag, x, y, pairs, cpu_seconds, each))
    few = 2  # examples: operations are in proportion
    counts = published_costs(dag, x[:few], y[:few], pairs, operations)
    note = f"{len(pairs)} pairs, by {found[pairs[0]].method}"
    if timed != PROBES:
        note += f"; theirs from {timed} product of each kind and pair, times their number"
    if small or not quick:
        exact = {}
        if small:
            asked = Asked(pairs)
            exact = values(metrics_from_blocks(dag, x, y, nodes, asked, 1 << 30))
        truth = exact or values(ours(relative_error=8e-3))
        note += "; " + accuracy(dag, x, y, nodes, truth, SEEDS[name])
    for k, what in enumerate(WHAT):
        if goal := GOALS[name][k]:
            times = ranked if what == "R and D" else norms, tuple(costs[k] for costs in theirs)
            title = f"{name}, B = 32: {what} of all pairs, against the published way"
            counted = {"operations": (count[what], len(x) / few * counts[k]), "peak": peak()}
            yield Row("inter_layer", title, *times, goal, note=note, **counted)


def accuracy(
    dag: Dag, x: Tensor, y: Tensor, nodes: tuple[str, ...], truth: dict, seeds: int
) -> str:
    """Relative errors of both ways over `seeds` of each, in words: R and gap of the call without
    D."""
    operator = LayerOperator(dag.as_module(), dag.loss, (x, y), nodes, check=False)
    pairs = list(truth)
    squares: dict[str, list[dict[str, float]]] = {"own": [], "theirs": []}
    for seed in range(seeds):
        a, b, *generators = (seeded(10 * seed + k) for k in range(5))
        plain = values(graph_metrics(dag, x, y, nodes, generator=a, ranks=False))
        ranked = values(graph_metrics(dag, x, y, nodes, generator=b))
        parts = part_norms(dag, x, y, nodes, pairs, PROBES, generators[0])
        tops = spectral_norms(operator, pairs, STEPS, generators[1])
        published = {}
        for p in pairs:
            r, gap = parts[p].total.value, parts[p].tensor.value / parts[p].gauss_newton.value
            published[p] = {"R": r, "D": (r / tops[p]) ** 2, "gap": gap}
        own = {p: m | {"D": ranked[p]["D"]} for p, m in plain.items()}
        squares["own"].append(errors(own, truth))
        squares["theirs"].append(errors(published, truth))
    texts = []
    for k in QUANTITIES:
        ours = root_mean_square([of_net[k] for of_net in squares["own"]])
        theirs = root_mean_square([of_net[k] for of_net in squares["theirs"]])
        texts.append(f"{k} {ours:.2g} (theirs {theirs:.2g})")
    return "relative error " + ", ".join(texts)


def errors(
    found: dict[Pair, dict[str, float]], truth: dict[Pair, dict[str, float]]
) -> dict[str, float]:
    """Root mean square relative error over the pairs; 0 where the truth is."""
    of_quantity = {}
    for k in QUANTITIES:
        relative = [found[p][k] / truth[p][k] - 1 for p in truth if truth[p][k] > 0]
        of_quantity[k] = root_mean_square(relative)
    return of_quantity


def root_mean_square(numbers: list[float]) -> float:
    """0 for an empty list."""
    return (sum(number**2 for number in numbers) / max(1, len(numbers))) ** 0.5


def values(found: dict) -> dict[Pair, dict[str, float]]:
    quantities = {}
    for pair, metrics in found.items():
        quantities[pair] = {k: getattr(metrics, k).value for k in QUANTITIES}
    return quantities


def rows(quick: bool = False, word: str = "") -> Iterator[Row]:
    """Of every network whose name holds `word`."""
    for name in GOALS:
        if word.lower() in name.lower():
            yield from compared(name, quick)
