"""The attention_hessian experiment: instances obey the assumption, claims can fail, figures
draw."""

import pandas as pd
import pytest
import torch

from experiments.attention.bounds import BOUNDS, point_value
from experiments.attention.hessian_report import claims, statistics
from experiments.attention.measure import climb, draw, draw_raw, feasible
from runner.contract import Context, analyse, measure
from runner.run.config import build_job
from runner.store.tables import frame
from tests.draws import seeded
from tests.experiments.tables import merged


@pytest.fixture(scope="module")
def setup():
    return build_job(["experiment=attention_hessian", "profile=quick"]).experiment


@pytest.fixture(scope="module")
def tables(setup):
    """Measured tables of two random cells and a small ascent, as the runner would merge them."""
    cells = setup.cells()
    return merged(setup, (42,), (cells[0], cells[-3], cells[-1]))


@pytest.mark.parametrize("aligned", [False, True])
def test_random_instances_obey_the_assumption(setup, aligned):
    x, y, w, v, b = draw(aligned, 3, 2, 2.0, setup, seeded())
    for matrix in (x, w, v):
        assert torch.allclose(torch.linalg.matrix_norm(matrix, 2), torch.tensor(2.0, dtype=x.dtype))
    assert torch.linalg.matrix_norm(y, 2).max() <= 2 + 1e-12
    assert b.abs().max() <= 4
    assert ((x - y).norm(dim=(-2, -1)) > 0).all()
    if aligned:
        assert (torch.linalg.svdvals(x)[:, 1] < 1e-12).all()


def test_ascent_stays_feasible_and_climbs(setup):
    raw = draw_raw(2, 2, 3, seeded(1))
    x, y, w, _v, b = feasible([100 * m for m in raw], 1.5, 0.01)
    for matrix in (x, y, w):
        assert torch.linalg.matrix_norm(matrix, 2).max() <= 1.5 + 1e-12
    assert b.abs().max() <= 1.5**2
    start = point_value("I.2", *(feasible(raw, 1.5, setup.near)[i] for i in (0, 2, 3, 4)))
    found = climb("I.2", raw, 1.5, setup)
    assert (found >= start - 1e-12).all() and (found > 1.05 * start).any()
    assert found.max() <= BOUNDS["I.2"].printed(2, 2, 1.5)


def test_tables_cover_every_bound_and_repeat(setup, tables):
    assert set(tables["bounds"]["bound"]) == set(BOUNDS)
    assert (tables["bounds"]["status"] == "ok").all() and len(tables["certificate"])
    assert tables["accuracy"][["hessian_error", "product_error"]].to_numpy().max() < 1e-10
    assert (tables["convexity"]["needed_gamma"] <= tables["convexity"]["admissible_gamma"]).all()
    cell = setup.cells()[0]
    again, first = measure(setup, cell, Context(seed=42)), tables["bounds"].head(len(BOUNDS))
    pd.testing.assert_frame_equal(
        frame("bounds", again["bounds"], {**cell.params, "seed": 42}), first
    )


def test_claims_confirm_and_can_refute(tables):
    found = claims(tables)
    assert len(found) == len(BOUNDS) and {claim.verdict for claim in found} == {"confirmed"}
    bounds = tables["bounds"].copy()
    bounds.loc[bounds.index[-1], ["ratio", "largest"]] = 1.2
    broken = {c.name: c.verdict for c in claims({"bounds": bounds})}
    assert broken[f"lemma_{bounds['bound'].iloc[-1]}"] == "refuted"
    bounds.loc[bounds.index[-1], ["ratio", "status"]] = [0.5, "not finite"]
    unknown = {c.name: c.verdict for c in claims({"bounds": bounds})}
    assert unknown[f"lemma_{bounds['bound'].iloc[-1]}"] == "inconclusive"
    assert claims({}) == []


def test_exponents_are_fits(tables):
    assert all(row.kind == "linear" for row in statistics(tables))


def test_figures_draw(setup, tables):
    assert set(analyse(setup, tables).figures()) == {"tightness"}
