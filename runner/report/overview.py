"""The page above all reports: one line per experiment and settings, read from their manifests alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.report import compare, page
from runner.report.provenance import warnings_of
from runner.store import tables


def write_overview(root: Path) -> Path:
    """Write `root`/index.html, one line for every report below `root`, and return its path.

    Totals count each experiment's main report (`root`/<experiment>); other settings of it (`root`/<experiment>/quick)
    are listed without being counted again.
    """
    rows: list[dict[str, Any]] = []
    unreadable: list[str] = []
    for path in sorted([*root.glob("*/manifest.json"), *root.glob("*/*/manifest.json")]):
        place = path.parent.relative_to(root).as_posix()
        try:
            record = json.loads(path.read_text())
            rows.append(_overview_row(place, record))
        except (OSError, ValueError, AttributeError, TypeError) as error:
            unreadable.append(f"{place}/manifest.json cannot be read ({error}); write the report again")
    columns = [
        "experiment",
        "paper",
        "title",
        "profile",
        "cells",
        "missing",
        "claims",
        "scorecard",
        "figures",
        "failures",
        "remarks",
    ]
    totals = [
        {
            "of": what,
            "verdict": verdict,
            "count": sum(row["main"] and row[f"{what}_counts"].get(verdict, 0) for row in rows),
        }
        for what, verdicts in (("claims", compare.CLAIM_VERDICTS), ("scorecard", compare.VERDICTS))
        for verdict in verdicts
    ]
    html = page.overview_page(
        "hess-run: all experiments",
        unreadable,
        [
            page.Section(heading="Experiments", columns=columns, rows=rows),
            page.Section(
                heading="Totals",
                columns=["verdict", "of", "count"],
                rows=[t for t in totals if t["count"]],
                lead="Over the main report of each experiment.",
            ),
        ],
    )
    target = root / "index.html"
    tables.write_bytes(target, html.encode())
    write_rates(root)
    return target


def write_rates(root: Path) -> None:
    """Write `root`/rates.csv: how many published values pass, by criterion and experiment (`compare.rates`).

    Read from the scorecards of the main reports; one that an older version wrote, or that cannot be read, is left out.
    """
    found = {}
    for path in sorted(root.glob("*/scorecard.csv")):
        try:
            scores = tables.read(path)
        except (OSError, ValueError):
            continue
        if {"equivalence", "order_kept"} <= set(scores.columns):
            found[path.parent.name] = scores
    rates = compare.rates(found)
    if len(rates):
        tables.write(rates, root / "rates.csv")


def _overview_row(place: str, record: Mapping[str, Any]) -> dict[str, Any]:
    claims, scores = record.get("claims", {}), record.get("scorecard", {})
    failures = len(record.get("failures", [])) + len(record.get("report_failures", []))
    return {
        "experiment": page.Link(place, f"{place}/index.html"),
        "paper": record.get("paper", ""),
        "title": record.get("title", ""),
        "profile": record.get("profile", ""),
        "cells": len(record.get("cells", [])),
        "missing": len(record.get("missing", [])),
        "claims": page.counts_line(claims),
        "scorecard": page.counts_line(scores),
        "figures": sum(str(a).endswith(".png") for a in record.get("artifacts", [])),
        "failures": failures,
        "remarks": "; ".join(w for w in warnings_of(record, ()) if not w.startswith("profile")),
        "claims_counts": claims,
        "scorecard_counts": scores,
        "main": "/" not in place,
    }
