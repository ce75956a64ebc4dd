"""Statements of the paper held to the authors' own published results
(experiments/reference/unrounded/results.csv).

Those are means over the paper's seeds, so that a statement about them is true or false: nothing is
estimated. The code that judges our networks reads them as tables of three equal seeds, whose
intervals have no width, and a printed number has to agree in its digits or to `ABOUT`. What they do
not contain stays blank.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd

from experiments.judged import JudgedAnalysis
from runner.contract import Claim, Statement, Tables
from runner.report.answers.reference import REFERENCE
from runner.stats import judge
from runner.stats.intervals import FEWEST_SEEDS
from runner.stats.numbers import unrounded

Rows = list[dict[str, Any]]
SEEDS = range(FEWEST_SEEDS)
ABOUT = 0.05
"""Share of a printed number: text says "about 2.6" of 2.59 to 2.69 at three depths."""
DECIDED = ("confirmed", "refuted", "minor error", "not comparable")
COLUMNS = {
    "rho/rho_max": "rho",
    "lyapunov/lyapunov_max": "lyapunov_1",
    "sigma_pp_sq": "sigma_pp_squared",
    "gap_global": "gap",
    "frob_full": "full",
    "frob_gn": "gn",
    "frob_tensor": "tensor",
    **{f"{name}_far": name for name in "RCD"},
    **{f"merge_gn_gap/frob_{name}": name for name in ("gn", "tensor")},
    "merge_gn_gap/gap": "gap",
}
"""Quantity of the results -> column of our tables; others have the same name."""
DISTANCE = re.compile(
    r"(?:(?P<relation>within_A|within_B|cross_AB)|(?:gn_gap_)?distances)"
    r"/(?P<distance>\d+)/(?P<of>\w+)"
)
RELATIONS = {"within_A": "a", "within_B": "b", "cross_AB": "cross"}
RENAMED = {
    "exp1b": {"arch": {"plain": "plain_sn"}},
    "exp5": {"network": {"relu_mlp": "flat_mlp"}},
}
"""File -> key -> the authors' word -> ours."""


@dataclass(frozen=True)
class Results:
    """Means of one file. file: its name; keys: what the first parts of a place are."""

    file: str
    keys: tuple[str, ...]

    def places(self) -> Iterator[tuple[dict[str, Any], str, float]]:
        """(keys, quantity, mean) of every place."""
        results = unrounded(REFERENCE / "unrounded" / "results.csv")
        for place, (mean, _) in results.items():
            file, _, path = place.partition(":")
            if file == self.file:
                *given, rest = path.split("/", len(self.keys))
                keys = dict(zip(self.keys, map(self._key, self.keys, given), strict=True))
                yield keys, rest, mean

    def _key(self, name: str, text: str) -> Any:
        if text.isdigit():
            return int(text)
        return RENAMED.get(self.file, {}).get(name, {}).get(text, text)

    def rows(self, *, by_distance: bool) -> Rows:
        """One row for each combination of the keys, with the distance or without."""
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for keys, rest, mean in self.places():
            match = DISTANCE.fullmatch(rest)
            if (match is not None) != by_distance:
                continue
            about = dict(keys)
            name = rest
            if match is not None:
                about["distance"] = int(match["distance"])
                name = match["of"]
                about["relation"] = RELATIONS.get(match["relation"] or "", "")
            row = found.setdefault(tuple(about.values()), about)
            row[COLUMNS.get(name, name)] = mean
        return list(found.values())


def likened(own: pd.DataFrame, rows: Rows, **columns: Any) -> pd.DataFrame:
    """Rows as a table with the columns of one of ours, once for each of `SEEDS`."""
    table = pd.DataFrame(rows).assign(images=0, **columns)
    if "test_acc_percent" in table:
        table["test_accuracy"] = table["test_acc_percent"] / 100
    kinds = {"merge", "activation"} & set(own.columns)
    if kinds and "merged" in table:
        table[["merge", "activation"]] = table["merged"].str.split("_", expand=True)
    table = pd.concat([table.assign(seed=seed) for seed in SEEDS], ignore_index=True)
    return table.reindex(columns=own.columns)


def tables(own: Tables, results: Results) -> dict[str, pd.DataFrame]:
    """The authors' results as tables like ours; a table that they have nothing for is empty."""
    networks, distances = (results.rows(by_distance=by) for by in (False, True))
    found = {name: table.iloc[:0] for name, table in own.items() if name != "origin"}
    for name in ("networks", "merge"):
        if name in own:
            found[name] = likened(own[name], networks)
    for name in ("distances", "estimates"):
        if name in own and distances:
            found[name] = likened(own[name], distances)
    if "far" in own:
        estimates = pd.DataFrame(networks)
        for name in "RCD":
            estimates[f"{name}_estimate"] = estimates[name]
        found["far"] = likened(own["far"], estimates.to_dict("records"))
    if "blocks" in own:
        under = {"protocol": "recovered"}
        found["blocks"] = likened(own["blocks"], networks, **under)
        found["networks"] = likened(own["networks"], networks, **under)
    if "estimator" in own.get("distances", ()):
        gaps = [r | {"tensor": r.get("gap"), "gn": 1.0, "statistics": "running"} for r in distances]
        both = [r | {"estimator": e} for e in ("engine", "published") for r in gaps]
        found["distances"] = likened(own["distances"], both)
    elif "pairs" in own and any("gap" in row for row in networks):
        found["gaps"] = likened(found["distances"].assign(gap=0.0), networks)
    return found


def by_value(says: Statement) -> Statement:
    """The statement with printed numbers compared to their digits or `ABOUT`, where no margin is
    stated."""
    return replace(says, margin=about(says), std=0.0, readings=tuple(map(by_value, says.readings)))


def about(says: Statement) -> float:
    """How far the authors' own value may lie from the number that their text gives."""
    if math.isnan(says.margin):
        return max(says.rounding, ABOUT * abs(says.number))
    return says.margin


class WithAuthors(JudgedAnalysis):
    """An analysis whose claims get a second verdict: on the authors' own networks.

    A subclass gives `results`.
    """

    results: ClassVar[Results]
    rounding: ClassVar[tuple[str, ...]] = ()
    """Statements on an exact zero, of which their float32 has the rounding."""

    def claims(self) -> list[Claim]:
        """The claims with the verdicts on the authors' networks, where their results decide."""
        theirs = self.of_authors()
        made = []
        for claim in super().claims():
            if claim.name in theirs:
                other = theirs[claim.name]
                claim = replace(claim, authors=other.verdict, authors_value=other.statistic)
            made.append(claim)
        return made

    def of_authors(self) -> dict[str, Claim]:
        """What the authors' results decide; of our tables the names of columns count alone."""
        theirs = replace(self, tables=tables(self.tables, self.results), beside={})
        decided = {}
        for claim in judge(map(by_value, self.says.values()), theirs.judged(), self.functions):
            if claim.verdict in DECIDED and claim.name not in self.rounding:
                decided[claim.name] = claim
        return decided
