"""Who ends flatter, who more accurate: paired tests, statements and the table of the contest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from itertools import product

from experiments.printed import statements
from experiments.three_layer.hsr_flat_training import figures
from experiments.three_layer.hsr_flat_training.comparison import (
    CONTEST,
    WORDS,
    Comparison,
    Entry,
    Ratio,
    words,
)
from experiments.three_layer.hsr_flat_training.settings import BASELINES, NAMES, FlatContest
from runner import stats
from runner.contract import Analysis, Claim, Figures, Statement, Verdict
from runner.report.formatting import markdown_table
from runner.stats import Statistic, judge
from runner.stats.intervals import Sample, joined, lost_text, seeds_for_limit

WHERE = "extension of Section VII"
TESTED = {"lambda_max": "log λ₁", "test_accuracy": "test accuracy"}
BETTER = {"lambda_max": ("flatter", -1), "test_accuracy": ("more accurate", 1)}
"""Quantity -> the statement about it, and the sign of a difference that speaks for HSR."""
Key = tuple[Entry, str, str]
"""Entry, quantity, baseline."""


class ContestAnalysis(Analysis):
    """Every comparison is paired by seed: the same data, network and order of examples."""

    experiment: FlatContest

    @cached_property
    def compared(self) -> Comparison:
        chosen = {method: self.experiment.chosen[method] for method in self.experiment.method}
        return Comparison(self.tables, chosen, self.data)

    @property
    def data(self) -> str:
        """The data set in words."""
        kind = self.experiment.dataset.kind
        names = {"digits": "digits", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
        return names.get(kind, kind)

    @cached_property
    def differences(self) -> dict[Key, list[float]]:
        """HSR less a baseline, by seed, of all that is stored."""
        by_key = {}
        for entry, quantity, baseline in product(CONTEST, TESTED, BASELINES):
            values = self.compared.differences(entry, "hsr", baseline, quantity)
            if values:
                by_key[entry, quantity, baseline] = values
        return by_key

    @cached_property
    def tests(self) -> dict[Key, Statistic]:
        """The Wilcoxon tests after Holm's correction."""
        corrected = stats.correct(self.statistics())
        return dict(zip(self.differences, corrected, strict=True))

    def statistics(self) -> list[Statistic]:
        """Wilcoxon tests paired by seed; a family is one quantity in one entry, five baselines.

        With ten seeds the smallest p is 2/1024, so that five tests can reach the level after Holm.
        """
        made = []
        for (entry, quantity, baseline), values in self.differences.items():
            family = f"{TESTED[quantity]}, {words(entry)}"
            about = {"name": f"{family}: hsr - {baseline}", "figure": family, "where": WHERE}
            made.append(stats.wilcoxon(values, None, label_a="hsr", label_b=baseline, **about))
        return made

    def claims(self) -> list[Claim]:
        printed = statements("hsr_flat_training")
        made: list[Claim] = []
        for (quantity, (word, sign)), baseline in product(BETTER.items(), BASELINES):
            made += self._claim(printed[f"{word}: {baseline}"], quantity, baseline, sign)
        return made

    def _claim(
        self, statement: Statement, quantity: str, baseline: str, sign: int
    ) -> Iterator[Claim]:
        """Whether HSR is better than a baseline in every entry; nothing where nothing is stored."""
        level = self.experiment.level
        verdicts: dict[str, Verdict] = {}
        shifts = []
        needed = []
        lost = total = 0
        for (entry, tested, other), test in self.tests.items():
            if (tested, other) != (quantity, baseline):
                continue
            shifts.append(test.shift)
            lost += test.lost
            total += test.n_a + test.lost
            if test.p_holm < level and not test.lost:
                verdicts[words(entry)] = "confirmed" if sign * test.shift > 0 else "refuted"
                continue
            verdicts[words(entry)] = "inconclusive"
            if not test.lost:
                sample = Sample.of(self.differences[entry, tested, other])
                needed.append(seeds_for_limit(sample, 0.0, 1 - level / len(BASELINES)))
        if not verdicts:
            return
        verdict = judge.overall(list(verdicts.values()))
        seeds_needed = math.nan
        if verdict == "inconclusive":
            seeds_needed = max((n for n in needed if not math.isnan(n)), default=math.inf)
        detail = joined(
            lost_text(lost, total, "differences"),
            f"shifts {min(shifts):.3g} to {max(shifts):.3g} in {len(shifts)} entries",
        )
        made = judge.claim(
            replace(statement, reason=f"paired Wilcoxon, p < {level:g} after Holm, in every entry"),
            verdict,
            min(shifts, key=lambda shift: sign * shift),
            detail,
            variants=verdicts,
            seeds_needed=seeds_needed,
        )
        missing = [words(entry) for entry in CONTEST if words(entry) not in verdicts]
        yield judge.incomplete(made, missing)

    def notes(self) -> list[str]:
        return [
            *self._failed(),
            "Every comparison of the contest: contest.md. Loss, accuracy and price: methods.md.",
        ]

    def _failed(self) -> list[str]:
        """Trainings that failed: they stay in every comparison as far as they have numbers."""
        ends = self.tables["ends"]
        chance = math.log(self.experiment.dataset.classes)
        failed = ends[(ends["status"] != "ok") | (ends["train_loss"] >= chance)]
        lines = []
        for (method, budget, number), rows in failed.groupby(["method", "budget", "trial"]):
            if str(method) in self.experiment.method:
                lines.append(
                    f"{method}, settings {number}, {WORDS[budget]}: at {len(rows)} of "
                    f"{ends['seed'].nunique()} seeds it diverged, ended no better than chance, or "
                    "λ₁ did not converge."
                )
        return lines

    def documents(self) -> Mapping[str, str]:
        """contest.md: HSR against each baseline; methods.md: the methods of each entry."""
        return {"contest.md": self._contest(), "methods.md": self._methods()}

    def _contest(self) -> str:
        text = (
            f"HSR against each baseline on {self.data}, paired by seed: λ₁ of HSR over that of the "
            "baseline (geometric mean, 95 % interval), and test accuracy of HSR less that of the "
            f"baseline in points. *: p < {self.experiment.level:g} after Holm, paired Wilcoxon.\n"
        )
        columns = ["budget", "tuned for", "flatness term", *(NAMES[name] for name in BASELINES)]
        for quantity, title in (("lambda_max", "λ₁ ratio"), ("test_accuracy", "Test accuracy")):
            rows = []
            for entry in CONTEST:
                cells = [self._cell((entry, quantity, baseline)) for baseline in BASELINES]
                rows.append([WORDS[entry.budget], WORDS[entry.rule], entry.schedule, *cells])
            text += "\n" + markdown_table(title, columns, rows)
        return text

    def _cell(self, key: Key) -> str:
        if key not in self.tests:
            return "–"
        values = self.differences[key]
        seeds = sum(math.isfinite(value) for value in values)
        few = f"; {seeds} seeds" * (seeds < len(self.experiment.paper_seeds))
        star = "*" * bool(self.tests[key].p_holm < self.experiment.level)
        if key[1] == "lambda_max":
            ratio = Ratio.of(values)
            return f"{ratio.value:.3g}{star} ({ratio.low:.3g} to {ratio.high:.3g}{few})"
        sample = Sample.of([100 * value for value in values])
        low, high = sample.interval(judge.LEVEL)
        return f"{sample.mean:+.2f}{star} ({low:+.2f} to {high:+.2f}{few})"

    def _methods(self) -> str:
        text = (
            "Means over the seeds: λ₁ and λ_sup geometric, test accuracy arithmetic with its "
            "standard deviation; training loss and price are medians, gradients as the experiment "
            "counts them.\n"
        )
        columns = ["method", "settings", "λ₁", "λ_sup", "test accuracy (%)", "training loss"]
        columns += ["gradients", "processor time (s)"]
        for entry in CONTEST:
            stored = [method for method in NAMES if len(self.compared.ends(entry, method))]
            rows = [self._row(entry, method) for method in stored]
            text += "\n" + markdown_table(words(entry).capitalize(), columns, rows)
        return text

    def _row(self, entry: Entry, method: str) -> list[str]:
        rows = self.compared.ends(entry, method)
        first = rows.iloc[0]
        knobs = []
        for name in ("rate", "radius", "weight", "probes"):
            if first[name]:
                knobs.append(f"{name} {first[name]:g}")
        means = []
        for name in ("lambda_max", "lambda_sup"):
            mean = Ratio.of(list(self.compared.values(entry, method, name)))
            means.append(f"{mean.value:.3g}")
        accuracy = Sample.of(100 * rows["test_accuracy"])
        median = rows[["train_loss", "gradients", "cpu_seconds"]].median()
        return [
            NAMES[method],
            ", ".join(knobs),
            *means,
            f"{accuracy.mean:.2f} ± {accuracy.std:.2f}",
            f"{median['train_loss']:.2g}",
            f"{median['gradients']:.0f}",
            f"{median['cpu_seconds']:.2g}",
        ]

    def figures(self) -> Figures:
        if not self.differences:
            return {}
        return {"contest": partial(figures.contest, self.differences, self.data)}
