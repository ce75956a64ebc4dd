"""Printed numbers compared again with published cells have their published scores."""

import pandas as pd
import pytest

from experiments.printed import statements
from runner.report.answers.reference import numbers_of
from runner.run.config.files import experiment_names
from runner.stats.verdict_table import verdicts
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


@pytest.mark.usefixtures("published")
def test_exported_tables_and_rows_alone_give_the_published_verdicts(published, tmp_path):
    """What `hess-run judge` reads, without store and experiment: two statements, and a table of
    numbers of another paper."""
    told = ("damping", "closed_form_in_training")
    said = [statements("scalar_spectrum")[name] for name in told]
    found = verdicts(said, None, exported("scalar_spectrum", tmp_path))
    before = {row["name"]: row for row in rows(published / "scalar_spectrum" / "claims.csv")}
    for now in found.to_dict("records"):
        claim = before[now["row"]]
        assert (now["verdict"], now["reason"]) == (claim["verdict"], claim["detail"])
        assert alike(claim["statistic"], now["value"])
    found = verdicts([], numbers_of("exp4_diamond").read(), exported("exp4_diamond", tmp_path))
    scores = rows(published / "exp4_diamond" / "scorecard.csv")
    for score, now in zip(scores, found.to_dict("records"), strict=True):
        assert (now["verdict"], now["reason"]) == (score["verdict"], score["reason"])
        assert alike(score["measured_mean"], now["value"])


def exported(name, folder):
    """The tables that rows of an experiment read, through CSV files."""
    tables = {}
    for table, found in material_of(name, folder).judged.analysis().compared().items():
        found.to_csv(folder / f"{table}.csv", index=False)
        tables[table] = pd.read_csv(folder / f"{table}.csv")
    return tables
