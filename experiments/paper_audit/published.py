"""Rows of the published cells that the audit reads."""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Iterator, Mapping
from functools import cache
from statistics import median
from typing import Any

from runner.store.archive import published_cells
from runner.store.cells import Stored
from runner.training.streams import PUBLISHED_SEEDS

Row = dict[str, str]


def rows(experiment: str, table: str, **parameters: Any) -> list[Row]:
    """Rows of one table of the published cells with these parameters; none where there are no such
    cells (`cells`)."""
    found: list[Row] = []
    for cell in cells(experiment, **parameters):
        if table in cell.meta["tables"]:
            lines = io.StringIO(gzip.decompress(cell.content(table)).decode(), newline="")
            found += csv.DictReader(lines)
    return found


def cells(experiment: str, **parameters: Any) -> Iterator[Stored]:
    """Published cells at the papers' seeds and protocol, in the order of ids.

    Left out are changed inputs (training.perturbation), the order of another seed
    (training.order_seed), networks that stay untrained for a variant, and further seeds.
    """
    archive = published_cells(experiment)
    if archive is None:
        return
    for name in sorted(archive.names()):
        cell = archive.usable(name)
        if cell is not None and _in_protocol(cell.meta, parameters):
            yield cell


def _in_protocol(meta: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    settings = meta["settings"]
    training = settings.get("training") or {}
    if training.get("perturbation") or training.get("order_seed") or settings.get("untrained"):
        return False
    if meta["seed"] not in PUBLISHED_SEEDS:
        return False
    given = {**meta["params"], "seed": meta["seed"]}
    return all(given.get(name) == value for name, value in parameters.items())


@cache
def critical_points(protocol: str, seed: int, rate: float = 0.01) -> list[Row]:
    """The different points at which the sigmoid search of ws_bound with N = 3 stopped, of one data
    set."""
    keys = {"seed": seed, "protocol": protocol, "activation": "sigmoid", "hidden": 3, "rate": rate}
    points = rows("ws_bound", "critical_points", **keys)
    return [row for row in points if row["converged"] == "1" and row["duplicate"] == "0"]


def numbers(found: list[Row], column: str) -> list[float]:
    """Values of a column, those that are there."""
    return [float(row[column]) for row in found if row[column] not in ("", "nan")]


def middle(found: list[Row], column: str) -> float:
    """Median of a column, NaN without a value.

    >>> middle([{"a": "1"}, {"a": "3"}, {"a": "2"}, {"a": ""}], "a")
    2.0
    """
    values = numbers(found, column)
    return median(values) if values else math.nan
