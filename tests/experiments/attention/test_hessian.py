"""The attention_hessian experiment: instances obey the assumption, claims can fail, figures
draw."""

import pandas as pd
import pytest
import torch

from experiments.attention.bounds import BOUNDS, point_value
from experiments.attention.hessian_report import statistics
from experiments.attention.measure import climb, draw, draw_raw, feasible
from runner.contract import analyse
from runner.run.config.jobs import build_job
from tests.draws import seeded
from tests.experiments.tables import claims_of, measured_again, merged


@pytest.fixture(scope="module")
def setup():
    return build_job(["experiment=attention_hessian", "profile=quick"]).experiment


@pytest.fixture(scope="module")
def tables(setup):
    """Measured tables of two random cells and a small ascent, as the runner would merge them."""
    cells = setup.cells()
    return merged(setup, (42,), (cells[0], cells[-3], cells[-1]))


def norms(matrix):
    return torch.linalg.matrix_norm(matrix, 2)


@pytest.mark.parametrize("aligned", [False, True])
def test_random_instances_obey_the_assumption(setup, aligned):
    x, y, w, v, b = draw(aligned, 3, 2, 2.0, setup, seeded())
    for matrix in (x, w, v):
        torch.testing.assert_close(norms(matrix), torch.full_like(norms(matrix), 2.0))
    assert norms(y).max() <= 2 + 1e-12
    assert b.abs().max() <= 4
    assert ((x - y).norm(dim=(-2, -1)) > 0).all()
    assert not aligned or (torch.linalg.svdvals(x)[:, 1] < 1e-12).all()


def test_ascent_stays_feasible_and_climbs(setup):
    raw = draw_raw(2, 2, 3, seeded(1))
    x, y, w, _, b = feasible([100 * m for m in raw], 1.5, 0.01)
    assert all(norms(matrix).max() <= 1.5 + 1e-12 for matrix in (x, y, w))
    assert b.abs().max() <= 1.5**2
    x, _, w, v, b = feasible(raw, 1.5, setup.near)
    start, found = point_value("I.2", x, w, v, b), climb("I.2", raw, 1.5, setup)
    assert (found >= start - 1e-12).all() and (found > 1.05 * start).any()
    assert found.max() <= BOUNDS["I.2"].printed(2, 2, 1.5)


def test_tables_cover_every_bound_and_repeat(setup, tables):
    bounds, convexity = tables["bounds"], tables["convexity"]
    assert set(bounds["bound"]) == set(BOUNDS)
    assert (bounds["status"] == "ok").all() and len(tables["certificate"])
    assert tables["accuracy"][["hessian_error", "product_error"]].to_numpy().max() < 1e-10
    assert (convexity["needed_gamma"] <= convexity["admissible_gamma"]).all()
    again = measured_again(setup, setup.cells()[0], 42, "bounds")
    pd.testing.assert_frame_equal(again, bounds.head(len(BOUNDS)))


def test_claims_confirm_and_can_refute(setup, tables):
    found = claims_of(setup, tables)
    assert {name: claim.verdict for name, claim in found.items()} == {
        f"lemma_{name}": "confirmed" for name in BOUNDS
    }
    assert all(found[f"lemma_{name}"].where == bound.place for name, bound in BOUNDS.items())
    bounds = tables["bounds"].copy()
    last = bounds.index[-1]
    for ratio, status, verdict in ((1.2, "ok", "refuted"), (0.5, "not finite", "inconclusive")):
        bounds.loc[last, ["ratio", "largest", "status"]] = [ratio, 1.2, status]
        found = claims_of(setup, {"bounds": bounds.copy()})
        assert found[f"lemma_{bounds['bound'][last]}"].verdict == verdict
    broken = claims_of(setup, {"bounds": bounds.assign(status="not finite")})
    assert {claim.verdict for claim in broken.values()} == {"inconclusive"}
    assert {claim.verdict for claim in claims_of(setup, {}).values()} == {"not run"}


def test_exponents_are_fits(tables):
    assert all(row.kind == "linear" for row in statistics(tables))


def test_figures_draw(setup, tables):
    assert set(analyse(setup, tables).figures()) == {"tightness"}
