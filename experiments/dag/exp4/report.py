"""The report of Exp. 4: the merge, the blocks within and across the branches, and what training
does to them.

R across the branches at init: the text prints R(d+2)/R(d) ≈ 0.28–0.39 "across configs" (Section
5.4, H4.2a) and no value of R itself. Except for merges without curvature Tables 6 and N.4 print ‖H
− H^GN‖ (float32 rounding) and its quotient by ‖H^GN‖, the gap, of the pair at d = 2: their ratio is
the authors' own ‖H^GN‖ = R(2), with which ours is compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pandas as pd

from experiments.dag.alternatives import DIAMOND
from experiments.dag.exp4 import figures as draw, values
from experiments.dag.exp4.settings import Exp4Diamond
from experiments.dag.exp4.values import KEYS, VARIANT
from experiments.dag.protocol import summary
from experiments.dag.protocol.authors import Results, WithAuthors
from experiments.dag.protocol.inter_layer import WITHOUT_NORM
from experiments.dag.protocol.scores import printed
from experiments.dag.protocol.summary import first
from runner.contract import Figures, Tables, redraws
from runner.stats import Statistic
from runner.stats.tables import chosen, groups

NAME = "exp4_diamond"
NUMBER = re.compile(r"printed (\d(?:\.\d+)?e-\d+)")


class DiamondAnalysis(WithAuthors):
    """Readings of `merge`, `distances` and `networks`."""

    experiment: Exp4Diamond
    changes = DIAMOND
    functions = values.FUNCTIONS
    results = Results("exp4", ("branch_depth", "merged", "checkpoint"))
    rounding = ("tensor part of cat+ReLU", "separation")

    def figures(self) -> Figures:
        merge = self.tables["merge"]
        return {
            "fig6_merge_gap": redraws(
                "Fig. 6", draw.merge_gap, merge, printed(NAME), printed_roundings()
            ),
            "figN2_across_branches": redraws("Fig. N.2", draw.cross, self.tables["distances"]),
        }

    def statistics(self) -> list[Statistic]:
        """Fits and tests of R across the branches, of the gap where it is no exact zero, of rho and
        of R at the merge."""
        merge = self.tables["merge"]
        across = values.across(self.tables["distances"])
        curved = merge[merge["tensor"] > 0]
        figure = "figN2_across_branches"
        rows = summary.decay_fits(across, "R", keys=KEYS, figure=figure)
        keys = [*VARIANT, "distance"]
        rows += summary.through_training(across, "R", keys=keys, figure=figure)
        rows += summary.through_training(curved, "gap", keys=VARIANT, figure="fig6_merge_gap")
        rows += summary.through_training(self.tables["networks"], "rho", keys=VARIANT, figure="rho")
        keys = ["branch_depth", "activation", "checkpoint"]
        sides = {"column": "merge", "a": "cat", "b": "sum"}
        return rows + summary.between(merge, "R", keys=keys, figure="R at the merge", **sides)

    def judged(self) -> Tables:
        return values.judged(self.tables, self._without_norm)

    def compared(self) -> Tables:
        return values.compared(self.tables, self.judged())

    def notes(self) -> list[str]:
        return list(across_notes(self.tables, self._without_norm))

    @property
    def _without_norm(self) -> pd.DataFrame | None:
        return self.beside.get(WITHOUT_NORM, {}).get("distances")


def printed_roundings() -> pd.DataFrame:
    """The published ‖T‖ and gap of merges without curvature, which the reference file has as a
    note: column mean."""
    table = printed(NAME)
    values = table["note"].astype(str).str.extract(NUMBER, expand=False)
    return table.assign(mean=values.astype(float)).dropna(subset=["mean"])


def printed_r() -> dict[tuple[Any, ...], float]:
    """(branch depth, merge, activation, checkpoint) -> printed ‖T‖ / printed gap, for merges
    without curvature."""
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in printed_roundings().to_dict("records"):
        key = (int(row["branch_depth"]), row["merge"], row["activation"], row["checkpoint"])
        found.setdefault(key, {})[row["metric"]] = row["mean"]
    ratios = {}
    for key, of_key in found.items():
        if len(of_key) == 2:
            ratios[key] = of_key["frob_tensor_merge"] / of_key["gap_merge"]
    return ratios


def shares(merge: pd.DataFrame) -> dict[tuple[Any, ...], float]:
    """The same keys at init -> our mean ‖H^GN‖ of the pair at d = 2 over the one drawn from the
    print."""
    published = printed_r()
    rows = chosen(first(merge), checkpoint="init")
    found = {}
    for key, part in groups(rows, KEYS):
        if key in published:
            found[key] = float(part["gn"].mean()) / published[key]
    return found


def across_notes(tables: Tables, without_norm: pd.DataFrame | None = None) -> Iterator[str]:
    """What of the printed ratios can be said."""
    own = list(shares(tables["merge"]).values())
    two_blocks = values.kept(tables["distances"], 2)
    is_curved = two_blocks["merge"].eq("cat") & two_blocks["activation"].eq("silu")
    curved = two_blocks["kept"][is_curved]
    flat = two_blocks["kept"][~is_curved]
    if not (own and len(flat) and len(curved)):
        return
    yield (
        f"H4.2a: R(d+2)/R(d) at init is {flat.min():.2f} to {flat.max():.2f}, and "
        f"{curved.min():.2f} to {curved.max():.2f} for cat+SiLU; printed 0.28 to 0.39. The "
        "measured block is the paper's: printed ‖T‖ over printed gap is the authors' R(2) where "
        f"the merge is flat, and ours is {min(own):.2f} to {max(own):.2f} times that in "
        f"{len(own)} cases. As published the sentence does not hold."
    )
    if without_norm is None:
        return
    steps = values.kept(without_norm, 1)["kept"]
    if len(steps):
        yield (
            "Networks without LayerNorm give the printed range across one block: R(d+1)/R(d) at "
            f"init is {steps.min():.3f} to {steps.max():.3f} over all {len(steps)} distances and "
            "configurations, cat+SiLU included, on the published seeds and images. Section 5.4 "
            "supports this explanation: its remark that LayerNorm makes ρ_max > 1 speaks of "
            "another network than the decay does. It was found after about 110 other readings of "
            "the ratio."
        )
