"""The notebooks of the documentation run from first to last cell and show what their text says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).resolve().parents[2] / "docs" / "notebooks"


def run(name: str) -> dict[str, Any]:
    """The names that the code cells of a notebook define."""
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
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
    assert names["dag"].nodes["head"].parents == ("embed", "body")
    assert table["gap"].idxmax() == ("body", "body") and table["C"].max() > 1
    assert table.xs("head", level="w")["gap"].abs().max() < 1e-12 and (table["R_error"] == 0).all()
