"""Every number of README, of the pages of docs/reproduction and of the summaries of reports is
accounted for: computed again from the published cells or verdicts, printed in the paper, a setting,
or a place of the paper."""

import random
import re
from functools import cache

import pytest

from tests.experiments import page_accounts, summary_accounts
from tests.experiments.page_numbers import (
    Says,
    claimed,
    page,
    places,
    shows,
    summary_of,
    unaccounted,
)
from tests.experiments.stored import ROOT
from tests.experiments.test_page_comparisons import CASES, PAGES

ACCOUNTS = {"README.md": page_accounts.overview}
SUMMARIES = {f.stem: f for f in (ROOT / "experiments").rglob("*.md") if f.name != "README.md"}


def pages():
    """Name -> (text, what accounts for its numbers, functions of its other checks)."""
    found = {"/README.md": (ROOT / "README.md", page_accounts.readme)}
    for path in sorted(PAGES.rglob("*.md")):
        name = path.relative_to(PAGES).as_posix()
        made = ACCOUNTS.get(name)
        found[name] = (path, made or getattr(page_accounts, path.stem))
    for name, path in sorted(SUMMARIES.items()):
        found[f"summary of {name}"] = (path, getattr(summary_accounts, name))
    return found


PAGES_OF = pages()


@cache
def text_of(name):
    path, _ = PAGES_OF[name]
    if path in SUMMARIES.values():
        return summary_of(path.stem, path.read_text(encoding="utf-8"))
    return page(path)


@cache
def accounts_of(name):
    path, made = PAGES_OF[name]
    checked = [Says(words) for of, words, _ in CASES if (PAGES / of).resolve() == path]
    return made() + checked


@pytest.mark.parametrize("name", PAGES_OF)
def test_every_number_is_accounted_for(name):
    assert not unaccounted(text_of(name), accounts_of(name), places())


def test_numbers_are_read_and_compared_as_they_are_shown():
    assert shows("44,700", 44653.3) and not shows("44,600", 44653.3)
    assert shows("1.6·10⁻¹⁵", 1.6e-15) and shows("10⁻¹³", 1e-13) and shows("10^-2", 0.01)
    assert shows("−0.355", -0.35492) and shows("four", 4) and not shows("0.355", -0.35492)
    assert shows("1,437", 1437) and not shows("1,437", 1438)  # counts are exact


@pytest.mark.parametrize("name", PAGES_OF)
def test_another_number_is_noticed(name):
    """Ten numbers of each page, each with another last digit: every one is noticed, except the
    digits that name a place, a network or a power."""
    text, says = text_of(name), accounts_of(name)
    taken = claimed(text, says)
    for start, end in random.Random(0).sample(sorted(taken), min(10, len(taken))):
        token = text[start:end]
        other = re.sub(r"\d(?=\D*$)", lambda m: str((int(m[0]) + 3) % 10), token)
        if other == token:
            other = "seven" if token.isalpha() else "⁷"
        assert unaccounted(text[:start] + other + text[end:], says, places()), text[
            start - 40 : end
        ]


def test_a_wrong_expression_is_noticed():
    source = SUMMARIES["exp4_diamond"].read_text(encoding="utf-8")
    right, wrong = 'relation="cross", distance=4', 'relation="cross", distance=3'
    assert right in source
    text = summary_of("exp4_diamond", source.replace(right, wrong))
    assert unaccounted(text, accounts_of("summary of exp4_diamond"), places())
