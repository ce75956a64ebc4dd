"""What a row reads from tables: the parts of a statement and the value of its quantity in each.

A quantity is a column, a statistic of a column, a ratio of sums, or a function of the rows of one
part and seed. It is read of every seed, or of the means over seeds as a paper prints them, whose
error is that of the jackknife.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from runner.contract import Claim, Statement, Tables
from runner.stats.claims import WHOLE
from runner.stats.fits import linear, log_linear
from runner.stats.intervals import NAN, Values
from runner.stats.rows import RowError, columns_of, fields_of, named

Reading = Callable[[pd.DataFrame], float]
"""One number of the rows of a part and seed, in the order of `along`."""
Remark = Callable[[pd.DataFrame], str]
"""A text about the rows that a statement reads."""
Decision = Callable[[Statement, Tables], Claim]
PAPERS_IMAGES = 0
"""In a column `images`: the paper's own; other numbers are random sets."""
WITHOUT_PROBES = " without probes"
"""Ending of a column with the same quantity without the error of random probes, of networks that
are the paper's own."""


@dataclass(frozen=True)
class Quantity:
    """A registered function: the columns that it reads, of which all values are needed."""

    read: Reading
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Functions:
    """What the rows of an experiment call by name.

    quantities: of the rows of one part and seed. remarks: of all rows that a reading has.
    decisions: of a statement and all tables, for what no row can say; reasons: why, by name.
    """

    quantities: dict[str, Quantity] = field(default_factory=dict)
    remarks: dict[str, Remark] = field(default_factory=dict)
    decisions: dict[str, Decision] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def quantity(self, *columns: str) -> Callable[[Reading], Reading]:
        """Register a quantity by the name of its function."""

        def register(read: Reading) -> Reading:
            self.quantities[read.__name__] = Quantity(read, columns)
            return read

        return register

    def remark(self, tell: Remark) -> Remark:
        """Register a text by the name of its function."""
        self.remarks[tell.__name__] = tell
        return tell

    def decision(self, reason: str) -> Callable[[Decision], Decision]:
        """Register a test by the name of its function."""

        def register(decide: Decision) -> Decision:
            self.decisions[decide.__name__] = decide
            self.reasons[decide.__name__] = reason
            return decide

        return register


# ------------------------------------------------------------------ statistics of a curve

Curve = Callable[["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"], float]


def _fit(fit: Callable[..., Any], what: str) -> Curve:
    return lambda x, y: float(getattr(fit(x, y, name=""), what))


