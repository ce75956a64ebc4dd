"""The structural zeros of Exp. 4 and 5, once for each of their cells: at the cell's own untrained network.

A zero by construction does not depend on what was learned, so that it is measured where it costs no training; the route
is that of `zeros`, nested automatic differentiation in float64, which knows of no routing. The networks with a curved
merge, and the attention network, are measured beside them: their tensor part must not vanish.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from experiments.dag.exp4.settings import MERGES
from experiments.dag.exp5.settings import PAIRS
from experiments.dag.protocol.companions import PUBLISHED_SEEDS
from experiments.dag.protocol.training import build
from experiments.paper_audit.dag.zeros import cross_entropy, squared, tensor_share
from runner.contract import Claim
from runner.kinds.model import AttentionModel, DiamondModel

DEPTHS, ACTIVATIONS, CLASSES = (1, 2, 3), ("relu", "silu"), 10
PIXELS, TOKENS = (3072,), 8
ZERO, CLEARLY = 1e-12, 1e-4
"""Relative rounding of the two routes in float64; least share of a tensor part that is there."""


@dataclass(frozen=True)
class Untrained:
    """The network of one cell before training: experiment, its grid point, settings, the measured pair, is H^T zero."""

    experiment: str
    network: str
    settings: dict[str, Any]
    pair: tuple[str, str]
    shape: tuple[int, ...]
    flat: bool


def networks() -> Iterator[Untrained]:
    """Exp. 4 at every depth, merge and activation; Exp. 5's two networks, which its protocols share."""
    for k, merge, activation in itertools.product(DEPTHS, MERGES, ACTIVATIONS):
        grid: dict[str, Any] = {"branch_depth": k, "merge": merge, "activation": activation}
        settings = DiamondModel(initial="published").network(outputs=CLASSES, **grid)
        flat = (merge, activation) != ("cat", "silu")
        yield Untrained(
            "exp4_diamond", f"k={k} {merge}+{activation}", settings, (f"a{k - 1}", f"b{k - 1}"), PIXELS, flat
        )
    attention = AttentionModel()
    tokens = (TOKENS, attention.width)
    yield Untrained("exp5_attention", "attention", attention.network(), PAIRS["attention"], tokens, False)
    shape = {"width": attention.width, "depth": 3, "activation": "relu"}
    settings = {"builder": "positionwise_mlp", **shape}
    yield Untrained("exp5_attention", "relu_mlp", settings, PAIRS["relu_mlp"], tokens, True)


def row(case: Untrained, seed: int) -> dict[str, Any]:
    """share = ‖H − H^GN‖_F / ‖H‖_F of the pair in the network of one published seed, at one Gaussian input."""
    x = torch.randn(1, *case.shape, generator=torch.Generator().manual_seed(seed))
    loss = cross_entropy if case.experiment == "exp4_diamond" else squared
    share = tensor_share(build(case.settings, seed), x, *case.pair, loss)
    found = {"experiment": case.experiment, "network": case.network, "of_seed": seed, "v": case.pair[0]}
    return {**found, "w": case.pair[1], "flat": case.flat, "share": share}


def rows() -> list[dict[str, Any]]:
    """One row for each network and published seed."""
    return [row(case, seed) for case, seed in itertools.product(networks(), PUBLISHED_SEEDS)]


def claims(found: list[dict[str, Any]]) -> list[Claim]:
    """One claim: the zeros vanish in every cell, and what is no zero does not."""
    if not found:
        return []
    largest = max(float(row["share"]) for row in found if row["flat"])
    least = min(float(row["share"]) for row in found if not row["flat"])
    count = sum(bool(row["flat"]) for row in found)
    detail = f"{count} untrained networks, one for each cell; where H^T is no zero, its share is at least {least:.2g}"
    return [
        Claim(
            name="dag.zeros.cells",
            statement="H^T vanishes in every cell of Exp. 4 and 5 where it is a zero by construction, and nowhere else",
            where="DAG, Sections 5.4 (H4.3) and 5.5 (H5.2)",
            verdict="confirmed" if largest <= ZERO and least >= CLEARLY else "refuted",
            statistic=largest,
            threshold=f"{ZERO:g}",
            detail=detail,
            group="DAG",
        )
    ]
