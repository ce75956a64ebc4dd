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
from runner.contract import Context, analyse
from runner.curvature.closed_form import attention as att
from runner.run.config import build_job, preview
from runner.store.identity import Identity
from tests.draws import normal, seeded
from tests.experiments.tables import check, joined, measured_again, merged

CTX = Context(seed=42)


@pytest.fixture(scope="module")
def setup():
    return build_job(["experiment=attention_newton", "profile=quick"]).experiment


@pytest.fixture(scope="module")
def tables(setup):
    """Merged tables of all studies at seed 42."""
    return merged(setup, (42,))


@pytest.fixture(scope="module")
def problem():
    return draw(2, 2, 1.0, 0, CTX)


def starts_of(setup, problem):
    return starts(setup, problem, CTX.torch_generator("starts"))


def test_cells_are_studies_at_sizes():
    setup = preview("attention_newton")
    cells = [(cell.params["study"], cell.params["size"]) for cell in setup.cells()]
    assert len(cells) == 3 * 3 + 1 and ("contest", "8x4") in cells and ("layer", "own") in cells
    assert setup.sizes("8x4") == (8, 4)
    # of the published cells
    assert Identity.of("attention_newton", setup).key == "4e2ec340e6086a31"


def test_problem_is_shared_by_the_cells_of_a_size():
    first, again, other = (draw(3, 2, 1.0, index, CTX) for index in (0, 0, 1))
    assert torch.equal(first.x, again.x) and torch.equal(first.w, again.w)
    assert torch.allclose(first.b, att.outputs(first.x, first.w, first.v))
    assert not torch.equal(first.x, other.x)


def test_minimiser_follows_the_first_order_prediction(problem):
    point, smallest, status = follow(problem.objective(1e-8), problem.data)
    shift = float((point - problem.data).norm() / problem.data.norm())
    assert status == "ok" and smallest > 0
    assert shift == pytest.approx(problem.predicted_shift(1e-8), rel=1e-2)


def test_blind_starts_know_nothing_of_the_data(setup, problem):
    start, other = (starts_of(setup, p) for p in (problem, draw(2, 2, 1.0, 1, CTX)))
    assert torch.equal(start[BLIND], other[BLIND])
    near = (start["0.1"] - problem.data).norm(dim=-1) / problem.data.norm()
    assert_close(near, torch.full_like(near, 0.1))


def test_ends_are_told_apart(problem):
    data = problem.data
    ends = torch.stack([data + 1e-6, torch.full_like(data, torch.nan), 1e9 * data])
    found = ended(equations(problem.layer, problem.b), ends, data, problem.b)
    assert found.exact.tolist() == [True, False, False]
    assert float(found.error[0]) < 1e-9 and torch.isinf(found.error[1:]).all()
    assert len(distinct(torch.stack([data, data * (1 + 1e-9), 2 * data]))) == 2


def test_invariances_change_no_output_at_any_length():
    generator = seeded(3)
    v, w = (normal(1, 3, 3, generator=generator) for _ in range(2))
    v[0, 2] = 0.0  # the third entry of a token has no value
    x = normal(3, 4, generator=generator)
    assert invariances(Heads(w, v), 4).shape == (12, 0)
    w[0, :, 2] = 0.0  # nor does it ask: all tokens may move together
    alone = w.clone()
    alone[0, 2] = 0.0  # nor is it asked for: each may move alone
    for weights, count in ((w, 1), (alone, 4)):
        layer = Heads(weights, v)
        basis = invariances(layer, 4)
        assert basis.shape == (12, count)
        moved = x + att.unvec(2.0 * basis.sum(1), 3)
        assert_close(layer.outputs(moved), layer.outputs(x), rtol=1e-10, atol=1e-10)
        assert int((layer.singular_values(x) > 1e-10).sum()) <= 12 - count
        assert float(symmetric_error(att.vec(moved)[None], att.vec(x), basis, 3)) < 1e-10
    swapped = att.vec(x[:, [1, 0, 2, 3]])[None]
    assert float(symmetric_error(swapped, att.vec(x), x.new_zeros(12, 0), 3)) < 1e-10


