"""Write the numbers of README.md and docs/reproduction/ from the published results: `make readme`.

A number in these files is followed by a comment that says where it comes from, without spaces:

    The gap of GELU is 0.358<!--number("exp3_gn_gap","gap_global",activation="gelu",checkpoint="init")--> at init.

`render` evaluates the comment and replaces the word before it. A test compares the files with their rendering, so that
text and results cannot drift apart. An underscore in the name of a statement, or in words to find, stands for a space.
"""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from runner import results
from runner.report.formatting import mean_of
from runner.report.manifest import read_manifest
from runner.report.site import bibtex, known_papers

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "outputs" / "published"
DAG = (
    *("exp1_resonance", "exp1_deep", "exp1b_spectral_norm", "exp2_bottleneck", "exp3_gn_gap"),
    *("exp3_stochastic", "exp3b_layernorm", "exp4_diamond", "exp5_attention", "exp6_resnet18"),
)
HSR, ATTENTION = ("hsr_gradient", "hsr_regularization"), ("attention_hessian", "attention_newton")
FILES = ("README.md", "docs/reproduction/*.md")
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MARKED = re.compile(
    r"(?:[a-z]+(?: [a-z]+)* ?(?=<!--verdict)|[^\s|<>(]*)<!--(?P<call>[\d*]*[a-z]+\([^>]*?\)[^>]*?)-->"
)


BIBTEX = re.compile(r"```bibtex\n.*?```", re.S)
CONTEST = re.compile(r"<!--contest-->\n.*?<!--end of contest-->", re.S)
CONTESTS = {"digits": "hsr_flat_training", "CIFAR-10": "hsr_flat_cifar10"}
BASELINES = ("sgd", "sam", "asam", "asam_all", "trace")
ENTRY = re.compile(r"log λ₁, (equal \w+) tuned for (\w+) (throughout|first half): hsr - (\w+)")


def main() -> None:
    """Rewrite every file; prints the names of those that have changed."""
    changed = []
    for path in (path for pattern in FILES for path in sorted(ROOT.glob(pattern))):
        text = path.read_text(encoding="utf-8")
        if (rendered := render(text)) != text:
            changed.append(str(path.relative_to(ROOT)))
            path.write_text(rendered, encoding="utf-8")
    print("\n".join(changed) or "all numbers agree with the published results")


def render(text: str) -> str:
    """The text with every marked number as the published results have it, and with the entries to cite."""
    text = BIBTEX.sub(lambda match: f"```bibtex\n{bibtex(*known_papers())}\n```", text)
    text = CONTEST.sub(lambda _: f"<!--contest-->\n{contest()}\n<!--end of contest-->", text)
    return MARKED.sub(lambda match: f"{_shown(match['call'])}<!--{match['call']}-->", text)


def _shown(call: str) -> str:
    value = eval(call, {"__builtins__": {}}, dict(FUNCTIONS))  # the project's own text
    return value if isinstance(value, str) else fmt(value)


def fmt(value: float, digits: int = 3) -> str:
    """The number with at most `digits` significant digits."""
    shown = f"{value:.{digits}g}"
    if abs(value) >= 1000:
        return f"{float(shown):,.0f}".replace("-", "−")
    mantissa, e, exponent = shown.partition("e")
    power = f"·10{str(int(exponent)).translate(SUPERSCRIPTS)}" if e else ""
    return mantissa.replace("-", "−") + power


def number(experiment: str, metric: str, column: str = "measured_mean", **where: Any) -> float:
    """A column of one row of the scorecard."""
    return float(_row(_csv(experiment, "scorecard"), {"metric": metric, **where})[column])


def statement(experiment: str, name: str, column: str = "statistic") -> float:
    """A column of one statement: by default the measured value."""
    return float(_row(_claims(experiment), {"key": name})[column])


def verdict(experiment: str, name: str) -> str:
    """The verdict on one statement."""
    return str(_row(_claims(experiment), {"key": name})["verdict"])


def numbers(*experiments: str, verdict: str = "") -> int:
    """How many published numbers of these experiments have the verdict; all that count, without one."""
    return _total("scorecard", experiments, verdict)


def statements(*experiments: str, verdict: str = "") -> int:
    """How many statements of the papers have the verdict."""
    return _total("claims", experiments, verdict) - extensions(*experiments, verdict=verdict)


def extensions(*experiments: str, verdict: str = "") -> int:
    """How many extensions, statements that are not of the papers, have the verdict."""
    return _total("extensions", experiments, verdict)


def agreeing(*experiments: str) -> int:
    """How many published numbers match exactly or are reproduced."""
    return numbers(*experiments, verdict="exact_match") + numbers(
        *experiments, verdict="reproduced"
    )


def detail(experiment: str, name: str, after: str, index: int = 0) -> float:
    """A number in the detail of a statement: the first one after some words, or one of the next."""
    return _number_in(str(_row(_claims(experiment), {"key": name})["detail"]), after, index)


