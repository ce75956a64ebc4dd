"""Notebooks and the examples in docstrings outside the engine run (the engine's:
tests/curvature/test_doctests.py)."""

import doctest
import importlib
import json
import os
import shutil
import subprocess
import sys

import pytest

from tests import ROOT

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
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


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("c++"), reason="torch.compile needs a C++ compiler")
def test_verify_says_whether_the_compiled_hessian_is_the_eager_one():
    command = [sys.executable, "docs/examples/compiled_hessian.py"]
    run = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    difference, eager, compiled = run.stdout.split(":")[1:4]
    wrong = float(difference.split()[0]) > 1e-6
    assert "NOT" not in eager and ("NOT certified" in compiled) == wrong
