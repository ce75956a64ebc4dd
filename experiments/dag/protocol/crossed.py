"""What the paper's ± consists of: initial networks crossed with data orders, each measured on the same sets of images.

The published five seeds change network and order together and look at one set of images. Here every network is trained
in the order of every seed; the order of seed k for the network of seed k is the training itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experiments.dag.protocol.companions import PUBLISHED_SEEDS, order_of
from experiments.dag.protocol.rounding import label_of

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from runner.stats import Statistic
    from runner.stats.components import Component

NAMES = ("network", "order", "images")
SOURCES: Mapping[str, tuple[str, ...]] = {
    "initial network": ("network", "network:images"),
    "data order": ("order", "order:images"),
    "network and order together": ("network:order", "network:order:images"),
    "set of images": ("images",),
}
"""The first three make up the spread of seeds on one set of images, the paper's ±; the last is what it leaves out."""

CONSTANT = 1e-9
"""Values that differ by less than this share are one value: nothing is left to be split."""
FEWEST = 3
"""Networks and orders below which a component is not told from chance."""


def gathered(own: pd.DataFrame, beside: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Values of all trainings with the columns `network` and `order`, their seeds.

    own: values by keys, seed, checkpoint and images of the trainings themselves; beside: of companions, by name.
    """
    import pandas as pd

    parts = [own.assign(network=own["seed"], order=own["seed"])]
    for seed in PUBLISHED_SEEDS:
        other = beside.get(order_of(seed))
        if other is not None:
            parts.append(other.assign(network=other["seed"], order=seed))
    return pd.concat(parts, ignore_index=True)


def cubes(values: pd.DataFrame, keys: Sequence[str]) -> Iterator[tuple[dict[str, Any], NDArray[np.float64], list[int]]]:
    """(keys, y[network, order, images], seeds) of every quantity that has a complete square of `FEWEST` seeds or more.

    The square is the largest set of seeds all of whose networks were trained in all of whose orders; the papers' own
    set of images is left out where there are others, since it is not random.
    """
    random = values[values["images"] != 0] if (values["images"] != 0).any() else values
    for found, part in random.groupby(list(keys), sort=False, dropna=False):
        table = part.dropna(subset=["value"]).pivot_table(index=["network", "order"], columns="images", values="value")
        table = table.dropna(axis=1)
        seeds = complete(list(table.index))
        if len(seeds) >= FEWEST and table.shape[1] >= 2:
            y = table.loc[[(a, b) for a in seeds for b in seeds]].to_numpy(float)
            if y.max() - y.min() > CONSTANT * abs(y).max():
                yield dict(zip(keys, found, strict=True)), y.reshape(len(seeds), len(seeds), -1), seeds


def complete(pairs: Sequence[tuple[int, int]]) -> list[int]:
    """The largest set of seeds with every ordered pair among `pairs` (the first of them in lexical order)."""
    from itertools import combinations

    there = set(pairs)
    levels = sorted({a for a, b in there if a == b})
    for size in range(len(levels), 0, -1):
        for chosen in combinations(levels, size):
            if all((a, b) in there for a in chosen for b in chosen):
                return list(chosen)
    return []


def split(y: NDArray[np.float64]) -> list[Component]:
    """Components of one quantity by `SOURCES`, with 95 % intervals."""
    from runner.stats.components import components

    return components(y, NAMES, dict(SOURCES))


def rows(values: pd.DataFrame, keys: Sequence[str], figure: str = "") -> Iterator[Statistic]:
    """Statistics (kind "variance"), one a source: std and its 95 % interval (shift_low, shift_high), effect = share."""
    from runner.stats import Statistic

    for found, y, seeds in cubes(values, keys):
        mean = float(y.mean())
        for c in split(y):
            yield Statistic(
                name=f"{found['metric']}: crossed, {c.source}",
                kind="variance",
                group=label_of(found),
                figure=figure,
                label_a=c.source,
                n_a=y.shape[2] if c.source == "set of images" else len(seeds),
                mean=mean,
                std=c.variance**0.5,
                shift_low=c.low**0.5,
                shift_high=c.high**0.5,
                effect=c.share,
                statistic=c.variance**0.5 / abs(mean) if mean else float("nan"),
                method="three-way random effects, generalised confidence interval of the std",
                note=f"networks and orders of seeds {', '.join(map(str, seeds))}; share of the variance "
                f"[{c.share_low:.2f}, {c.share_high:.2f}]",
            )
