"""Text of reports: human names of identifiers, report.md with its tables by verdict, and the
hand-written summary.

A summary is a Jinja template next to the experiment's settings, <experiment>.md:

    {{ number("gap", activation="gelu") }}            our mean of a published number
    {{ number("gap", "paper_mean", depth=8) }}        another column of its row
    {{ statement("slope") }}, {{ verdict("slope") }}  a statement: what was measured, the verdict
    {{ numbers("exact match") }}                      how many; without a verdict: how many count
    {{ numbers("reproduced", checkpoint="init") }}    how many of the rows with these keys
    {{ statements("refuted") }}                       likewise of statements
    {{ mean("distances", "R", distance=0) }}          mean of a column of a merged table
    {{ mean("distances", "R", over="C") }}            mean of a ratio (see `mean_of`)

A summary is left out where cells are missing, unless it contains `PARTIAL`. Numbers are shown with
three significant digits; `{{ … | fixed(1) }}` gives decimals, `exp` the exponential of a logarithm.
"""

from __future__ import annotations

import math
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.contract import Experiment, is_extension
from runner.report.reference import text_of
from runner.report.scope import Scope

if TYPE_CHECKING:
    import pandas as pd

    from runner.report.findings import Findings


LABELS: Mapping[str, str] = tomllib.loads(
    Path(__file__).with_name("labels.toml").read_text(encoding="utf-8")
)
KEYS_WITH_NAME = ("depth", "distance", "hidden", "width", "d_u", "k", "probes", "pair")
"""Keys whose value says nothing without their name."""
FIRST = "metric"


def label(text: Any) -> str:
    """The human name of an identifier; the identifier itself, with spaces, where it has none.

    >>> label("gelu"), label("gap_global"), label("some_part")
    ('GELU', 'GN gap', 'some part')
    """
    word = str(text)
    return LABELS.get(word, LABELS.get(word.lower(), word.replace("_", " ")))


NAMES = (
    "relu",
    "leaky_relu",
    "gelu",
    "silu",
    "sgd",
    "sam",
    "asam",
    "hsr",
    "l-bfgs",
    "levenberg-marquardt",
    "resnet18",
)
"""Identifiers of activations, methods and networks, for legends."""


def name(text: str) -> str:
    """A legend entry with its activation, method or network spelt as in print.

    >>> name("gelu"), name("l-bfgs, continued"), name("mean")
    ('GELU', 'L-BFGS, continued', 'mean')
    """
    first, comma, rest = text.partition(",")
    return f"{LABELS[first]}{comma}{rest}" if first in NAMES else text


def row_label(keys: Mapping[str, Any]) -> str:
    """The human name of a published number, from its key columns.

    >>> row_label({"activation": "gelu", "checkpoint": "final", "metric": "gap", "depth": "8"})
    'GN gap, GELU, after training, depth 8'
    """
    parts = [label(keys[FIRST])] if keys.get(FIRST) else []
    parts += [
        f"{label(k)} {v}" if k in KEYS_WITH_NAME or re.fullmatch(r"[-\d.]+", str(v)) else label(v)
        for k, v in _rest(keys)
    ]
    return ", ".join(parts)


def _rest(keys: Mapping[str, Any]) -> list[tuple[str, Any]]:
    rest = [
        (key, value)
        for key, value in keys.items()
        if key not in (FIRST, "experiment", "table") and value != ""
    ]
    return sorted(rest, key=lambda item: item[0] in KEYS_WITH_NAME)


PAPERS = Scope()
"""The paper's own run."""
MOST_NAMED = 4
"""Variants of a statement that its row names; of more it gives their number."""
SPLIT = ("confirmed", "refuted", "minor error", "inconclusive", "not run")
"""Verdicts by which variants are named."""
ORDER = ("refuted", "minor error", "not reproduced", "inconclusive", "confirmed", "not comparable")
"""Verdicts of the rows of a table, in their order; all others are counted."""
MOST_ROWS = 60
"""Rows of a table; the rest is in the CSV files."""