def _logarithms(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(linear(np.log(x), np.log(y), name="").slope)


CURVES: Mapping[str, Curve] = {
    "start": lambda x, y: y[0],
    "end": lambda x, y: y[-1],
    "fall": lambda x, y: y[0] / y[-1],
    "kept": lambda x, y: y[-1] / y[0],
    "loss": lambda x, y: 1 - y[-1] / y[0],
    "step": lambda x, y: np.diff(y).max() if y.size > 1 else NAN,
    "least_step": lambda x, y: np.diff(y).min() if y.size > 1 else NAN,
    "range": lambda x, y: y.max() / y.min(),
    "relative_range": lambda x, y: np.ptp(y) / np.abs(y).max(),
    "place": lambda x, y: NAN if np.isnan(y).any() else x[y.argmin()],
    "slope": _fit(linear, "slope"),
    "rate": _fit(log_linear, "decay"),
    "power": _logarithms,
    "r2": _fit(linear, "r2"),
    "log_r2": _fit(log_linear, "r2"),
    "best_r2": lambda x, y: max(CURVES["r2"](x, y), CURVES["log_r2"](x, y)),
}
"""Statistic of a column along another: its value at the smallest and the largest place; their
quotient, its inverse and the share that is lost; the largest and the smallest step between
neighbours; largest over smallest value, and their difference over the largest size; the place of
the smallest; slope, rate of exponential decay and exponent of a power law by least squares; R² of a
line, of an exponential and of the better."""
PLAIN = ("mean", "median", "max", "min", "sum", "std", "skew", "count")
"""Statistics of the values of a column without an order."""


def _positive(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda value: function(value) if value > 0 else NAN


SCALES: Mapping[str, Callable[[float], float]] = {
    "": lambda value: value,
    "log10": _positive(math.log10),
    "log10 of size": lambda value: math.log10(abs(value)) if value else NAN,
    "percent": lambda value: 100 * value,
    "percent above": lambda value: 100 * (value - 1),
    "percent below": lambda value: 100 * (1 - value),
    "excess": lambda value: value - 1,
    "negative": lambda value: -value,
}
"""What is made of a quantity."""


# ------------------------------------------------------------------ rows and parts


def rows_of(row: Statement, tables: Tables) -> pd.DataFrame:
    """The rows that a statement reads, on the paper's images where there are others; empty where
    the table is not measured."""
    if row.table not in tables:
        return pd.DataFrame(columns=["seed", *columns_of(row.where), *fields_of(row.parts)])
    table = tables[row.table]
    if row.join:
        table = _joined(row, table, tables)
    for query in (row.where, row.lost):
        for column in columns_of(query):
            named(f"{row.name}, where: column of {row.table}", column, table.columns)
    if "images" in table and "images" not in columns_of(row.where):
        table = table[table["images"] == PAPERS_IMAGES]
    if row.seeds:
        table = table[table["seed"].isin(seeds_of(row.seeds))]
    if row.where:
        table = table.query(row.where, engine="python")
    if row.lost:
        missing = table.index.isin(table.query(row.lost, engine="python").index)
        numbers = table.select_dtypes("number").columns.difference(["seed", "images"])
        table = table.assign(**{c: table[c].where(~missing) for c in numbers})
    return table


def _joined(row: Statement, table: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    """The table with columns of another, of the rows that agree in all columns that both have."""
    name, _, columns = row.join.partition(":")
    other = tables[name.strip()]
    wanted = [column.strip() for column in columns.split(",")]
    for column in wanted:
        named(f"{row.name}, join: column of {name.strip()}", column, other.columns)
    keys = [c for c in table.columns if c in other.columns and c not in wanted]
    return table.drop(columns=wanted, errors="ignore").merge(other[[*keys, *wanted]], on=keys)


def seeds_of(text: str) -> set[int]:
    """{42, 43, 44, 7} of "42-44 7"."""
    seeds: set[int] = set()
    for word in text.split():
        first, _, last = word.partition("-")
        seeds |= set(range(int(first), int(last or first) + 1))
    return seeds


def groups_of(table: pd.DataFrame, template: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """(name, rows) by the columns that a template names, in the order of the table."""
    keys = list(fields_of(template))
    if table.empty:
        return
    if not keys:
        yield template, table
        return
    for values, rows in table.groupby(keys, sort=False):
        yield template.format(**dict(zip(keys, values, strict=True))), rows


class Contrast(NamedTuple):
    """Two values of a column and how they are compared: `a` of "" is the part's own value."""

    column: str
    a: str
    sign: str
    b: str

    @classmethod
    def of(cls, row: Statement) -> Contrast | None:
        if not row.contrast:
            return None
        words = row.contrast.split()
        if len(words) != 4 or words[2] not in "-/":
            raise RowError(
                f"{row.name}, contrast: expected 'column a - b' or 'column a / b', "
                f"found {row.contrast!r}"
            )
        return cls(*words)

    def side(self, rows: pd.DataFrame, value: str) -> pd.DataFrame:
        """The rows of one side."""
        return rows[rows[self.column].astype(str) == value]

    def compare(self, a: float, b: float) -> float:
        """a − b, or a/b; NaN where b is 0 or infinite."""
        if self.sign == "-":
            return a - b
        return a / b if 0 < abs(b) < math.inf else NAN


class Part(NamedTuple):
    """The rows of a part and how its two sides are compared."""

    rows: pd.DataFrame
    contrast: Contrast | None


def parts_of(row: Statement, table: pd.DataFrame) -> dict[str, Part]:
    """Name -> part. Of a contrast with every value ("depth * / 8") each other value is one."""
    contrast = Contrast.of(row)
    found = {}
    if contrast is None or contrast.a != "*":
        for name, rows in groups_of(table, row.parts):
            found[name] = Part(rows, contrast)
        return found
    reference = contrast.side(table, contrast.b)
    keys = [key for key in fields_of(row.parts) if key != contrast.column]
    for name, rows in groups_of(table, row.parts):
        own = str(rows[contrast.column].iloc[0])
        if own != contrast.b:
            there = reference
            for key in keys:
                there = there[there[key] == rows[key].iloc[0]]
            found[name] = Part(pd.concat([rows, there]), contrast._replace(a=own))
    return found


def of_every(
    row: Statement, table: pd.DataFrame, parts: dict[str, Part]
) -> tuple[dict[str, Part], list[str]]:
    """The parts that have what `every` asks for, and what is missing: the parts whose curves lack a
    value of `along`, or the values of another column."""
    column, _, text = row.every.partition(" ")
    if not column or table.empty:
        return parts, []
    named(f"{row.name}, every: column of {row.table}", column, table.columns)
    wanted = [value.strip() for value in text.split(",")]
    if column != row.along:
        return parts, _lacking(table, column, wanted)
    whole = {n: part for n, part in parts.items() if not _lacking(part.rows, column, wanted)}
    return whole, [name or WHOLE for name in parts if name not in whole]


def _lacking(rows: pd.DataFrame, column: str, wanted: Iterable[str]) -> list[str]:
    there = set(rows[column].astype(str))
    return [value for value in wanted if value not in there]


# ------------------------------------------------------------------ values


class Reader:
    """Reads the quantity of one row."""

    def __init__(self, row: Statement, functions: Functions) -> None:
        self.row = row
        kind, _, how = row.over.partition(" ")
        self.over = "seed" if kind == "jackknife" else kind
        self.jackknifed = kind == "jackknife"
        self.log = how == "log"
        self.nested = how == "in seed"
        self.scale = SCALES[row.scale]
        self.along = row.along
        self.quantity = self._quantity(row.quantity, functions)

    def _quantity(self, text: str, functions: Functions) -> Quantity:
        if text in functions.quantities:
            return functions.quantities[text]
        if "/" in text:
            part, whole = (name.strip() for name in text.split("/"))
            return Quantity(lambda rows: _share(rows, part, whole), (part, whole))
        column, _, statistic = text.partition(".")
        if statistic in CURVES and self.along:
            curve = CURVES[statistic]
            return Quantity(lambda rows: _of_curve(rows, self.along, column, curve), (column,))
        if statistic:
            named(f"{self.row.name}, quantity", statistic, (*PLAIN, *CURVES))
            if statistic in CURVES:
                raise RowError(f"{self.row.name}, along: expected a column, found none")
            return Quantity(lambda rows: _of_column(rows[column], statistic), (column,))
        return Quantity(lambda rows: _single(rows, column), (column,))

    def check(self, rows: pd.DataFrame, functions: Functions) -> None:
        """RowError for a column that the table does not have."""
        wanted = [*self.quantity.columns, *filter(None, (self.along, self.over))]
        known = [*rows.columns, *functions.quantities]
        if self.over == "row":
            wanted, known = ["seed", self.row.quantity], list(rows.columns)
        for column in wanted:
            if column != "rows":
                named(f"{self.row.name}, quantity: column of {self.row.table}", column, known)

    def values(self, part: Part) -> Values:
        """The values of a part."""
        if self.jackknifed:
            return self._jackknife(part)
        if self.over == "rows":
            value = self.of(part)
            return Values({"": value}, value)
        if self.over == "row":
            numbers = part.rows[self.row.quantity].astype(float).map(self.scale)
            return Values(dict(zip(enumerate(part.rows["seed"]), numbers, strict=True)))
        by_unit = {}
        units = ["seed", self.over] if self.nested else self.over
        for unit, rows in part.rows.groupby(units, sort=False):
            by_unit[unit] = self.of(part._replace(rows=rows))
        if self.log:
            return geometric(by_unit)
        return Values(by_unit, NAN)

    def of(self, part: Part) -> float:
        """The quantity of rows, compared and scaled."""
        if part.contrast is None:
            value = self._of(part.rows)
        else:
            sides = (part.contrast.side(part.rows, v) for v in (part.contrast.a, part.contrast.b))
            a, b = (self._of(rows) if len(rows) else NAN for rows in sides)
            value = part.contrast.compare(a, b)
        return NAN if math.isnan(value) else self.scale(value)

    def _of(self, rows: pd.DataFrame) -> float:
        if self.along:
            rows = rows.sort_values(self.along)
        return self.quantity.read(rows)

    def _jackknife(self, part: Part) -> Values:
        """Pseudovalues n θ − (n − 1) θ_(−i) of the quantity of the means over seeds.

        A seed with an infinite or missing value is left out of the means, and its pseudovalue is
        NaN.
        """
        keys = [key for key in (self.along, *_column_of(part.contrast)) if key]
        columns = list(self.quantity.columns)
        if part.rows.duplicated([*keys, "seed"]).any():
            raise RowError(
                f"{self.row.name}, along: expected one row for each {' and '.join([*keys, 'seed'])}"
                ", found several"
            )
        if keys:
            wide = part.rows.pivot(index="seed", columns=keys, values=columns)
        else:
            wide = part.rows.set_index("seed")[columns]
        complete = np.isfinite(wide.to_numpy(float)).all(axis=1)
        finite = wide[complete]
        lost = dict.fromkeys(wide.index[~complete], NAN)

        def statistic(sample: pd.DataFrame) -> float:
            means = sample.mean()
            rows = means.unstack(0).reset_index() if keys else means.to_frame().T
            return self.of(Part(rows, part.contrast))

        n = len(finite)
        if n == 0:
            return Values(lost, NAN)
        whole = statistic(finite)
        if n == 1:
            return Values({finite.index[0]: whole, **lost}, whole)
        without = {seed: statistic(finite.drop(seed)) for seed in finite.index}
        log = self.log and min(whole, *without.values()) > 0
        of = math.log if log else float
        pseudo = {seed: n * of(whole) - (n - 1) * of(value) for seed, value in without.items()}
        return Values({**pseudo, **lost}, whole, log, without)


def _column_of(contrast: Contrast | None) -> Sequence[str]:
    return (contrast.column,) if contrast else ()


def geometric(ratios: Mapping[Any, float]) -> Values:
    """The geometric mean of ratios, with the interval of its logarithm; NaN for one that is
    infinite, missing or not above 0."""
    logarithms = {u: math.log(r) if 0 < r < math.inf else NAN for u, r in ratios.items()}
    known = [value for value in logarithms.values() if not math.isnan(value)]
    whole = math.exp(math.fsum(known) / len(known)) if known else NAN
    return Values(logarithms, whole, log=True)


def _of_curve(rows: pd.DataFrame, along: str, column: str, curve: Curve) -> float:
    if rows[along].duplicated().any():
        raise RowError(
            f"{column}: expected one row for each {along}, found several; name the columns that "
            "tell them apart in parts"
        )
    x, y = rows[along].to_numpy(float), rows[column].to_numpy(float)
    y = np.where(np.isfinite(y), y, NAN)  # an infinite one is lost: it is no step and no fall
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(curve(x, y))


def _of_column(values: pd.Series[Any], statistic: str) -> float:
    if statistic == "count":
        return float(values.count())
    return float(getattr(values, statistic)(skipna=False))


def _share(rows: pd.DataFrame, part: str, whole: str) -> float:
    sums = rows[[part, whole]].sum(skipna=False)
    return float(sums[part] / sums[whole]) if sums[whole] else NAN


def _single(rows: pd.DataFrame, column: str) -> float:
    if len(rows) > 1:
        raise RowError(
            f"{column}: expected one row for each part and seed, found {len(rows)}; "
            "name a statistic (column.mean) or the columns that tell them apart in parts"
        )
    return float(rows[column].iloc[0])
