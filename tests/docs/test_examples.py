"""Notebooks and the examples in docstrings outside the engine run (the engine's:
tests/curvature/test_doctests.py)."""

import doctest
import importlib
import json

import pytest

from tests import ROOT

MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("runner", "experiments")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if ">>> " in path.read_text() and "curvature" not in path.parts
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name, published):
    failed, tried = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert tried and not failed


def run(name):
    """The names that the code cells of a notebook define."""
    cells = json.loads((ROOT / "docs" / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))[
        "cells"
    ]
    names = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "store notebooks without outputs; `make docs` runs them"
            exec(compile("".join(cell["source"]), name, "exec"), names)
    return names


def test_the_results_notebook_computes_a_published_number(published, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = run("results")
    assert round(names["gap"].xs(("gelu", "init")).mean(), 3) == 0.358
    assert names["gaps"]["verdict"].isin(["exact match", "true by construction"]).all()


def test_the_layers_notebook_measures_what_its_text_says():
    names = run("layers")
    table = names["metrics"].to_frame()
    assert names["operator"].sizes == {"embed": 6, "body": 6, "head": 3}
    assert table["gap"].idxmax() == ("body", "body") and table["C"].max() > 1
    assert table.xs("head", level="w")["gap"].abs().max() < 1e-12 and (table["R_error"] == 0).all()
