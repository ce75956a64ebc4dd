"""Printed numbers compared again with published cells have their published scores."""

import re

import pandas as pd
import pytest

from experiments.printed import statements
from runner.report.answers.reference import numbers_of
from runner.run.config.files import experiment_names
from runner.stats.verdict_table import verdicts
from tests import DOCS
from tests.experiments.published_numbers import alike, differences, material_of
from tests.experiments.verdicts import rows
from tests.slow import daily

NAMES = [name for name in experiment_names() if numbers_of(name)]
QUICK = ("exp1b_spectral_norm", "exp3_stochastic", "exp5_attention", "hsr_gradient")


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize("name", daily(NAMES, QUICK))
def test_published_scores_are_those_of_the_rows(name, tmp_path):
    assert not list(differences(name, tmp_path))


@pytest.mark.parametrize("name", NAMES)
def test_every_number_says_how_it_is_read(name):
    rows = numbers_of(name).read()
    assert (rows[["table", "quantity"]] != "").all(axis=None)


def test_exported_tables_and_rows_alone_give_the_published_statements(published, tmp_path):
    """What `hess-run judge` reads, without store and experiment."""
    told = ("damping", "closed_form_in_training")
    said = [statements("scalar_spectrum")[name] for name in told]
    tables = material_of("scalar_spectrum", tmp_path).judged.analysis().compared()
    for table, found in tables.items():
        found.to_csv(tmp_path / f"{table}.csv", index=False)
    before = {row["name"]: row for row in rows(published / "scalar_spectrum" / "claims.csv")}
    for now in verdicts(said, None, read(tmp_path)).to_dict("records"):
        claim = before[now["row"]]
        assert (now["verdict"], now["reason"]) == (claim["verdict"], claim["detail"])
        assert alike(claim["statistic"], now["value"])


def test_the_tables_of_the_guide_give_the_published_numbers(published, tmp_path, monkeypatch):
    text = (DOCS / "statements.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"## Our verdicts again.*?```python\n(.*?)```", text, re.S)
    monkeypatch.chdir(tmp_path)
    exec(block, {})
    found = verdicts(
        [], numbers_of("exp4_diamond").read(), read(tmp_path / "outputs" / "judged" / "tables")
    )
    scores = rows(published / "exp4_diamond" / "scorecard.csv")
    for score, now in zip(scores, found.to_dict("records"), strict=True):
        assert (now["verdict"], now["reason"]) == (score["verdict"], score["reason"])
        assert alike(score["measured_mean"], now["value"])


def read(folder):
    """The tables of a folder, of the paper's seeds."""
    tables = {path.stem: pd.read_csv(path) for path in folder.glob("*.csv")}
    by_seed = {name: table for name, table in tables.items() if "seed" in table}
    return {name: table[table["seed"].between(42, 46)] for name, table in by_seed.items()}