def report_text(
    title: str,
    summary: str,
    found: Findings,
    limitations: Sequence[str] = (),
    validation: Sequence[str] = (),
    scope: Scope = PAPERS,
) -> str:
    """Markdown of a report.

    Parameters
    ----------
    title
        Title of the experiment.
    summary
        The hand-written summary; without one the notes of the analysis follow the counts.
    found
        Answers of the analysis.
    limitations
        Sentences on missing cells and on what the report is not.
    validation
        Sentences on numerical checks of the cells.
    scope
        What the report is. Outside the paper's it begins with the reason, and lists only the
        statements that keep a verdict.
    """
    scored = _rows(found.scorecard) if scope.is_papers else []
    stated = [row for row in _rows(found.claims) if scope.keeps(bool(row.get("independent")))]
    papers = [row for row in stated if not is_extension(str(row.get("where") or ""))]
    extensions = [row for row in stated if is_extension(str(row.get("where") or ""))]
    numbers = [row for row in scored if row["verdict"] in ("not reproduced", "inconclusive")]
    left = Counter(str(row["reason"]) for row in scored if row["verdict"] == "not comparable")
    reasons = [f"Not comparable ({count}): {reason}." for reason, count in left.items()]
    lead = " ".join(filter(None, (summary, sentence(scope.not_judged))))
    parts = [
        f"# {title}\n",
        f"{lead}\n" if lead else "",
        _counts(scored, papers, extensions, scope),
        "" if summary else _list("Notes", found.notes),
        markdown_table("Published numbers by table and figure", PLACES, place_rows(scored)),
        _table(
            "Published numbers that are not reproduced, or inconclusive",
            NUMBERS,
            number_row,
            numbers,
            scope,
        ),
        _table("Statements of the paper", STATEMENTS, statement_row, papers, scope),
        _table("Extensions (not in the paper)", STATEMENTS, statement_row, extensions, scope),
        _list("Limitations", [*reasons, *limitations]),
        _list("Numerical validation", validation),
    ]
    return "\n".join(part for part in parts if part)


Row = Mapping[str, Any]


def _rows(table: pd.DataFrame) -> list[Row]:
    return table.rename(columns=str).to_dict("records")


def sentence(text: str) -> str:
    """A phrase as a sentence."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""


def _counts(
    scored: Sequence[Row], papers: Sequence[Row], extensions: Sequence[Row], scope: Scope
) -> str:
    """How many numbers and statements have which verdict."""
    kinds = (
        (scored, "published numbers"),
        (
            papers,
            "statements of the paper"
            if scope.is_papers
            else "statements that do not depend on the protocol",
        ),
        (extensions, "extensions (not in the paper)"),
    )
    counts = [f"{len(rows)} {what}: {counts_of(rows)}." for rows, what in kinds if rows]
    return f"{' '.join(counts)}\n" if counts else ""


def _table(
    heading: str,
    columns: Sequence[str],
    row_of: Callable[[Row], tuple[str, ...]],
    rows: Sequence[Row],
    scope: Scope,
) -> str:
    """A table of rows that have a verdict; a second one has a column of its own."""
    shown = _sorted(rows)
    if not scope.replicated:
        return markdown_table(heading, columns, map(row_of, shown))
    second = [(*row_of(row), str(row.get("replication") or "")) for row in shown]
    return markdown_table(heading, (*columns, scope.replicated), second)


PLACES = ("place", "numbers", "verdicts", "farthest from the published value (difference / margin)")
NUMBERS = ("published number", "place", "published", "measured", "verdict", "reason")
STATEMENTS = ("statement", "place", "measured", "criterion", "verdict")


def place_rows(scored: Sequence[Mapping[str, Any]]) -> list[Sequence[str]]:
    """For each table and figure of the paper: how many numbers, their verdicts, and the number that
    differs most. None where every place has one number."""
    places: dict[str, list[Mapping[str, Any]]] = {}
    for row in scored:
        places.setdefault(str(row.get("source") or ""), []).append(row)
    found: list[Sequence[str]] = []
    for place, rows in places.items():
        compared = [
            row for row in rows if row["verdict"] in COUNTED and row["verdict"] != "exact match"
        ]
        measured = [row for row in compared if float(row.get("margin") or 0) > 0]
        far = max(measured, key=_in_margins, default=None)
        name, _, printed, ours, *_ = ("",) * 6 if far is None else number_row(far)
        farthest = (
            "" if far is None else f"{name}: {ours}, published {printed} ({_in_margins(far):.2f})"
        )
        found.append((place, str(len(rows)), counts_of(rows), farthest))
    return found if len(found) < len(scored) else []


def _in_margins(row: Mapping[str, Any]) -> float:
    return abs(float(row["measured_mean"]) - float(row["paper_mean"])) / float(row["margin"])


def number_name(row: Mapping[str, Any]) -> str:
    """The name of a published number: its metric and settings, in words."""
    columns = list(row)
    keys = columns[: columns.index("paper_mean")] if "paper_mean" in columns else []
    whole = {
        key: int(v) if isinstance(v := row[key], float) and v.is_integer() else v for key in keys
    }
    return row_label({key: value for key, value in whole.items() if _word(value)})


def number_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A published number as a row of a table."""
    name = number_name(row)
    printed = shown(row.get("paper_mean")) or f"at most {shown(row.get('upper_bound'))}"
    reason = "; ".join(text for text in (str(row.get("reason") or ""), _needed(row)) if text)
    spread = [
        f" ± {shown(row.get(key), 2)}" if shown(row.get(key)) else ""
        for key in ("paper_std", "measured_std")
    ]
    ours = shown(row.get("measured_mean"))
    return (
        name,
        str(row.get("source") or ""),
        printed + spread[0],
        ours + spread[1],
        str(row["verdict"]),
        reason,
    )


