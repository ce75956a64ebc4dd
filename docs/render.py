"""Write README's main results and docs/reproduction/ from their templates and the published
results: `make readme`.

Templates are Jinja, in docs/templates/: docs/reproduction/<name>.md is made from
reproduction/<name>.md.j2, and what README.md has between its two marks from results.md.j2. A number
there is a call of one of `FUNCTIONS`:

    The rate of method A is {{ number("ws_bound", "rate", method="a") }} at init.

A test compares the files with their rendering, so that text and results cannot drift apart.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from scipy.stats import wilcoxon

from runner import results
from runner.report.citation import bibtex
from runner.report.manifest import read_manifest
from runner.report.papers import known_papers
from runner.report.summary import mean_of
from runner.store.archive import published_cells
from runner.store.tables import read_json

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "outputs" / "published"
TEMPLATES = ROOT / "docs" / "templates"
FIRST, LAST = "<!-- results: made by `make readme` -->\n", "<!-- end of results -->"
"""Marks of README.md, around what its template makes."""
DAG = (
    *("exp1_resonance", "exp1_deep", "exp1b_spectral_norm", "exp2_bottleneck", "exp3_gn_gap"),
    *("exp3_stochastic", "exp3b_layernorm", "exp4_diamond", "exp5_attention", "exp6_resnet18"),
)
HSR, ATTENTION = ("hsr_gradient", "hsr_regularization"), ("attention_hessian", "attention_newton")
EXPERIMENTS = (*DAG, *HSR, *ATTENTION, "ws_bound", "scalar_spectrum")
"""Of the five papers; without the audit."""
HSR_BEYOND = ("hsr_stochastic", "hsr_flat_training", "hsr_flat_cifar10")
"""Larger networks than the paper's."""
CONTESTS = {"digits": "hsr_flat_training", "CIFAR-10": "hsr_flat_cifar10"}
NAMES = {
    "sgd": "SGD",
    "sam": "SAM",
    "asam": "A-SAM",
    "asam_all": "A-SAM with scaled biases",
    "trace": "the Hessian trace",
}
BASELINES = tuple(NAMES)
SEEDS_OF_CONTEST = 10
ENTRY = re.compile(r"log λ₁, (equal \w+) tuned for (\w+) (throughout|first half): hsr - (\w+)")
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
COUNTED = (
    *("exact match", "reproduced", "not reproduced", "inconclusive"),
    *("confirmed", "refuted", "minor error"),
)


def main() -> None:
    """Rewrite every file; prints the names of those that have changed."""
    changed = []
    for path, text in pages().items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed.append(str(path.relative_to(ROOT)))
    print("\n".join(changed) or "all numbers agree with the published results")


def pages() -> dict[Path, str]:
    """Path -> text of every file that has a template."""
    found = {}
    for template in sorted(TEMPLATES.rglob("[!_]*.md.j2")):
        name = template.relative_to(TEMPLATES).as_posix()
        text = environment().get_template(name).render()
        path = ROOT / "docs" / name.removesuffix(".j2")
        if name == "results.md.j2":
            path = ROOT / "README.md"
            before, _, rest = path.read_text(encoding="utf-8").partition(FIRST)
            text = before + FIRST + text + LAST + rest.partition(LAST)[2]
        found[path] = text
    return found


