"""The papers' printed statements: experiments/reference/claims/<name>.csv."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from runner.contract.claim import Statement
from runner.stats.statements import read_statements

FOLDER = Path(__file__).resolve().parent / "reference" / "claims"


@cache
def statements(name: str) -> dict[str, Statement]:
    """name of the statement -> statement, of the file of one experiment."""
    return read_statements(FOLDER / f"{name}.csv")
