"""One statement of a paper as a row of data: what it says, and what decides it.

The columns of statements.csv are the fields of `Statement`; docs/statements.md has an example of
each. `runner.stats.statements.judge` decides rows from tables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

NAN = float("nan")


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One sentence of a paper, with the place where it is printed, and what decides it.

    What it says. name: unique within the experiment; text: the sentence; place: where it is
    printed; experiment: whose tables decide it.

    What is read. table: its name; where: the rows, a query of columns, comparisons and `and`; join:
    columns of another table that are added ("networks: sigma_pp_squared"). lost: query of rows
    whose values count as missing; seeds: those that are read ("42-46"), all where it is blank.
    every: a column and the values of it that have to be there ("checkpoint init, mid, final").

    What is made of it. parts: name of a part, a template whose columns tell the parts apart
    ("L={depth} {checkpoint}"). quantity: a column, column.statistic, a/b (of sums), or the name of
    a function of the rows of one part and seed. along: the column along which a curve is read;
    contrast: two values of a column and how they are compared ("checkpoint final - init"; "depth *
    / 8" for each other value); scale: of the result (`quantities.SCALES`). over: what varies: seed,
    another column, jackknife (of means over seeds), each with " log" for a ratio; rows for one
    value of all rows; row for a value of each.

    How it is decided. test: name of a test (`statements.TESTS`) or of a function of the tables;
    low, high: the limits that the quantity has to keep, `strict` where they themselves do not
    count. number, std, n: a printed value, its population std over n seeds, and `rounding`, half a
    unit of its last printed digit (a statement has limits or a number). margin: how far a value may
    lie from `number` and still be the same, NaN for the default, a quarter of it. least, most: what
    the quantity can be at all (a share is in [0, 1]); an interval does not go beyond. level,
    sign: of a rank test and of the effect. opposite, tie: of the value of a data set, from where on
    it shows the opposite, and where it says nothing for either; share: of the data sets that have
    to show it; fewest: seeds or data sets that decide. spread: only the spread over seeds decides,
    even on the paper's own networks. shown: quantity whose value is shown, where it is not the one
    that decides; remark: name of a function of the rows whose text is added. variant, decides:
    names of this reading (a template, as parts) and of the one that decides; "" where all of them
    do. readings: the others.

    What is known of it. reason: why we chose these limits, '' where they are printed; history: what
    they were before they were changed with the result in view; fixed: the commit that fixed them,
    and whether before or after the first result. chosen: the limits are ours and not the paper's,
    so that only the uncertainty of a value decides. independent: of the protocol (a theorem, a
    formula, an exact zero), so that settings, data and seeds other than the paper's leave it its
    verdict. constructed: why it could not come out otherwise here, so that it is never counted as
    confirmed; zero: likewise where every value is exactly zero, a minor error (`errata`) where the
    limits exclude zero. extension: it is not in the paper: a correction, or what the paper leaves
    to others. not_comparable: why neither outcome counts; disputed: why none does where readings or
    parts contradict each other. errata: root cause of a minor error, where it is refuted;
    contradicted: whatever other networks give. alternative: what would have to be so for it to be
    false.
    """

    name: str
    text: str
    place: str = ""
    experiment: str = ""
    table: str = ""
    where: str = ""
    join: str = ""
    lost: str = ""
    seeds: str = ""
    every: str = ""
    parts: str = ""
    quantity: str = ""
    along: str = ""
    contrast: str = ""
    scale: str = ""
    over: str = "seed"
    test: str = ""
    low: float = -math.inf
    high: float = math.inf
    strict: bool = False
    number: float = NAN
    rounding: float = 0.0
    std: float = NAN
    n: int = 1
    margin: float = NAN
    least: float = -math.inf
    most: float = math.inf
    level: float = 0.01
    sign: int = 0
    opposite: float = NAN
    tie: float = NAN
    share: float = 0.8
    fewest: int = 3
    spread: bool = False
    shown: str = ""
    remark: str = ""
    variant: str = ""
    decides: str = ""
    readings: tuple[Statement, ...] = ()
    reason: str = ""
    history: str = ""
    fixed: str = ""
    chosen: bool = False
    independent: bool = False
    extension: bool = False
    constructed: str = ""
    zero: str = ""
    not_comparable: str = ""
    disputed: str = ""
    errata: str = ""
    contradicted: bool = False
    alternative: str = ""

    def reversed(self, value: float) -> bool:
        """Whether a value is as far from the limits as `opposite`."""
        if math.isfinite(self.low):
            return value <= self.opposite
        return value >= self.opposite

    @property
    def threshold(self) -> str:
        """The limits or the number in words: '>= 0.91', '0.24 ± 0.005'; '' where there is
        neither."""
        if not math.isnan(self.number):
            return f"{self.number:g} ± {self.rounding:g}" if self.rounding else f"{self.number:g}"
        equal = "" if self.strict else "="
        sides = [f">{equal} {self.low:g}"] * math.isfinite(self.low)
        sides += [f"<{equal} {self.high:g}"] * math.isfinite(self.high)
        return " and ".join(sides)

    @property
    def decidable(self) -> bool:
        """Whether there is a limit or a number: without one no value could fail."""
        return math.isfinite(self.low) or math.isfinite(self.high) or not math.isnan(self.number)

    def holds(self, value: float) -> bool:
        """Whether a value keeps the limits."""
        if self.strict:
            return self.low < value < self.high
        return self.low <= value <= self.high

    def excludes(self, low: float, high: float) -> bool:
        """Whether an interval is wholly outside the limits.

        >>> positive = Statement(name="s", text="above 0", low=0.0, strict=True)
        >>> positive.excludes(0.0, 0.0), positive.excludes(0.0, 0.1)
        (True, False)
        """
        if self.strict:
            return high <= self.low or low >= self.high
        return high < self.low or low > self.high