def test_contest_counts_every_start_and_repeats(setup, tables):
    contest = tables["contest"]
    assert set(contest["method"]) == set(setup.method)
    assert (contest["recovered"] + contest["wrong"] >= contest["exact"]).all()
    assert (contest["exact"] <= contest["starts"]).all() and (contest["work"] > 0).all()
    cell = next(cell for cell in setup.cells() if cell.params["study"] == "contest")
    again = measured_again(setup, cell, 42, "contest")
    pd.testing.assert_frame_equal(again, contest.head(len(again)))
    assert operations(2, 3)["gradient"] == 5 * 4 * 3 + 5 * 2 * 9


@pytest.mark.parametrize("method", ["line search", "levenberg-marquardt"])
def test_a_start_goes_on_while_it_makes_progress(setup, problem, method):
    near = starts_of(setup, problem)["0.1"]

    def run(steps, progress):
        limited = replace(setup, steps=dict.fromkeys(setup.steps, steps), progress=progress)
        return run_and_follow(limited, method, problem, near)[0]

    # three steps do not arrive, more rounds do
    once, full, whole = run(3, 1e-300), run(3, 0.5), run(500, 1e-300)
    assert bool(once.given_up.all()) and (full.work > once.work).all()
    assert not bool(full.given_up.any())
    assert (problem.objective(0.0).value(full.points) < 1e-20).all()
    assert_close(full.work, whole.work)  # rounds are the same path, charged once


@pytest.mark.parametrize("anew", [False, True])
def test_a_start_is_given_up_where_it_makes_no_progress(anew):
    def stuck(x, rounds):
        ones = torch.ones(len(x))
        return Round(x + rounds, ones, rounds * ones, ones > 0)

    near = torch.zeros(4, 4)
    given_up = in_rounds(stuck, near, torch.ones(4), 0.5, anew)
    assert bool(given_up.given_up.all()) and given_up.work.tolist() == [1.0] * 4
    assert torch.equal(followed(stuck, given_up, near, 3, anew), near + 4)


def test_theorem_converges_but_does_not_recover(setup, tables):
    held, by_construction = "certified; larger ball", "convexity; convergence"
    check(setup, tables, true_by_construction=by_construction, confirmed=held, refuted="recovery")
    wished = {"theorem": tables["theorem"].assign(recovery_error=1e-3, excess=2.0)}
    check(setup, wished, confirmed="recovery", refuted="convergence")
    nothing = analyse(setup, {})
    assert nothing.claims() == [] and nothing.figures() == {}


def repeated(table):
    return [table.assign(seed=seed) for seed in range(42, 47)]


def test_claims_can_fail(setup, tables):
    of_seeds = joined({k: repeated(t) for k, t in tables.items()})
    contest, balls, targets = (of_seeds[name] for name in ("contest", "balls", "targets"))

    def judged(changed, **expected):
        check(setup, of_seeds | changed, **expected)

    late = contest.assign(wrong=contest["exact"], late=contest["starts"])
    judged({"contest": late}, refuted="unique; caps")
    judged({"contest": contest.assign(wrong=0, late=0)}, confirmed="unique; caps")
    judged({"contest": contest.assign(recovered=0)}, refuted="blind recovery")
    judged({"balls": balls.assign(converged=0)}, refuted="certified")
    none = targets.assign(recovered=0, late=0)
    judged({"targets": none}, refuted="trained layer")
    judged({"targets": none.assign(late=none["starts"])}, inconclusive="trained layer")


def test_equal_work_compares_at_what_ours_spent():
    rows = pd.DataFrame({"method": [newton_claims.OURS, "cheap"], "recovered": [2, 1]})
    rows = rows.assign(size="2x2", problem=0, starts=4, seed=42, work=[400.0, 40.0])
    expected = (1 - 0.5**4) - (1 - 0.75**40)
    assert newton_claims.lead(rows) == {"cheap": [pytest.approx(expected)]}


def test_figures(setup, tables):
    assert set(analyse(setup, tables).figures()) == {"outcomes"}
