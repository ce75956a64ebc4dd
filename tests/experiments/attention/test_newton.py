"""The attention_newton experiment: grid, outcomes, symmetries, claims that can fail, targets,
figures."""

from dataclasses import replace

import pandas as pd
import pytest
import torch
from torch.testing import assert_close

from experiments.attention import newton_claims
from experiments.attention.contest import BLIND, operations, run_and_follow, starts
from experiments.attention.layer import Heads
from experiments.attention.problem import (
    distinct,
    draw,
    ended,
    equations,
    follow,
    invariances,
    symmetric_error,
)
from experiments.attention.rounds import Round, followed, in_rounds
from runner.contract import Context, analyse, measure
from runner.curvature.closed_form import attention as att
from runner.run.config import build_job
from runner.store.identity import Identity
from runner.store.tables import frame
from tests.draws import normal, seeded
from tests.experiments.tables import merged

DTYPE = torch.float64


@pytest.fixture(scope="module")
def setup():
    return build_job(["experiment=attention_newton", "profile=quick"]).experiment


@pytest.fixture(scope="module")
def tables(setup):
    """Merged tables of all studies at seed 42."""
    return merged(setup, (42,))


def test_cells_are_studies_at_sizes():
    setup = build_job(["experiment=attention_newton"]).experiment
    cells = [(cell.params["study"], cell.params["size"]) for cell in setup.cells()]
    assert len(cells) == 3 * 3 + 1 and ("contest", "8x4") in cells and ("layer", "own") in cells
    assert setup.sizes("8x4") == (8, 4)
    assert (
        Identity.of("attention_newton", setup).key == "4e2ec340e6086a31"
    )  # of the published cells


def test_problem_is_shared_by_the_cells_of_a_size():
    ctx = Context(seed=42)
    first, again, other = (draw(3, 2, 1.0, index, ctx) for index in (0, 0, 1))
    assert torch.equal(first.x, again.x) and torch.equal(first.w, again.w)
    assert torch.allclose(first.b, att.outputs(first.x, first.w, first.v))
    assert not torch.equal(first.x, other.x)


def test_minimiser_follows_the_first_order_prediction():
    problem = draw(2, 2, 1.0, 0, Context(seed=42))
    point, smallest, status = follow(problem.objective(1e-8), problem.data)
    shift = float((point - problem.data).norm() / problem.data.norm())
    assert status == "ok" and smallest > 0
    assert shift == pytest.approx(problem.predicted_shift(1e-8), rel=1e-2)


def test_blind_starts_know_nothing_of_the_data(setup):
    problem = draw(2, 2, 1.0, 0, Context(seed=42))
    start = starts(setup, problem, Context(seed=42).torch_generator("starts"))
    other = starts(
        setup, draw(2, 2, 1.0, 1, Context(seed=42)), Context(seed=42).torch_generator("starts")
    )
    assert torch.equal(start[BLIND], other[BLIND])
    near = (start["0.1"] - problem.data).norm(dim=-1) / problem.data.norm()
    assert_close(near, torch.full_like(near, 0.1))


def test_ends_are_told_apart():
    problem = draw(2, 2, 1.0, 0, Context(seed=42))
    least = equations(problem.layer, problem.b)
    lost = torch.full_like(problem.data, torch.nan)
    ends = torch.stack([problem.data + 1e-6, lost, 1e9 * problem.data])
    found = ended(least, ends, problem.data, problem.b)
    assert found.exact.tolist() == [True, False, False]
    assert float(found.error[0]) < 1e-9 and torch.isinf(found.error[1:]).all()
    assert (
        len(distinct(torch.stack([problem.data, problem.data * (1 + 1e-9), 2 * problem.data]))) == 2
    )


def test_invariances_change_no_output_at_any_length():
    generator = seeded(3)
    v = normal(1, 3, 3, generator=generator)
    v[0, 2] = 0.0  # the third entry of a token has no value
    w = normal(1, 3, 3, generator=generator)
    x = normal(3, 4, generator=generator)
    assert invariances(Heads(w, v), 4).shape == (12, 0)
    w[0, :, 2] = 0.0  # nor does it ask: all tokens may move together
    together = Heads(w, v)
    w = w.clone()
    w[0, 2] = 0.0  # nor is it asked for: each may move alone
    for layer, count in ((together, 1), (Heads(w, v), 4)):
        basis = invariances(layer, 4)
        assert basis.shape == (12, count)
        moved = x + att.unvec((basis @ torch.ones(count, dtype=DTYPE)) * 2.0, 3)
        assert_close(layer.outputs(moved), layer.outputs(x), rtol=1e-10, atol=1e-10)
        values = layer.singular_values(x)
        assert int((values > 1e-10).sum()) <= 12 - count
        error = symmetric_error(att.vec(moved)[None], att.vec(x), basis, 3)
        assert float(error) < 1e-10
    swapped = att.vec(x[:, [1, 0, 2, 3]])[None]
    assert float(symmetric_error(swapped, att.vec(x), x.new_zeros(12, 0), 3)) < 1e-10