@cache
def environment() -> Environment:
    """Jinja with the functions of this module; an unknown name is an error."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        finalize=shown,
        autoescape=False,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    made.globals |= {function.__name__: function for function in FUNCTIONS}
    made.globals |= {"DAG": DAG, "HSR": HSR, "HSR_BEYOND": HSR_BEYOND, "ATTENTION": ATTENTION}
    made.globals["EXPERIMENTS"] = EXPERIMENTS
    made.filters |= {"exp": math.exp, "fmt": fmt, "positive": abs}
    return made


def shown(value: Any) -> Any:
    """A number with three digits; anything else as it is."""
    return fmt(value) if isinstance(value, int | float) else value


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


# ------------------------------------------------------------------ scorecards and claims


def number(experiment: str, metric: str, column: str = "measured_mean", **where: Any) -> float:
    """A column of one row of the scorecard."""
    return float(_row(_csv(experiment, "scorecard"), {"metric": metric, **where})[column])


def statement(experiment: str, name: str, column: str = "statistic") -> float:
    """A column of one statement: by default the measured value."""
    return float(_row(_csv(experiment, "claims"), {"name": name})[column])


def verdict(experiment: str, name: str) -> str:
    """The verdict on one statement."""
    return str(_row(_csv(experiment, "claims"), {"name": name})["verdict"])


def numbers(*experiments: str, verdict: str = "") -> int:
    """How many published numbers of these experiments have the verdict; all that count, without
    one."""
    return _total("scorecard", experiments, verdict)


def agreeing(*experiments: str) -> int:
    """How many published numbers match exactly or are reproduced."""
    return numbers(*experiments, verdict="exact match") + numbers(
        *experiments, verdict="reproduced"
    )


def statements(*experiments: str, verdict: str = "") -> int:
    """How many statements of the papers, not extensions, have the verdict."""
    extensions = _total("extensions", experiments, verdict)
    return _total("claims", experiments, verdict) - extensions


def ways(*experiments: str) -> dict[str, dict[str, int]]:
    """Way to a number (scorecard column `way`) -> verdict -> how many; ways without a counted
    number are left out."""
    found: dict[str, dict[str, int]] = {}
    for name in experiments or _published():
        scores = _csv(name, "scorecard")
        if "way" not in scores:
            continue
        for way, part in scores[scores["verdict"].isin(COUNTED)].groupby("way"):
            counts = found.setdefault(str(way), dict.fromkeys(COUNTED[:4], 0))
            for verdict, count in part["verdict"].value_counts().items():
                counts[str(verdict)] += int(count)
    return found


def _total(key: str, experiments: tuple[str, ...], verdict: str) -> int:
    total = 0
    for name in experiments or _published():
        counts = _manifest(name).get(key, {})
        wanted = (verdict,) if verdict else COUNTED
        total += sum(int(counts.get(word, 0)) for word in wanted)
    return total


# ------------------------------------------------------------------ errata and costs


def clauses(paper: str = "", verdict: str = "") -> int:
    """How many counted clauses of a paper (its short title), or of all, have the verdict; all of
    them, without one."""
    claims = _csv("paper_audit", "claims")
    claims = claims[claims["group"].isin([paper] if paper else known_papers())]
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
        for cell in _manifest(name)["cells"] if archive else ():
            stored = archive.usable(cell["id"])
            if stored is not None:
                found.add(str(stored.meta["software"]["cpu"]).removesuffix(" Processor"))
    return ", ".join(sorted(found)).replace("(R)", "")


# ------------------------------------------------------------------ tables


def column(experiment: str, table: str, name: str, **where: Any) -> list[Any]:
    """A column of a merged table over the rows that agree with `where`."""
    return list(_select(_table(experiment, table), where)[name])


def count(experiment: str, table: str, **where: Any) -> int:
    """How many rows of a merged table agree with `where`."""
    return len(_select(_table(experiment, table), where))


def mean(experiment: str, table: str, name: str, **where: Any) -> float:
    """The mean of a column of a merged table over the rows that agree with `where`."""
    return mean_of(_table(experiment, table), name, where)


def shifts(experiment: str, name: str, group: str) -> list[float]:
    """Shifts of a test in `stats.csv`, one for each seed, of the groups that contain `group`."""
    table = _csv(experiment, "stats")
    chosen = table["group"].str.contains(f"{group}.* seed=", regex=True)
    return [float(value) for value in table[(table["name"] == name) & chosen]["shift"]]


def medians(experiment: str, table: str, name: str, by: list[str], **where: Any) -> list[float]:
    """Medians over seeds of a column, one for each group of rows that agree in the columns `by`."""
    rows = _select(_table(experiment, table), where)
    return [float(value) for value in rows.groupby(by)[name].median()]


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


def decay(activation: str, arch: str, checkpoint: str = "init", **where: Any) -> float:
    """R(0) / R(4) of Experiment 6 as the paper has it: means over the seeds, then their ratio."""
    keys = {"estimator": "published", "statistics": "running", "activation": activation}
    keys |= {"arch": arch, "checkpoint": checkpoint, **where}
    distances = _table("exp6_resnet18", "distances")
    near, far = (mean_of(distances, "R", {**keys, "distance": d}) for d in (0, 4))
    return near / far


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
        return mean_of(distances, "R", keys) / mean_of(distances, "R", {**keys, "distance": 4})
    if quantity == "gap":
        return mean_of(distances, "tensor", keys, "gn")
    return mean_of(distances, quantity, keys)


def contest() -> str:
    """The table of the HSR contest: one row for each data set, budget, tuning and schedule.

    Cells: λ₁ of HSR over that of a baseline / test accuracy of HSR less that of the baseline in
    points, Hodges-Lehmann shifts of the paired tests; * for p < 0.01 after Holm.
    """
    lines = []
    for data, experiment in CONTESTS.items():
        tests = _csv(experiment, "stats").set_index("name")
        rows: dict[tuple[str, ...], dict[str, str]] = {}
        for name in tests.index:
            found = ENTRY.fullmatch(name)
            if found:
                *entry, baseline = found.groups()
                sharper = tests.loc[name]
                better = tests.loc[name.replace("log λ₁", "test accuracy")]
                cell = f"{fmt(math.exp(sharper['shift']))}{_star(sharper)} / "
                cell += f"{100 * better['shift']:+.2f}{_star(better)}".replace("-", "−")
                if sharper["n_a"] < SEEDS_OF_CONTEST:
                    cell += f" ({sharper['n_a']:g} seeds)"
                rows.setdefault(tuple(entry), {})[baseline] = cell
        for entry, cells in rows.items():
            listed = [cells.get(baseline, "–") for baseline in BASELINES]
            lines.append("| " + " | ".join((data, *entry, *listed)) + " |")
    head = ("data", "budget", "tuned for", "flatness term", *NAMES.values())
    return "\n".join(["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *lines])


def _contest_cells(word: str, verdict: str) -> dict[str, int]:
    """Baseline -> how many cells of both contests have the verdict on "HSR is `word` than it"."""
    counts = dict.fromkeys(BASELINES, 0)
    for experiment in CONTESTS.values():
        claims = _csv(experiment, "claims").set_index("name")["variants"]
        for baseline in BASELINES:
            cells = json.loads(claims[f"{word}: {baseline}"])
            counts[baseline] += list(cells.values()).count(verdict)
    return counts


def everywhere(word: str, verdict: str) -> str:
    """The baselines for which every cell of both contests has the verdict."""
    cells = 8 * len(CONTESTS)
    counts = _contest_cells(word, verdict)
    names = [NAMES[baseline] for baseline, count in counts.items() if count == cells]
    return " and ".join(names) or "none"


def depends() -> str:
    """How many cells speak for and against HSR, for each baseline."""
    flatter, sharper = (_contest_cells("flatter", v) for v in ("confirmed", "refuted"))
    more, less = (_contest_cells("more accurate", v) for v in ("confirmed", "refuted"))
    return "; ".join(
        f"{NAMES[b]} {flatter[b]} / {sharper[b]}, {more[b]} / {less[b]}" for b in BASELINES
    )


def _star(test: pd.Series) -> str:
    return "\\*" * bool(test["p_holm"] < 0.01)


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
def _csv(experiment: str, name: str) -> pd.DataFrame:
    return pd.read_csv(PUBLISHED / experiment / f"{name}.csv")


@cache
def _table(experiment: str, name: str) -> pd.DataFrame:
    return results.load(experiment)[name]


def _select(table: pd.DataFrame, where: dict[str, Any]) -> pd.DataFrame:
    for name, value in where.items():
        table = table[table[name].isin(value) if isinstance(value, list) else table[name] == value]
    return table


def _row(table: pd.DataFrame, where: dict[str, Any]) -> pd.Series:
    rows = _select(table, where)
    if len(rows) != 1:
        raise LookupError(f"expected one row with {where}, found {len(rows)}")
    return rows.iloc[0]


FUNCTIONS: tuple[Callable[..., Any], ...] = (
    *(number, statement, verdict, numbers, agreeing, statements, ways, clauses, root_causes),
    *(hours, processors, column, count, mean, medians, shifts, fastest, paired_p),
    *(decay, resnet, contest, everywhere, depends, citations),
)

if __name__ == "__main__":
    main()
