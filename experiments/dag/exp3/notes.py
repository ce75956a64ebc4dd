"""What the tables of Exps. 3 and 3b show, in plain words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from experiments.dag.exp3.claims import by_activation
from experiments.dag.protocol.summary import first, groups, variance_components

if TYPE_CHECKING:
    import pandas as pd


def notes(gaps: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Findings in plain words."""
    found = []
    for (activation,), part in groups(gaps[gaps["checkpoint"] == "init"], ["activation"]):
        own, c = first(part)["gap"].mean(), variance_components(part, "gap")
        random = part[part["images"] != 0].groupby("images")["gap"].mean()
        if own > 0 and not math.isnan(c.images):
            found.append(
                f"{activation}, init: gap {own:.3g} on the paper's images, {random.min():.3g} to {random.max():.3g} on "
                f"{len(random)} random sets of the same size (means over seeds); std {math.sqrt(c.within):.2g} between "
                f"sets of images of one network, {math.sqrt(c.seeds):.2g} between seeds."
            )
    found += [
        f"{activation}, init: by Eq. 2 as printed, which leaves H^T to the pairs (v, v), the gap would be {left:.3f}; "
        f"it is {whole:.3f}."
        for activation, (left, whole) in by_equation_2(tables["distances"]).items()
    ]
    init = first(gaps)[lambda t: t["checkpoint"] == "init"]
    for (activation,), part in groups(init[init["gap"] > 0], ["activation"]):
        found.append(
            f"{activation}, init: ratio of sums {part['gap'].mean():.3g} (the tables'), mean of Eq. 4 over pairs "
            f"{part['gap_of_pairs'].mean():.3g}."
        )
    return found


def by_equation_2(distances: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """activation -> (gap with the tensor part of the pairs (v, v) alone, gap), at init, means over seeds.

    In a chain Eq. 2 as printed gives H^T[v,w] = 0 for every v before w (errata, Eq. 2).
    """
    found = {}
    init = first(distances)[lambda t: t["checkpoint"] == "init"]
    for (activation,), part in by_activation(init):
        own = part[part["distance"] == 0].set_index("seed")["tensor"]
        sums = part.groupby("seed")[["tensor", "gn"]].sum()
        if (sums["tensor"] > 0).all():
            found[activation] = float((own / sums["gn"]).mean()), float((sums["tensor"] / sums["gn"]).mean())
    return found
