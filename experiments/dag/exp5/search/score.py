"""How many printed digits of the untrained networks one variant of the protocol gives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from experiments.dag.exp5.search.closed import attention_gauss_newton, attention_parts, relu_norms
from experiments.dag.exp5.search.streams import (
    MEASURED,
    NETWORKS,
    NOISES,
    SEEDINGS,
    Data,
    Recipe,
    Stream,
    network_of,
    recipes,
    teachers,
)
from runner.models import Network

SEEDS = range(42, 47)
SUBSETS = ("first", "shuffled")
"""Which 64 validation samples: the first, or those of torch.randperm under the training's seed."""


@dataclass(frozen=True)
class Target:
    """A printed number, and half a unit of its last digit."""

    value: float
    resolution: float

    def met(self, found: float) -> bool:
        """Whether a value rounds to the printed one."""
        return abs(found - self.value) <= self.resolution * (1 + 1e-6)


Targets = Mapping[str, Target]
"""Printed init rows by name: "attention gn", "attention full", "attention gap", "attention gap std", "attention loss",
"mlp full", "mlp loss"."""


def search(source: str, targets: Targets, seedings: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """One row for every variant of a source (with these seedings, or all): how it was drawn, its values, digits met.

    Attention is looked at twice: ‖H^GN‖ knows no targets and is computed for every variant of inputs, samples and
    network (columns of "inputs" rows); where it gives the printed digits, all teachers and noises follow ("targets").
    """
    for recipe in recipes(source, seedings or SEEDINGS):
        drawn = {seed: recipe.draw(seed) for seed in SEEDS}
        for subset in SUBSETS:
            samples = {seed: indices(subset, seed) for seed in SEEDS}
            for how in NETWORKS if source == "torch" and recipe.seeding == "plus 0" else NETWORKS[:1]:
                yield from of_variant(recipe, drawn, samples, subset, how, targets)


def of_variant(
    recipe: Recipe,
    drawn: Mapping[int, tuple[Data, Stream]],
    samples: Mapping[int, torch.Tensor],
    subset: str,
    how: str,
    targets: Targets,
) -> Iterator[dict[str, Any]]:
    """Rows of one variant of inputs, samples and network."""
    about = {"inputs": str(recipe), "samples": subset, "network": how}
    nets = {(kind, seed): initial(kind, how, drawn[seed][1], seed) for kind in ("attention", "mlp") for seed in SEEDS}
    x = {seed: drawn[seed][0].x_val[samples[seed]] for seed in SEEDS}
    gn = mean(attention_gauss_newton(nets["attention", seed], x[seed]) for seed in SEEDS)
    norms = [relu_norms(nets["mlp", seed], x[seed]) for seed in SEEDS]
    pairs = {pair: mean(n[pair] for n in norms) for pair in norms[0]}
    met = targets["attention gn"].met(gn)
    fits = [pair for pair, value in pairs.items() if targets["mlp full"].met(value)]
    yield {**about, "stage": "inputs", "attention gn": gn, "pairs": "; ".join(fits), **pairs, "met": met}
    if met:
        yield from with_targets(about, drawn, samples, nets, x, gn, bool(fits), targets)


def with_targets(
    about: Mapping[str, str],
    drawn: Mapping[int, tuple[Data, Stream]],
    samples: Mapping[int, torch.Tensor],
    nets: Mapping[tuple[str, int], Network],
    x: Mapping[int, torch.Tensor],
    gn: float,
    relu_fits: bool,
    targets: Targets,
) -> Iterator[dict[str, Any]]:
    """Rows of all teachers and noises for inputs whose ‖H^GN‖ is the printed one."""
    parts = {seed: attention_parts(nets["attention", seed], x[seed]) for seed in SEEDS}
    with torch.no_grad():
        outputs = {key: net(drawn[key[1]][0].x_val).squeeze(-1) for key, net in nets.items()}
    for teacher in teachers():
        clean = {seed: (teacher(d.x), teacher(d.x_val)) for seed, (d, _) in drawn.items()}
        for noise in NOISES:
            full, gaps = [], []
            losses: dict[str, list[float]] = {"attention": [], "mlp": []}
            for seed in SEEDS:
                y = standardised(clean[seed], drawn[seed][0], noise)
                norms = parts[seed].norms(y[samples[seed]])
                full.append(norms[0])
                gaps.append(norms[2] / norms[1])
                for kind in losses:
                    losses[kind].append(float((outputs[kind, seed] - y).square().mean()))
            found = {"attention gn": gn, "attention full": mean(full), "attention gap": mean(gaps)}
            found |= {"attention gap std": spread(gaps)}
            found |= {f"{kind} loss": mean(values) for kind, values in losses.items()}
            met = [name for name, value in found.items() if targets[name].met(value)] + ["mlp full"] * relu_fits
            row = {**about, "stage": "targets", "teacher": str(teacher), "noise": noise, **found}
            yield row | {"met": "; ".join(met), "digits": len(met), "off": distance(found, targets)}


def initial(kind: str, how: str, stream: Stream, seed: int) -> Network:
    """The initial network of a variant; `stream` stands where the data left it, and is left there."""
    if how != "after the data":
        return network_of(kind, how, seed)
    state = stream.torch.get_state()
    network = stream.network(kind)
    stream.torch.set_state(state)
    return network


def indices(subset: str, seed: int) -> torch.Tensor:
    """The validation samples of a subset."""
    if subset == "first":
        return torch.arange(MEASURED)
    return torch.randperm(512, generator=torch.Generator().manual_seed(seed))[:MEASURED]


def standardised(clean: tuple[torch.Tensor, torch.Tensor], data: Data, noise: float) -> torch.Tensor:
    """Validation targets with noise, standardised by the training targets."""
    train, val = clean[0] + noise * data.noise, clean[1] + noise * data.noise_val
    return (val - train.mean()) / train.std()


def distance(found: Mapping[str, float], targets: Targets) -> float:
    """Largest distance from a printed value, in units of half its last digit: at most 1 is a match of all."""
    return max(abs(value - targets[name].value) / targets[name].resolution for name, value in found.items())


def mean(values: Iterable[float]) -> float:
    kept = list(values)
    return math.fsum(kept) / len(kept)


def spread(values: Sequence[float]) -> float:
    """Population standard deviation, as the paper's tables have it."""
    center = mean(values)
    return math.sqrt(mean((v - center) ** 2 for v in values))
