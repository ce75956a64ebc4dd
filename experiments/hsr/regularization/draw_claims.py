"""The statements of Fig. 14, decided by further draws of the data: one value a draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from experiments.hsr.regularization.analysis import NAMES, Tables
from experiments.ws_bound.draws import over_draws
from runner.contract import Claim, Statement
from runner.stats import judge

if TYPE_CHECKING:
    from experiments.hsr.regularization.settings import HsrRegularization

MAIN = "fitted"
SEED_BY_SEED = "fitted seed by seed"


def decided_by_draws(
    experiment: HsrRegularization, tables: Tables, says: Mapping[str, Statement], found: list[tuple[str, Claim]]
) -> list[tuple[str, Claim]]:
    """The claims with those of Fig. 14 from the draws in the place of the fitted protocol's five data sets."""
    if "draws" not in tables:
        return found
    drawn = _claims(experiment, tables, says)
    names = {claim.name for _, claim in drawn}
    kept = [(SEED_BY_SEED if m == MAIN and c.name in names else m, c) for m, c in found]
    return kept + drawn


def _claims(experiment: HsrRegularization, tables: Tables, says: Mapping[str, Statement]) -> list[tuple[str, Claim]]:
    """(variant, claim): A-SAM at the wide radius is a mark beside the printed one."""
    margin, table = experiment.f1_margin, tables["draws"]

    def gains(a: str, b: str, group: str) -> list[float]:
        rows = table[(table["a"] == a) & (table["b"] == b) & (table["group"] == group)]
        return [float(v) for v in rows["f1"].dropna()]

    def larger(name: str, a: str, b: str) -> Claim:
        unit = f"mean macro F1 of {NAMES[a]} less that of {NAMES[b]}, sharp seeds"
        return over_draws(says[name], gains(a, b, "sharp"), unit)

    def limited(name: str, a: str, b: str, group: str, high: float = float("inf")) -> Claim:
        within = replace(says[name], low=-margin, high=high)
        return judge.bound(within, gains(a, b, group), over="draws of the data")

    found = []
    for method in ("trace", "asam", "asam_wide", "hsr"):
        mark, plain = _named(method)
        found.append((mark, larger(f"{NAMES[plain]} raises F1 from sharp seeds", method, "gd")))
        if method != "trace":
            found.append((mark, larger(f"{NAMES[plain]} raises F1 more than trace regularisation", method, "trace")))
        if plain == "asam":
            found.append((mark, limited("HSR comparable to A-SAM on F1", "hsr", method, "sharp", margin)))
            found.append((mark, limited("HSR not worse than A-SAM on F1", "hsr", method, "sharp")))
    found.append((MAIN, limited("HSR does no harm to F1 from flat seeds", "hsr", "gd", "flat")))
    return found


def _named(method: str) -> tuple[str, str]:
    """(mark, method of the paper)."""
    wide = method == "asam_wide"
    return (f"{MAIN} draws with wide radius" if wide else MAIN), ("asam" if wide else method)