def test_contest_counts_every_start_and_repeats(setup, tables):
    contest = tables["contest"]
    assert set(contest["method"]) == set(setup.method)
    assert (contest["recovered"] + contest["wrong"] >= contest["exact"]).all()
    assert (contest["exact"] <= contest["starts"]).all() and (contest["work"] > 0).all()
    cell = next(cell for cell in setup.cells() if cell.params["study"] == "contest")
    again = frame(
        "contest", measure(setup, cell, Context(seed=42))["contest"], {**cell.params, "seed": 42}
    )
    pd.testing.assert_frame_equal(again, contest.head(len(again)))
    assert operations(2, 3)["gradient"] == 5 * 4 * 3 + 5 * 2 * 9


def test_a_start_goes_on_while_it_makes_progress_and_is_given_up_where_it_does_not(setup):
    problem = draw(2, 2, 1.0, 0, Context(seed=42))
    near = starts(setup, problem, Context(seed=42).torch_generator("starts"))["0.1"]
    objective = problem.objective(0.0).value

    def run(method, steps, progress):
        limited = replace(setup, steps=dict.fromkeys(setup.steps, steps), progress=progress)
        return run_and_follow(limited, method, problem, near)[0]

    for method in ("line search", "levenberg-marquardt"):
        once, full = (run(method, 3, progress) for progress in (1e-300, 0.5))
        # three steps do not arrive, more rounds do
        assert bool(once.given_up.all()) and (full.work > once.work).all()
        assert not bool(full.given_up.any()) and (objective(full.points) < 1e-20).all()
        whole = run(method, 500, 1e-300)
        assert_close(full.work, whole.work)  # rounds are the same path, charged once

    def stuck(x, rounds):
        return Round(
            x + rounds,
            torch.ones(len(x)),
            torch.full((len(x),), float(rounds)),
            torch.ones(len(x)) > 0,
        )

    for anew in (False, True):
        given_up = in_rounds(stuck, near, torch.ones(len(near)), 0.5, anew)
        assert bool(given_up.given_up.all()) and given_up.work.tolist() == [1.0] * len(near)
        assert torch.equal(followed(stuck, given_up, near, 3, anew), near + 4)


def test_theorem_converges_but_does_not_recover(setup, tables):
    verdicts = {claim.name: claim.verdict for claim in analyse(setup, tables).claims()}
    assert verdicts["convexity"] == verdicts["convergence"] == "true by construction"
    assert verdicts["certified"] == verdicts["larger ball"] == "confirmed"
    assert verdicts["recovery"] == "refuted"
    wished = {"theorem": tables["theorem"].assign(recovery_error=1e-3, excess=2.0)}
    verdicts = {claim.name: claim.verdict for claim in analyse(setup, wished).claims()}
    assert verdicts["recovery"] == "confirmed" and verdicts["convergence"] == "refuted"
    assert analyse(setup, {}).claims() == [] and analyse(setup, {}).figures() == {}


def test_claims_can_fail(setup, tables):
    def verdict(name, **changed):
        seeds = {}
        for key, table in (tables | changed).items():
            seeds[key] = pd.concat([table.assign(seed=s) for s in range(42, 47)])
        return next(claim.verdict for claim in analyse(setup, seeds).claims() if claim.name == name)

    contest, balls = tables["contest"], tables["balls"]
    assert verdict("unique", contest=contest.assign(wrong=contest["exact"])) == "refuted"
    assert verdict("unique", contest=contest.assign(wrong=0)) == "confirmed"
    assert verdict("blind recovery", contest=contest.assign(recovered=0)) == "refuted"
    assert verdict("caps", contest=contest.assign(late=contest["starts"])) == "refuted"
    assert verdict("caps", contest=contest.assign(late=0)) == "confirmed"
    assert verdict("certified", balls=balls.assign(converged=0)) == "refuted"
    targets = tables["targets"].assign(recovered=0, late=0)
    assert verdict("trained layer", targets=targets) == "refuted"
    assert (
        verdict("trained layer", targets=targets.assign(late=targets["starts"])) == "inconclusive"
    )


def test_equal_work_compares_at_what_ours_spent():
    about = {"size": "2x2", "problem": 0, "starts": 4}
    rows = [{**about, "seed": 42, "method": newton_claims.OURS, "recovered": 2, "work": 400.0}]
    rows.append({**about, "seed": 42, "method": "cheap", "recovered": 1, "work": 40.0})
    found = newton_claims.lead(pd.DataFrame(rows))
    assert found == {"cheap": [pytest.approx((1 - 0.5**4) - (1 - 0.75**40))]}


def test_figures(setup, tables):
    assert set(analyse(setup, tables).figures()) == {"outcomes"}
