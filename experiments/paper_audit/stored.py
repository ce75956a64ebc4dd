"""Tables of other experiments' published cells, for what an erratum changes there."""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from experiments.dag.protocol.companions import PUBLISHED_SEEDS
from runner.store.cells import Stored
from runner.store.published import published_cells

Row = dict[str, str]


def rows(experiment: str, table: str, **parameters: Any) -> list[Row]:
    """Rows of one table of the published cells with these parameters; none where there are no such cells (`cells`)."""
    found = (cell for cell in cells(experiment, **parameters) if table in cell.meta["tables"])
    return [row for cell in found for row in _rows(cell.content(table))]


def cells(experiment: str, **parameters: Any) -> Iterator[Stored]:
    """Published cells at the papers' seeds and protocol, in the order of ids.

    Left out are changed inputs (training.perturbation), the order of another seed (training.order_seed), networks that
    stay untrained for a variant, and further seeds.
    """
    archive = published_cells(experiment)
    for name in sorted(archive.names()) if archive is not None else ():
        cell = archive.usable(name) if archive is not None else None
        if cell is not None and _in_protocol(cell.meta, parameters):
            yield cell


def _in_protocol(meta: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    training = meta["settings"].get("training") or {}
    apart = training.get("perturbation") or training.get("order_seed") or meta["settings"].get("untrained")
    return (
        not apart and meta["seed"] in PUBLISHED_SEEDS and all(meta["params"].get(k) == v for k, v in parameters.items())
    )


def _rows(content: bytes) -> list[Row]:
    return list(csv.DictReader(io.StringIO(gzip.decompress(content).decode(), newline="")))


def middle(found: list[Row], column: str) -> float:
    """Median of a column, NaN without a value.

    >>> middle([{"a": "1"}, {"a": "3"}, {"a": "2"}, {"a": ""}], "a")
    2.0
    """
    values = [float(row[column]) for row in found if row[column] not in ("", "nan")]
    return median(values) if values else math.nan
