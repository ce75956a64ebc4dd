"""A report with made-up numbers, and the pages of it."""

import json
from pathlib import Path

import pandas as pd
from PIL import Image

from runner.files import sha256
from runner.report.output.page import Page
from runner.report.output.start import write_overview
from runner.report.output.write import write_page

FILES = ("scorecard.csv", "claims.csv", "stats.csv", "report.md", "figures/gap.png")
KEYS = ("metric", "activation", "checkpoint", "distance")


def written(path: Path, rows: list[dict[str, object]]) -> None:
    pd.DataFrame(rows).to_csv(path, index=False)


def report(root: Path, name: str = "exp3", rows: int = 12) -> Path:
    """A report as `runner.report.output.write` leaves it, with made-up numbers."""
    folder = root / name
    (folder / "figures").mkdir(parents=True)
    Image.new("RGB", (1200, 400), "white").save(folder / "figures" / "gap.png")
    scores = []
    for i in range(rows):
        keys = dict(zip(KEYS, ("gap", ("relu", "silu")[i % 2], "final", i // 2), strict=True))
        verdict = ("reproduced", "not reproduced", "inconclusive")[i % 3]
        scores.append(
            {
                **keys,
                "paper_mean": 1.0,
                "paper_std": 0.1,
                "margin": 0.25,
                "measured_mean": 1.0 + i / 100,
                "n": 5,
            }
            | {
                "measured_std": 0.1,
                "difference": i / 100,
                "low": i / 100 - 0.1,
                "high": i / 100 + 0.1,
                "ratio": 1.0,
            }
            | {
                "verdict": verdict,
                "seeds_needed": "nan",
                "reason": "<b>why</b>",
                "source": "DAG paper, Table 5",
            }
            | {"values": json.dumps([[42, 1 + i / 100], [43, 1 + i / 100]])}
        )
    written(folder / "scorecard.csv", scores)
    claim = {
        "name": "falls",
        "statement": "R falls with d",
        "where": "Section 5",
        "verdict": "confirmed",
    }
    written(folder / "claims.csv", [claim | {"statistic": 0.5, "threshold": "< 1"}])
    written(folder / "stats.csv", [{"name": "t", "p": 0.0625, "empty": ""}])
    (folder / "report.md").write_text(
        "# Gap\n\nThe *gap* holds.\n\n## Statements\n\n| published number | published | measured "
        "| verdict | reasons of the verdict |\n|---|---|---|---|---|\n"
        f"| Lyapunov exponent | 1.2345 ± 0.1 | 1.2345 ± 0.1 | not comparable | {'x' * 30} |\n"
    )
    manifest = {
        "experiment": name,
        "title": "Gap",
        "paper": "DAG",
        "seeds": [42, 43],
        "cells": [
            {
                "id": f"{k}",
                "params": {"activation": a},
                "seed": 42,
                "git_commit": "abc",
                "finished": "2026",
            }
            for k, a in enumerate(("relu", "silu"))
        ],
        "captions": {"gap": "Gap against distance, mean ± std over seeds. Seeds 42, 43 (n = 2)."},
        "alts": {"gap": "3 printed numbers: all reproduced."},
        "files": {file: sha256(folder / file) for file in FILES},
        "scorecard": {
            "reproduced": rows // 3,
            "not reproduced": rows // 3,
            "inconclusive": rows // 3,
        },
        "claims": {"confirmed": 1},
        "summary": "The *gap* holds.",
        "changed": "depth=3",
        "outcomes": [{"paper": "DAG", "place": "Table 5", "outcome": "holds: 4 of 4"}],
        "missing": [],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def built(root: Path, **about) -> Path:
    folder = report(root, **about)
    write_page(Page.read(folder))
    (root / "not_run.md").write_text("- `exp6`: no GPU at hand\n")
    write_overview(root)
    return folder / "index.html"
