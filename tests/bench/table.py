"""Rows of the benchmark table: two ways in one run, their ratio, and the goal it is held
against."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from runner.store.identity import software
from tests.bench.machine import in_turns

Call = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """what: the quantity and the two ways, "ours against theirs". ours, theirs: one number for each
    repeat, in `unit`.

    goal: of the ratio; at_least: theirs / ours must reach it (a speed-up), else ours / theirs must
    stay below it (a price). operations: of the matrix products and convolutions of (our way, their
    way), 0 where they are not counted.
    peak: operations a second of a large matrix product on the same thread. note: of one line.
    machine, commit, date: where and when it was measured, filled in by `stamped`.
    """

    part: str
    what: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    goal: float
    at_least: bool = True
    unit: str = "s"
    operations: tuple[float, float] = (0.0, 0.0)
    peak: float = 0.0
    note: str = ""
    machine: str = ""
    commit: str = ""
    date: str = ""

    @property
    def ratio(self) -> float:
        """Of the medians, the way round that the goal is stated."""
        ours, theirs = median(self.ours), median(self.theirs)
        return theirs / ours if self.at_least else ours / theirs

    @property
    def met(self) -> bool:
        """Whether the ratio as it is printed keeps the goal."""
        ratio = float(f"{self.ratio:.3g}")
        return ratio >= self.goal if self.at_least else ratio <= self.goal

    def as_json(self) -> str:
        """One line, for `from_lines`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_lines(cls, text: str) -> list[Row]:
        """Rows from lines of JSON; other lines are passed over."""
        lines = [line.rstrip(",") for line in text.splitlines() if line.startswith("{")]
        return [cls(**json.loads(line, object_hook=_with_tuples)) for line in lines]

    def line(self, before: str = "") -> str:
        """Of the printed table, in the order of HEADER. before: quantity of the line above, which
        is not repeated."""
        network, quantity = self.network_and_quantity
        ratio = f"{self.ratio:.3g}" if self.met else f"**{self.ratio:.3g}**"
        ours = f"{_digits(median(self.ours))} {self.unit}"
        goal = f"{'≥' if self.at_least else '≤'}{self.goal:g}"
        shown = "" if quantity == before else quantity
        return f"| {shown} | {network} | {ours} | {ratio} ({goal}) |"

    @property
    def network_and_quantity(self) -> tuple[str, str]:
        """The two parts of `what`, "network: quantity"; without a colon it is all quantity."""
        network, _, quantity = self.what.rpartition(": ")
        return network, quantity


def _with_tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}


HEADER = """\
| quantity | network | ours | ratio (goal) |
| --- | --- | --- | --- |"""


def price(
    part: str, what: str, ours: Call, theirs: Call, goal: float, repeats: int, note: str = ""
) -> Row:
    """A cost of ours, which may be `goal` times that of the other way, from calls in turns."""
    times = in_turns(ours, theirs, repeats=repeats)
    return Row(part, what, *times, goal, at_least=False, note=note)


def stamped(rows: Iterable[Row], date: str) -> Iterator[Row]:
    """The rows with this machine, this commit and a date."""
    found = software()
    machine = f"{found['cpu']} ({found['instructions']}, torch {found['torch']})"
    return (replace(row, machine=machine, commit=found["git_commit"], date=date) for row in rows)


def read(path: Path) -> list[Row]:
    """Rows that `write` left; none where there is no file."""
    return Row.from_lines(path.read_text()) if path.exists() else []


def write(path: Path, rows: Sequence[Row]) -> None:
    """As JSON, one line a row, so that a change of one row is one changed line."""
    path.write_text("[\n" + ",\n".join(row.as_json() for row in rows) + "\n]\n")


def markdown(rows: Sequence[Row]) -> str:
    """The table of a page, and of a terminal: by quantity, in the order in which they come."""
    by_quantity: dict[str, list[Row]] = {}
    for row in rows:
        by_quantity.setdefault(row.network_and_quantity[1], []).append(row)
    lines = [HEADER]
    for quantity, same in by_quantity.items():
        lines += [same[0].line(), *(row.line(quantity) for row in same[1:])]
    return "\n".join(lines)


def _digits(value: float) -> str:
    """Three significant digits, without an exponent for large numbers."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
