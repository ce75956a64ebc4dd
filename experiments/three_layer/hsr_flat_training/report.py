"""Who ends flatter, who more accurate: claims, paired tests and findings of the contest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial

from matplotlib.figure import Figure

from experiments.printed import statements
from experiments.three_layer.hsr_flat_training import figures
from experiments.three_layer.hsr_flat_training.comparison import (
    MAIN,
    WORDS,
    Comparison,
    Entry,
    Ratio,
    words,
)
from experiments.three_layer.hsr_flat_training.settings import (
    BASELINES,
    ENTRIES,
    HSR,
    NAMES,
    FlatContest,
)
from runner import stats
from runner.contract import Analysis, Claim
from runner.stats import Statistic, judge
from runner.stats.intervals import Sample

WHERE = "extension of Section VII"
MATCHED = "matched training loss"
TESTED = {"lambda_max": "log λ₁", "lambda_sup": "log λ_sup", "test_accuracy": "test accuracy"}


class ContestAnalysis(Analysis):
    """Every comparison is paired by seed: the same data, network and order of examples."""

    experiment: FlatContest

    @cached_property
    def compared(self) -> Comparison:
        chosen = {m: self.experiment.chosen[m] for m in self.experiment.method}
        return Comparison(self.tables, chosen, self.data)

    @property
    def data(self) -> str:
        """The data set in words."""
        kind = self.experiment.dataset.kind
        return {"digits": "digits", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}.get(kind, kind)

    @cached_property
    def entries(self) -> list[Entry]:
        """Entries for which HSR and a baseline are stored."""
        there = {entry: set(self.compared.methods(entry)) for entry in ENTRIES}
        return [
            entry for entry, found in there.items() if found & set(HSR) and found & set(BASELINES)
        ]

    def _against(self, entry: Entry, own: str) -> list[str]:
        """Baselines that `own` meets in this entry."""
        found = self.compared.methods(entry)
        return [m for m in BASELINES if m in found] if own in found else []

    # -- claims ------------------------------------------------------------------------------------------------------

    def claims(self) -> list[Claim]:
        says, found = statements("hsr_flat_training"), []
        for own in HSR:
            flatter, accurate = self._flatter(own), self._accurate(own)
            if flatter:
                found.append(judge.together(flatter, words(MAIN)))
            if accurate:
                found.append(judge.together(accurate, words(MAIN)))
            if own != "hsr" and {own, "hsr"} <= set(self.compared.methods(MAIN)):
                helps = self.compared.differences(MAIN, own, "hsr", "lambda_max")
                found.append(judge.bound(says[f"sparing helps: {own}"], helps))
        return found

    def _flatter(self, own: str) -> dict[str, Claim]:
        """Entry -> claim that λ₁ is below that of every baseline."""
        says, pairs = statements("hsr_flat_training")[f"flatter: {own}"], self.compared
        found = {}
        for entry in self.entries:
            parts = {
                NAMES[b]: pairs.differences(entry, own, b, "lambda_max")
                for b in self._against(entry, own)
            }
            if parts:
                found[words(entry)] = judge.bound(says, parts)
        parts = {NAMES[b]: pairs.matched(MAIN, own, b) for b in self._against(MAIN, own)}
        if parts:
            found[MATCHED] = judge.bound(says, parts)
        return found

    def _accurate(self, own: str) -> dict[str, Claim]:
        """Entry -> claim that test accuracy is not below that of any baseline."""
        says = replace(
            statements("hsr_flat_training")[f"accurate: {own}"],
            low=-self.experiment.accuracy_margin,
        )
        found = {}
        for entry in self.entries:
            against = self._against(entry, own)
            parts = {
                NAMES[b]: self.compared.differences(entry, own, b, "test_accuracy") for b in against
            }
            if parts:
                found[words(entry)] = judge.bound(says, parts)
        return found

    # -- tests -------------------------------------------------------------------------------------------------------

    def statistics(self) -> list[Statistic]:
        """Wilcoxon tests paired by seed; a family is all comparisons of one quantity in one entry."""
        found = []
        for entry in self.entries:
            for quantity, label in TESTED.items():
                family = f"{label}, {words(entry)}"
                for a, b in self._pairs(entry):
                    values = self.compared.differences(entry, a, b, quantity)
                    found.append(self._test(family, a, b, values))
        found += [
            self._test(f"log λ₁, {MATCHED}", own, b, self.compared.matched(MAIN, own, b))
            for own in HSR
            for b in self._against(MAIN, own)
        ]
        return found

    def _pairs(self, entry: Entry) -> Iterable[tuple[str, str]]:
        """Each way of HSR against each baseline, and each way that spares products against HSR at every step."""
        for own in HSR:
            yield from ((own, b) for b in self._against(entry, own))
            if own != "hsr" and {own, "hsr"} <= set(self.compared.methods(entry)):
                yield own, "hsr"

    @staticmethod
    def _test(family: str, a: str, b: str, values: list[float]) -> Statistic:
        name = f"{family}: {a} - {b}"
        return stats.wilcoxon(
            values, None, name=name, figure=family, where=WHERE, label_a=a, label_b=b
        )

    # -- words and figures ---------------------------------------------------------------------------------------------

    def notes(self) -> list[str]:
        return [*self._lost(), "Loss, accuracy, λ₁, λ_sup and price of every method: methods.md."]

    def _lost(self) -> list[str]:
        """Trainings that failed: they stay in every comparison as far as they have numbers."""
        ends = self.tables["ends"]
        chance = math.log(self.experiment.dataset.classes)
        failed = ends[(ends["status"] != "ok") | (ends["train_loss"] >= chance)]
        return [
            f"{NAMES[method]}, settings {number}, {WORDS[budget]}: at {len(rows)} of {ends['seed'].nunique()} seeds it "
            "diverged, ended no better than chance, or λ₁ did not converge."
            for (method, budget, number), rows in failed.groupby(["method", "budget", "trial"])
        ]

    def documents(self) -> Mapping[str, str]:
        """methods.md: a table of every entry, one row per method."""
        lines = [
            "Means over the seeds: λ₁ and λ_sup geometric, test accuracy arithmetic with its standard deviation; "
            "training loss and price are medians, gradients as the experiment counts them.",
        ]
        head = "| method | settings | λ₁ | λ_sup | test accuracy (%) | training loss | gradients | processor time (s) |"
        for entry in self.entries:
            lines += ["", f"## {words(entry).capitalize()}", "", head, "|---" * 8 + "|"]
            measured = [
                m for m in self.compared.methods(entry) if len(self.compared.ends(entry, m))
            ]
            lines += [self._row(entry, method) for method in measured]
        return {"methods.md": "\n".join(lines) + "\n"}

    def _row(self, entry: Entry, method: str) -> str:
        rows = self.compared.ends(entry, method)
        first = rows.iloc[0]
        knobs = [f"{k} {first[k]:g}" for k in ("rate", "radius", "weight", "probes") if first[k]]
        knobs += [f"every {first['interval']:g} steps"] * bool(first["interval"] > 1)
        largest, bound = (
            Ratio.of(list(self.compared.values(entry, method, name))).value
            for name in ("lambda_max", "lambda_sup")
        )
        accuracy = Sample.of(100 * rows["test_accuracy"])
        return (
            f"| {NAMES[method]} | {', '.join(knobs)} | {largest:.3g} | {bound:.3g} | {accuracy.mean:.2f} ± "
            f"{accuracy.std:.2f} | {rows['train_loss'].median():.2g} | {rows['gradients'].median():.0f} | "
            f"{rows['cpu_seconds'].median():.2g} |"
        )

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        return (
            {"ratios": partial(figures.ratios, self.compared, self.entries)} if self.entries else {}
        )
