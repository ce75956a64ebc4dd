"""A diagnosis of one of the targets, without figures unless a test asks for them."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from runner.contract import quoted
from runner.diagnose.experiment import diagnose as measure
from runner.diagnose.figures import DiagnosisAnalysis
from runner.diagnose.settings import Request
from runner.run.keys import read_keys
from tests.diagnose import targets

FIGURES = DiagnosisAnalysis.figures


@pytest.fixture(autouse=True)
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of the time of a small diagnosis."""
    monkeypatch.setattr(DiagnosisAnalysis, "figures", lambda self: {})


def diagnose(
    function: str,
    folder: Path,
    *words: str,
    file: str = targets.__file__,
    tell: Callable[[str], None] | None = None,
) -> tuple[int, list[str], Path]:
    """(exit status, lines, folder of the diagnosis) of a target."""
    said: list[str] = []
    where = [quoted("target", f"{file}:{function}"), quoted("outputs", folder)]
    request = read_keys(Request, [*where, "name=it", *words])
    status = measure(request, tell or said.append)
    return status, said, folder / "it"


def made(function: str, folder: Path, *words: str, **about: str) -> tuple[list[str], Path]:
    """(lines, folder) of a diagnosis that ends well."""
    status, said, place = diagnose(function, folder, *words, **about)
    assert status == 0, said
    return said, place


def took(said: list[str]) -> list[str]:
    """The parts that were measured, by the lines of a diagnosis."""
    return [line.split(":")[0].strip() for line in said if ": took " in line]


def table(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(folder / f"{name}.csv", dtype={"v": str, "w": str, "node": str})
