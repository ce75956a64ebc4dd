"""The hand-written summary of an experiment, with numbers filled in from its results by a template.

The text lies next to the module of the experiment's settings, as <experiment>.md: Jinja's syntax, with

    {{ number("gap_global", activation="gelu", checkpoint="init") }}    our mean of a published number
    {{ number("gap_global", "paper_mean", activation="gelu") }}         another column of its row
    {{ statement("residual slope") }}, {{ verdict("residual slope") }}  a statement: what was measured, the verdict
    {{ numbers("exact match") }}, {{ statements("refuted") }}           how many; without a verdict: how many count

Numbers are shown with three significant digits; `{{ … | fixed(1) }}` gives decimals.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.contract import Experiment, is_extension
from runner.report.printed import text_of

if TYPE_CHECKING:
    import pandas as pd

COUNTED = ("exact match", "reproduced", "not reproduced", "inconclusive", "confirmed", "refuted", "minor error")
LONGEST = 150
"""Words of a summary."""


def summary_path(name: str, experiment: Experiment) -> Path | None:
    """The summary's file, where there is one."""
    file = getattr(sys.modules[type(experiment).__module__], "__file__", None)
    path = Path(file).resolve().with_name(f"{name}.md") if file else None
    return path if path is not None and path.is_file() else None


def summary(text: str, claims: pd.DataFrame, scorecard: pd.DataFrame) -> str:
    """A summary with its numbers. Raises ValueError for a row that there is not, or several, and for too many words."""
    from jinja2 import Environment, StrictUndefined

    stated, scored = claims.to_dict("records"), scorecard.to_dict("records")
    environment = Environment(undefined=StrictUndefined, finalize=_shown, autoescape=False, keep_trailing_newline=False)
    environment.filters["fixed"] = lambda value, digits: f"{value:.{digits}f}"
    environment.globals.update(
        number=lambda metric, column="measured_mean", **keys: _row(scored, {"metric": metric, **keys})[column],
        statement=lambda name, column="statistic": _row(stated, {"name": name})[column],
        verdict=lambda name: _row(stated, {"name": name})["verdict"],
        numbers=lambda verdict="": _count(scored, verdict),
        statements=lambda verdict="": _count([r for r in stated if not is_extension(str(r["where"]))], verdict),
        extensions=lambda verdict="": _count([r for r in stated if is_extension(str(r["where"]))], verdict),
    )
    found = " ".join(environment.from_string(text).render().split())
    if len(found.split()) > LONGEST:
        raise ValueError(f"summary: expected at most {LONGEST} words, found {len(found.split())}")
    return found


def _shown(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    text = f"{value:.3g}"
    return f"{float(text):,.0f}" if "e+0" in text and abs(value) < 1e6 else text


def _row(rows: list[dict[Any, Any]], keys: Mapping[str, Any]) -> dict[Any, Any]:
    found = [row for row in rows if all(text_of(row.get(key)) == text_of(value) for key, value in keys.items())]
    if len(found) != 1:
        raise ValueError(f"summary: expected one row with {dict(keys)}, found {len(found)}")
    return found[0]


def _count(rows: list[dict[Any, Any]], verdict: str) -> int:
    return sum(row["verdict"] == verdict if verdict else row["verdict"] in COUNTED for row in rows)
