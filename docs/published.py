"""Numbers of the published results, as the templates of `docs.render` ask for them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import spearmanr, wilcoxon

from runner import results
from runner.report.answers.papers import bibtex, known_papers
from runner.report.answers.summary import Answers, mean_of
from runner.report.answers.tones import COUNTED
from runner.report.output.manifest import read_manifest
from runner.stats.numbers import WAYS
from runner.stats.score import has_one_digit
from runner.store.archive import published_cells
from runner.store.tables import read_json

PUBLISHED = Path(__file__).resolve().parents[1] / "outputs" / "published"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def fmt(value: float, digits: int = 3) -> str:
    """The number with at most `digits` significant digits.

    >>> fmt(-0.0012345), fmt(44694), fmt(3.8e-12)
    ('−0.00123', '44,700', '3.8·10⁻¹²')
    """
    text = f"{value:.{digits}g}"
    if abs(value) >= 1000:
        return f"{float(text):,.0f}".replace("-", "−")
    mantissa, e, exponent = text.partition("e")
    power = f"·10{str(int(exponent)).translate(SUPERSCRIPTS)}" if e else ""
    return mantissa.replace("-", "−") + power


def number(experiment: str, metric: str, column: str = "measured_mean", **keys: Any) -> float:
    """A column of one row of the scorecard."""
    return float(_answers(experiment).number(metric, column, **keys))


def statement(experiment: str, name: str, column: str = "statistic") -> float:
    """A column of one statement: by default the measured value."""
    return float(_answers(experiment).statement(name, column))


def verdict(experiment: str, name: str) -> str:
    """The verdict on one statement."""
    return str(_answers(experiment).verdict(name))


def number_verdict(experiment: str, metric: str, **keys: Any) -> str:
    """The verdict on one published number."""
    return str(_answers(experiment).number(metric, "verdict", **keys))


def numbers(*experiments: str, verdict: str = "", way: str = "") -> int:
    """How many published numbers of these experiments have the verdict; all that count, without
    one. way: measured in this way alone."""
    keys = {"way": way} if way else {}
    return sum(_answers(name).numbers(verdict, **keys) for name in experiments or _published())


def agreeing(*experiments: str) -> int:
    """How many published numbers match exactly or are reproduced."""
    return sum(numbers(*experiments, verdict=word) for word in ("exact match", "reproduced"))


OF_WAYS = ("protocol", "network", "base_width", "probes", "initial", "power_steps")
"""Keys of a scorecard in which the ways to one printed number may differ."""


def printed(*experiments: str) -> int:
    """How many different published numbers are tested: one that is tested as described and in
    another way has two rows, and counts once."""
    count = 0
    for name in experiments or _published():
        scores = csv_of(name, "scorecard")
        tested = scores[scores["verdict"].isin(COUNTED)]
        keys = list(scores.columns[: scores.columns.get_loc("paper_mean") + 1])
        same = ["source", *(key for key in keys if key not in OF_WAYS)]
        described = tested[tested["way"] == WAYS[0]]
        otherwise = tested[tested["way"] != WAYS[0]]
        twice = described.merge(otherwise[same].drop_duplicates(), on=same)
        count += len(tested) - len(twice)
    return count


def one_digit(*experiments: str) -> int:
    """How many of the exact matches are of numbers that are printed with one significant digit."""
    count = 0
    for name in experiments or _published():
        scores = csv_of(name, "scorecard")
        exact = scores[scores["verdict"] == "exact match"]
        count += sum(map(has_one_digit, exact["paper_mean"], exact["resolution"]))
    return count


def missing_cells(experiment: str, **keys: Any) -> tuple[int, int, int]:
    """(missing, expected, waiting) for the rows of the scorecard with these keys: seeds of their
    cells that are not measured, of how many, and how many rows are inconclusive until they are."""
    scores = _select(csv_of(experiment, "scorecard"), keys)
    varied = scores.columns[: scores.columns.get_loc("paper_mean")]
    cell = [key for key in varied if key not in ("metric", "checkpoint")]
    cells = scores.groupby(cell)[["n_seeds", "n"]].min()
    waiting = (scores["n"] < scores["n_seeds"]) & (scores["verdict"] == "inconclusive")
    expected = int(cells["n_seeds"].sum())
    return expected - int(cells["n"].sum()), expected, int(waiting.sum())


def replication_seeds(experiment: str) -> int:
    """How many seeds the column *replication* has."""
    return len(_manifest(experiment)["seeds"])


def statements(*experiments: str, verdict: str = "") -> int:
    """How many statements of the papers, not extensions, have the verdict."""
    return sum(_answers(name).statements(verdict) for name in experiments or _published())


def ways(*experiments: str) -> dict[str, Counter[str]]:
    """Way to a number (scorecard column `way`) -> verdict -> how many; ways without a counted
    number are left out."""
    found: dict[str, Counter[str]] = {}
    for name in experiments or _published():
        for way, scores in csv_of(name, "scorecard").groupby("way"):
            found.setdefault(way, Counter()).update(scores["verdict"])
    return {way: found[way] for way in WAYS if way in found and _is_counted(found[way])}


def _is_counted(counts: Counter[str]) -> bool:
    return any(counts[verdict] for verdict in COUNTED)


def beyond_seeds() -> int:
    """How many inconclusive published numbers no number of our seeds would decide."""
    count = 0
    for name in _published():
        scores = csv_of(name, "scorecard")
        infinite = scores["seeds_needed"].map(math.isinf)
        count += int((infinite & (scores["verdict"] == "inconclusive")).sum())
    return count


def clauses(paper: str = "", verdict: str = "", kind: str = "") -> int:
    """How many counted clauses of a paper (its short title), or of all, have the verdict; all of
    them, without one. kind: those with a root cause of this class alone."""
    claims = csv_of("paper_audit", "claims")
    claims = claims[claims["group"].isin([paper] if paper else known_papers())]
    if kind:
        claims = claims[claims["detail"].str.contains(rf"class {kind}\b", na=False)]
    return int(claims["verdict"].isin((verdict,) if verdict else COUNTED).sum())


def root_causes(kind: str, *papers: str) -> int:
    """How many root causes of a class (A to E) the errata of these papers (keys of the audit), or
    of all, have."""
    entries = read_json(PUBLISHED / "paper_audit" / "errata.json")
    named = [e for e in entries if e["class"] == kind and e["id"]]
    return sum(not papers or e["paper"] in papers for e in named)


def hours(*experiments: str) -> float:
    """Processor hours of the stored cells."""
    cells = [cell for name in experiments for cell in _manifest(name)["cells"]]
    return sum(float(cell["cpu_seconds"]) for cell in cells) / 3600


def processors(*experiments: str) -> str:
    """The processors on which the cells of the reports were measured."""
    found = set()
    for name in experiments:
        archive = published_cells(name)
        if archive is None:
            continue
        for cell in _manifest(name)["cells"]:
            stored = archive.usable(cell["id"])
            if stored is not None:
                found.add(str(stored.meta["software"]["cpu"]).removesuffix(" Processor"))
    return ", ".join(sorted(found)).replace("(R)", "")


def column(experiment: str, table: str, name: str, **where: Any) -> list[Any]:
    """A column of a merged table over the rows that agree with `where`."""
    return list(_select(_table(experiment, table), where)[name])


def count(experiment: str, table: str, **where: Any) -> int:
    """How many rows of a merged table agree with `where`."""
    return len(_select(_table(experiment, table), where))


def mean(
    experiment: str, table: str, name: str, over: dict[str, Any] | None = None, **where: Any
) -> float:
    """The mean of a column of a merged table over the rows that agree with `where`; over: divided
    by that of the rows with these other keys."""
    return mean_of(_table(experiment, table), name, where, over)


def shifts(experiment: str, name: str, group: str, column: str = "shift") -> list[float]:
    """Shifts, or another column, of a test in `stats.csv`, one for each seed, of the groups that
    contain `group`."""
    table = csv_of(experiment, "stats")
    chosen = table["group"].str.contains(f"{group}.* seed=", regex=True)
    return [float(value) for value in table[(table["name"] == name) & chosen][column]]


def medians(experiment: str, table: str, name: str, by: list[str], **where: Any) -> list[float]:
    """Medians over seeds of a column, one for each group of rows that agree in the columns `by`."""
    rows = _select(_table(experiment, table), where)
    return [float(value) for value in rows.groupby(by)[name].median()]


def quantile_shares(experiment: str, table: str, name: str, by: str, level: float) -> list[float]:
    """A quantile of a column for each value of the column `by`, over that for its smallest value:
    medians over seeds."""
    quantiles = _table(experiment, table).groupby(["seed", by])[name].quantile(level).unstack()
    first, *others = quantiles.columns
    return [float((quantiles[value] / quantiles[first]).median()) for value in others]


def fastest(experiment: str, table: str, name: str, seconds: str, **where: Any) -> list[str]:
    """The values of a column with the smallest median time in some seed, over the rows that agree
    with `where`."""
    rows = _select(_table(experiment, table), where)
    times = rows.groupby(["seed", name])[seconds].median().unstack()
    return sorted(set(times.idxmin(axis=1)))


def paired_p(experiment: str, table: str, first: str, second: str, **where: Any) -> float:
    """p of Wilcoxon's signed-rank test, two-sided, of two columns over the rows that agree with
    `where`."""
    rows = _select(_table(experiment, table), where)
    return float(wilcoxon((rows[first] - rows[second]).dropna()).pvalue)


def rising(
    experiment: str, table: str, first: str, second: str, *, level: float = 0.01, **where: Any
) -> int:
    """How many seeds have a positive rank correlation of two columns, significant at `level`, over
    the rows that agree with `where`."""
    rows = _select(_table(experiment, table), where)
    tests = [spearmanr(part[first], part[second]) for _, part in rows.groupby("seed")]
    return sum(test.statistic > 0 and test.pvalue < level for test in tests)


def decay(activation: str, arch: str, checkpoint: str = "init", **where: Any) -> float:
    """R(0) / R(4) of Experiment 6 as the paper has it: means over the seeds, then their ratio."""
    keys = {"estimator": "published", "statistics": "running", "activation": activation}
    keys |= {"arch": arch, "checkpoint": checkpoint, **where}
    distances = _table("exp6_resnet18", "distances")
    return mean_of(distances, "R", {**keys, "distance": 0}, {"distance": 4})


def resnet(quantity: str, distance: int = 0, **where: Any) -> float:
    """Of trained networks of Experiment 6: R, C, gap, decay R(0)/R(4) (a ratio of means), or
    accuracy in percent; exact values with BatchNorm's running statistics. Means over the seeds
    whose network is trained, also before training."""
    networks = _table("exp6_resnet18", "networks")
    kind = {name: value for name, value in where.items() if name in ("activation", "arch")}
    trained = set(_select(networks, {"checkpoint": "final", **kind})["seed"])
    if quantity == "accuracy":
        return 100 * mean_of(networks, "test_accuracy", {"statistics": "running", **where})
    distances = _table("exp6_resnet18", "distances")
    distances = distances[distances["seed"].isin(trained)]
    keys = {"estimator": "engine", "statistics": "running", "distance": distance, **where}
    if quantity == "decay":
        return mean_of(distances, "R", keys, {"distance": 4})
    if quantity == "gap":
        return mean_of(distances, "tensor", keys, "gn")
    return mean_of(distances, quantity, keys)


def citations() -> str:
    """BibTeX of this software and of the papers."""
    return bibtex(*known_papers())


@cache
def _published() -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in PUBLISHED.glob("*/manifest.json")))


@cache
def _manifest(experiment: str) -> dict[str, Any]:
    return read_manifest(PUBLISHED / experiment) or {}


@cache
def csv_of(experiment: str, name: str) -> pd.DataFrame:
    """A table of verdicts or statistics of a report."""
    return pd.read_csv(PUBLISHED / experiment / f"{name}.csv")


@cache
def _answers(experiment: str) -> Answers:
    return Answers(csv_of(experiment, "claims"), csv_of(experiment, "scorecard"), {})


@cache
def _table(experiment: str, name: str) -> pd.DataFrame:
    return results.load(experiment)[name]


def _select(table: pd.DataFrame, where: dict[str, Any]) -> pd.DataFrame:
    for name, value in where.items():
        table = table[table[name].isin(value) if isinstance(value, list) else table[name] == value]
    return table


FUNCTIONS: tuple[Callable[..., Any], ...] = (
    *(number, statement, verdict, number_verdict, numbers, printed, agreeing, one_digit),
    *(missing_cells, replication_seeds, statements, ways, beyond_seeds),
    *(clauses, root_causes),
    *(
        hours,
        processors,
        column,
        count,
        mean,
        medians,
        shifts,
        quantile_shares,
        fastest,
        paired_p,
        rising,
    ),
    *(decay, resnet, citations, fmt),
)