def note(experiment: str, start: str, after: str, index: int = 0) -> float:
    """A number in the one note of an analysis that begins with `start`, as in `detail`."""
    notes = [
        text for text in _manifest(experiment)["notes"] if _words(text).startswith(_words(start))
    ]
    if len(notes) != 1:
        raise LookupError(f"expected one note that begins with {start}, found {len(notes)}")
    return _number_in(notes[0], after, index)


def _words(text: str) -> str:
    return text.replace("_", " ")


def _number_in(text: str, after: str, index: int) -> float:
    _, words, rest = _words(text).partition(_words(after))
    if not words:
        raise LookupError(f"expected the words {after}, found {text}")
    return float(re.findall(r"-?\d+\.?\d*(?:e[+-]?\d+)?", rest.replace(",", ""))[index])


def shifts(experiment: str, name: str, group: str) -> list[float]:
    """Shifts of a test in `stats.csv`, one for each seed, of the groups that contain `group`."""
    table = _csv(experiment, "stats")
    table = table[table["name"].map(_words) == _words(name)]
    found = table[table["group"].str.contains(f"{group}.* seed=", regex=True)]["shift"]
    return [float(value) for value in found]


def mean(experiment: str, table: str, column: str, **where: Any) -> float:
    """The mean of a column of a merged table over the rows that agree with `where`."""
    return mean_of(_table(experiment, table), column, where)


def resnet(quantity: str, distance: int = 0, statistics: str = "running", **where: Any) -> float:
    """Of networks of Experiment 6: R, C, gap, decay R(0)/R(4), or accuracy in percent, exact values. The mean over the
    seeds whose network is trained, also before training."""
    networks = _table("exp6_resnet18", "networks")
    kind = {name: value for name, value in where.items() if name in ("activation", "arch")}
    trained = set(_select(networks, {"checkpoint": "final", **kind})["seed"])
    if quantity == "accuracy":
        return 100 * mean_of(networks, "test_accuracy", {"statistics": statistics, **where})
    column = {"decay": "R", "gap": "tensor"}.get(quantity, quantity)
    keys = {"estimator": "engine", "statistics": statistics, "distance": distance, **where}
    over = {"decay": {"distance": 4}, "gap": "gn"}.get(quantity)
    distances = _table("exp6_resnet18", "distances")
    return mean_of(distances[distances["seed"].isin(trained)], column, keys, over)


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
                rows.setdefault(tuple(entry), {})[baseline] = cell
        for entry, cells in rows.items():
            listed = [cells.get(baseline, "–") for baseline in BASELINES]
            lines.append("| " + " | ".join((data, *entry, *listed)) + " |")
    names = ("SGD", "SAM", "A-SAM", "A-SAM, biases too", "Hessian trace")
    head = ("data", "budget", "tuned for", "flatness term", *names)
    return "\n".join(["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *lines])


def _star(test: pd.Series) -> str:
    return "\\*" * bool(test["p_holm"] < 0.01)


def _total(key: str, experiments: tuple[str, ...], verdict: str) -> int:
    counts: dict[str, int] = {}
    for name in experiments or tuple(
        sorted(path.parent.name for path in PUBLISHED.glob("*/manifest.json"))
    ):
        for word, count in _manifest(name).get(key, {}).items():
            counts[word] = counts.get(word, 0) + int(count)
    word = verdict.replace("_", " ")
    return (
        counts.get(word, 0)
        if word
        else sum(count for name, count in counts.items() if name in COUNTED)
    )


COUNTED = (
    "exact match",
    "reproduced",
    "not reproduced",
    "inconclusive",
    "confirmed",
    "refuted",
    "minor error",
)


@cache
def _manifest(experiment: str) -> dict[str, Any]:
    return read_manifest(PUBLISHED / experiment) or {}


@cache
def _csv(experiment: str, name: str) -> pd.DataFrame:
    return pd.read_csv(PUBLISHED / experiment / f"{name}.csv")


def _claims(experiment: str) -> pd.DataFrame:
    table = _csv(experiment, "claims")
    return table.assign(key=table["name"].str.replace(" ", "_"))


@cache
def _table(experiment: str, name: str) -> pd.DataFrame:
    return results.load(experiment)[name]


def _select(table: pd.DataFrame, where: dict[str, Any]) -> pd.DataFrame:
    for name, value in where.items():
        table = table[table[name] == value]
    return table


def _row(table: pd.DataFrame, where: dict[str, Any]) -> pd.Series:
    rows = _select(table, where)
    if len(rows) != 1:
        raise LookupError(f"expected one row with {where}, found {len(rows)}")
    return rows.iloc[0]


FUNCTIONS = {
    f.__name__: f
    for f in (
        *(
            fmt,
            number,
            statement,
            verdict,
            numbers,
            statements,
            extensions,
            agreeing,
            mean,
            detail,
            note,
            shifts,
        ),
        *(resnet, min, max, abs, math.exp),
    )
} | {"DAG": DAG, "HSR": HSR, "ATTENTION": ATTENTION}

if __name__ == "__main__":
    main()
