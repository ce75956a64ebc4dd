"""Injected errors are noticed, and what is published of them is what was counted."""

import ast
import csv

import pytest

from experiments.paper_audit.papers import ROOM, clauses
from tests.mutations import audit

LOOSER_BOUNDS = {
    "(1 - cosine ** 2) / cosine ** 2 → 2 * ((1 - cosine ** 2) / cosine ** 2)"  # Remark 63
}
"""Errors that make a bound looser which no instance attains: the looser one holds as well."""


@pytest.mark.slow
@pytest.mark.parametrize("key", audit.TARGETS)
def test_injected_errors_are_noticed(key):
    rows = list(audit.injected(key, 3, seed=0))
    assert len(rows) == 3
    assert not [row for row in rows if not row["caught"] and row["change"] not in LOOSER_BOUNDS]


@pytest.mark.slow
@pytest.mark.parametrize("error", audit.WRONG, ids=lambda e: f"{e.clause}: {e.wrong}")
def test_wrong_constants_of_bounds_are_noticed(error):
    assert audit.noticed(error)


@pytest.mark.parametrize("key", audit.TARGETS)
def test_every_target_holds_formulas(key):
    for module, functions in audit.TARGETS[key].items():
        tree = ast.parse(audit.source_of(key, module))
        names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        names |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        assert set(functions.split()) <= names | {"<lambda>"}


def test_reach_follows_tables_closures_and_modules():
    checks = {clause.id: clause.check for clause in clauses("ws_bound")}
    found = {
        (module.rpartition(".")[2], name)
        for module, name, _ in audit.reached(checks["ws.theorem5"])
    }
    assert {
        ("squares", "square"),
        ("three_layer_pairs", "phi_matrix"),
        ("three_layer", "loss"),
    } <= found
    assert ("squares", "grams") not in found


def test_reach_follows_formulas():
    checks = {clause.id: clause.check for clause in clauses("attention")}
    found = audit.reached(checks["attention.d.9.part_1"])
    cases = f"{audit.PACKAGE}.attention.cases"
    assert {(cases, name, 0) for name in ("right_d9", "df01", "ds", "w1")} <= found
    assert (cases, "df00", 0) not in found


def test_the_readme_quotes_the_runs():
    """Each miss has its reason; the shares of the page are those of the rows."""
    with (ROOM / "injected_errors.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    page = (ROOM / "README.md").read_text(encoding="utf-8")
    for sample in {row["sample"] for row in rows}:
        own = [row for row in rows if row["sample"] == sample]
        caught = sum(row["caught"] == "True" for row in own)
        assert f"{caught} of {len(own)}" in page, sample
        assert len({row["version"] for row in own}) == 1, sample
    assert all(bool(row["why_not"]) == (row["caught"] == "False") for row in rows)
    assert f"{len(audit.WRONG)} wrong constants" in page