def statement_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A statement as a row of a table."""
    verdict = f"{row['verdict']}{_split(row.get('variants') or {})}"
    if row.get("other_seeds"):
        verdict += " (published networks; other seeds: claims.csv)"
    verdict += f"; {_needed(row)}" if _needed(row) else ""
    criterion = str(row.get("threshold") or "").replace("<=", "≤").replace(">=", "≥")
    if row["verdict"] == "not comparable":
        criterion = str(row.get("detail") or "")
    return (
        str(row["statement"]),
        str(row.get("where") or ""),
        shown(row.get("statistic")),
        criterion,
        verdict,
    )


def statement_line(row: Mapping[str, Any]) -> str:
    """A statement in one line, for captions."""
    statement, where, measured, criterion, _ = statement_row(row)
    text = f"{statement} ({where})" if where else statement
    return f"{text}: {measured} (criterion: {criterion})" if measured and criterion else text


def number_line(row: Mapping[str, Any]) -> str:
    """A published number in one line, for captions."""
    name, _, printed, ours, _, reason = number_row(row)
    line = f"{name}: {ours}, published {printed}"
    return f"{line} ({reason})" if reason else line


def shown(value: Any, digits: int = 3) -> str:
    """A number with this many significant digits; '' for anything else."""
    return f"{value:.{digits}g}" if isinstance(value, int | float) and value == value else ""


def _split(variants: Mapping[str, str]) -> str:
    """Which variants of a statement have which verdict, where they differ."""
    parts: dict[str, list[str]] = {}
    for name, verdict in variants.items():
        if verdict in SPLIT:
            parts.setdefault(verdict, []).append(name)
    if len(parts) < 2:
        return ""
    total = sum(map(len, parts.values()))
    lines = []
    for verdict in sorted(parts, key=SPLIT.index):
        names = parts[verdict]
        named = ", ".join(names) if len(names) <= MOST_NAMED else f"{len(names)} of {total}"
        lines.append(f"{named} {verdict}")
    return f" (variants: {'; '.join(lines)})"


def _needed(row: Mapping[str, Any]) -> str:
    needed = row.get("seeds_needed")
    if not isinstance(needed, float) or needed != needed:
        return ""
    return (
        "more seeds would not decide it"
        if needed == float("inf")
        else f"about {needed:.0f} seeds would decide it"
    )


def _sorted(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(
        (row for row in rows if row["verdict"] in ORDER),
        key=lambda row: ORDER.index(row["verdict"]),
    )


def markdown_table(heading: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A heading and a table below it; '' without rows."""
    cells = [[*map(_cell, row)] for row in rows]
    if not cells:
        return ""
    lines = [f"## {heading}", ""]
    for line in (columns, ["---"] * len(columns), *cells[:MOST_ROWS]):
        lines.append(f"| {' | '.join(line)} |")
    if len(cells) > MOST_ROWS:
        lines += ["", f"{len(cells) - MOST_ROWS} more rows are in the CSV files."]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """A text in one line, with what a table would read as markup escaped."""
    return re.sub(r"([|]|(?<=[{,])[*])", r"\\\1", " ".join(text.split()))


