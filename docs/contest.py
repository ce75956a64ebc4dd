"""The contest of HSR with tuned baselines, for the templates of `docs.render`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pandas as pd

from docs.published import csv_of, fmt
from experiments.three_layer.hsr_flat_training.comparison import CONTEST, WORDS, words

CONTESTS = {"digits": "hsr_flat_training", "CIFAR-10": "hsr_flat_cifar10"}
NAMES = {
    "sgd": "SGD",
    "sam": "SAM",
    "asam": "A-SAM",
    "asam_all": "A-SAM with scaled biases",
    "trace": "the Hessian trace",
}
SEEDS = 10


def contest() -> str:
    """The table of the contest: one row for each data set, budget, tuning and schedule.

    Cells: λ₁ of HSR over that of a baseline / test accuracy of HSR less that of the baseline in
    points, Hodges-Lehmann shifts of the paired tests; * for p < 0.01 after Holm.
    """
    lines = [_line("data", "budget", "tuning", "flatness term", *NAMES.values())]
    lines.append("|---" * (4 + len(NAMES)) + "|")
    for data, experiment in CONTESTS.items():
        tests = csv_of(experiment, "stats").set_index(["figure", "label_b"]).to_dict("index")
        for entry in CONTEST:
            cells = [_cell(tests, words(entry), baseline) for baseline in NAMES]
            if any(cell != "–" for cell in cells):
                about = (data, WORDS[entry.budget], WORDS[entry.rule], entry.schedule)
                lines.append(_line(*about, *cells))
    return "\n".join(lines)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(tests: dict[Any, Any], entry: str, baseline: str) -> str:
    sharper = tests.get((f"log λ₁, {entry}", baseline))
    if sharper is None:
        return "–"
    better = tests[f"test accuracy, {entry}", baseline]
    points = f"{100 * better['shift']:+.2f}".replace("-", "−")
    cell = f"{fmt(math.exp(sharper['shift']))}{_star(sharper)} / {points}{_star(better)}"
    return cell if sharper["n_a"] >= SEEDS else f"{cell} ({sharper['n_a']:g} seeds)"


def _star(test: dict[str, Any]) -> str:
    return "\\*" * bool(test["p_holm"] < 0.01)


def _cells(word: str, verdict: str) -> dict[str, int]:
    """Baseline -> how many cells of both contests have the verdict on "HSR is `word` than it"."""
    counts = dict.fromkeys(NAMES, 0)
    for experiment in CONTESTS.values():
        claims: pd.Series = csv_of(experiment, "claims").set_index("name")["variants"]
        for baseline in NAMES:
            cells = json.loads(claims[f"{word}: {baseline}"])
            counts[baseline] += list(cells.values()).count(verdict)
    return counts


def everywhere(word: str, verdict: str) -> str:
    """The baselines for which every cell of both contests has the verdict."""
    counts = _cells(word, verdict)
    most = len(CONTEST) * len(CONTESTS)
    return " and ".join(NAMES[name] for name in NAMES if counts[name] == most) or "none"


def depends() -> str:
    """How many cells speak for and against HSR, for each baseline."""
    flatter, sharper = (_cells("flatter", verdict) for verdict in ("confirmed", "refuted"))
    more, less = (_cells("more accurate", verdict) for verdict in ("confirmed", "refuted"))
    return "; ".join(
        f"{name} {flatter[b]} / {sharper[b]}, {more[b]} / {less[b]}" for b, name in NAMES.items()
    )


FUNCTIONS: tuple[Callable[..., Any], ...] = (contest, everywhere, depends)
