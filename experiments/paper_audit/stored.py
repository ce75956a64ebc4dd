"""Tables of other experiments' committed cells, for what an erratum changes there."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from experiments.dag.protocol.companions import PUBLISHED_SEEDS
from experiments.paper_audit.papers import ROOM

OUTPUTS = ROOM.parents[1] / "outputs"

Row = dict[str, str]


def rows(experiment: str, table: str, outputs: Path = OUTPUTS, **parameters: Any) -> list[Row]:
    """Rows of one table of the stored cells with these parameters; none where nothing is stored (`cells`)."""
    return [row for cell in cells(experiment, outputs, **parameters) for row in _read(cell / f"{table}.csv.gz")]


def cells(experiment: str, outputs: Path = OUTPUTS, **parameters: Any) -> Iterator[Path]:
    """Folders of the cells at the papers' seeds and protocol.

    Left out are those that stand beside: changed inputs (training.perturbation), the order of another seed
    (training.order_seed), and further seeds.
    """
    for path in sorted(outputs.glob(f"{experiment}/cells/*/cell.json")):
        cell = json.loads(path.read_text(encoding="utf-8"))
        training = cell["settings"].get("training") or {}
        beside = training.get("perturbation") or training.get("order_seed") or cell["seed"] not in PUBLISHED_SEEDS
        if not beside and all(cell["params"].get(k) == v for k, v in parameters.items()):
            yield path.parent


def _read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with gzip.open(path) as stream:
        return list(csv.DictReader(io.TextIOWrapper(stream, encoding="utf-8", newline="")))


def middle(found: list[Row], column: str) -> float:
    """Median of a column, NaN without a value.

    >>> middle([{"a": "1"}, {"a": "3"}, {"a": "2"}, {"a": ""}], "a")
    2.0
    """
    values = [float(row[column]) for row in found if row[column] not in ("", "nan")]
    return median(values) if values else math.nan