def _list(heading: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return "\n".join([f"## {heading}", "", *(f"- {line}" for line in lines)]) + "\n"


def _word(value: Any) -> bool:
    return value not in ("", None) and value == value


def counts_of(rows: Iterable[Mapping[str, Any]]) -> str:
    counts = Counter(str(row["verdict"]) for row in rows)
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())


COUNTED = (
    "exact match",
    "reproduced",
    "not reproduced",
    "inconclusive",
    "confirmed",
    "refuted",
    "minor error",
)
PARTIAL = "{# shown for partial results, too #}"
MOST_WORDS = 150
"""Words of a summary."""


def summary_path(name: str, experiment: Experiment) -> Path | None:
    """The summary's file, where there is one."""
    file = getattr(sys.modules[type(experiment).__module__], "__file__", None)
    path = Path(file).resolve().with_name(f"{name}.md") if file else None
    return path if path is not None and path.is_file() else None


def summary(
    text: str,
    claims: pd.DataFrame,
    scorecard: pd.DataFrame,
    tables: Mapping[str, pd.DataFrame] | None = None,
) -> str:
    """A summary with its numbers. Raises ValueError for a row that there is not, or several, and
    for too many words.

    tables: merged over cells and seeds, for `mean`.
    """
    from jinja2 import Environment, StrictUndefined

    stated, scored = claims.to_dict("records"), scorecard.to_dict("records")
    environment = Environment(
        undefined=StrictUndefined, finalize=_shown, autoescape=False, keep_trailing_newline=False
    )
    environment.filters["exp"] = math.exp
    environment.filters["fixed"] = lambda value, digits: f"{value:.{digits}f}"
    environment.globals.update(
        number=lambda metric, column="measured_mean", **keys: _row(
            scored, {"metric": metric, **keys}
        )[column],
        statement=lambda name, column="statistic": _row(stated, {"name": name})[column],
        verdict=lambda name: _row(stated, {"name": name})["verdict"],
        numbers=lambda verdict="", **keys: _count(
            [row for row in scored if _agrees(row, keys)], verdict
        ),
        mean=lambda table, column, over=None, **keys: mean_of(
            (tables or {})[table], column, keys, over
        ),
        statements=lambda verdict="": _count(
            [r for r in stated if not is_extension(str(r["where"]))], verdict
        ),
        extensions=lambda verdict="": _count(
            [r for r in stated if is_extension(str(r["where"]))], verdict
        ),
    )
    found = " ".join(environment.from_string(text).render().split())
    if len(found.split()) > MOST_WORDS:
        raise ValueError(
            f"summary: expected at most {MOST_WORDS} words, found {len(found.split())}"
        )
    return found


def _shown(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    text = f"{value:.3g}"
    return f"{float(text):,.0f}" if "e+0" in text and abs(value) < 1e6 else text


def _row(rows: list[dict[Any, Any]], keys: Mapping[str, Any]) -> dict[Any, Any]:
    found = [row for row in rows if _agrees(row, keys)]
    if len(found) != 1:
        raise ValueError(f"summary: expected one row with {dict(keys)}, found {len(found)}")
    return found[0]


def _agrees(row: Mapping[Any, Any], keys: Mapping[str, Any]) -> bool:
    return all(text_of(row.get(key)) == text_of(value) for key, value in keys.items())


def mean_of(
    table: pd.DataFrame,
    column: str,
    keys: Mapping[str, Any],
    over: str | Mapping[str, Any] | None = None,
) -> float:
    """Mean of a column over the rows with these keys.

    over: of its ratio to another column, or, seed by seed, to its value in the rows with these
    other keys.
    """

    def rows(keys: Mapping[str, Any]) -> pd.DataFrame:
        found = table
        for key, value in keys.items():
            found = found[found[key] == value]
        if found.empty:
            raise ValueError(f"summary: expected rows with {dict(keys)}, found none")
        return found

    values = rows(keys)
    if over is None:
        return float(values[column].mean())
    if isinstance(over, str):
        return float((values[column] / values[over]).mean())
    below = rows({**keys, **over}).set_index("seed")[column]
    return float((values.set_index("seed")[column] / below).mean())


def _count(rows: list[dict[Any, Any]], verdict: str) -> int:
    return sum(row["verdict"] == verdict if verdict else row["verdict"] in COUNTED for row in rows)
