"""The attention_newton experiment: grid, outcomes, symmetries, claims that can fail, figures."""

from dataclasses import replace

import pandas as pd
import pytest
import torch
from torch.testing import assert_close

from experiments.attention.problem import (
    distinct,
    draw,
    ended,
    follow,
    invariances,
    near,
    symmetric_error,
)
from experiments.attention.recovery import BLIND, origin_rows, starts
from experiments.attention.theorem import order_row
from runner.closed_form import attention as att
from runner.contract import Context, analyse
from runner.run.config.experiment import preview
from runner.run.config.jobs import build_job
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
    assert len(cells) == 2 * 3 and ("theorem", "2x2") in cells and ("recovery", "8x4") in cells
    assert setup.sizes("8x4") == (8, 4)
    # of the published cells
    assert Identity.of("attention_newton", setup).key == "394f10bd4a3f14b7"


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
    distance = (start["0.1"] - problem.data).norm(dim=-1) / problem.data.norm()
    assert_close(distance, torch.full_like(distance, 0.1))


def test_ends_are_told_apart(problem):
    data = problem.data
    ends = torch.stack([data + 1e-6, torch.full_like(data, torch.nan), 1e9 * data])
    found = ended(problem, ends)
    assert found.exact.tolist() == [True, False, False]
    assert float(found.error[0]) < 1e-9 and torch.isinf(found.error[1:]).all()
    assert len(distinct(torch.stack([data, data * (1 + 1e-9), 2 * data]))) == 2


def test_equations_are_the_outputs_less_b_with_their_jacobian(problem):
    equations, at = problem.equations, normal(2, 4, generator=seeded(4))
    outputs = [att.outputs(att.unvec(one, 2), problem.w, problem.v) for one in at]
    wanted = torch.stack([(one - problem.b).flatten() for one in outputs])
    assert_close(equations.value(at), wanted, rtol=1e-13, atol=1e-13)
    jacobian = torch.stack([torch.func.jacrev(equations.value)(one) for one in at])
    assert_close(equations.jacobian(at), jacobian, rtol=1e-12, atol=1e-12)


def test_invariances_change_no_output_at_any_length():
    generator = seeded(3)
    v, w = (normal(3, 3, generator=generator) for _ in range(2))
    v[2] = 0.0  # the third entry of a token has no value
    x = normal(3, 4, generator=generator)
    assert invariances(w, v, 4).shape == (12, 0)
    w[:, 2] = 0.0  # nor does it ask: all tokens may move together
    alone = w.clone()
    alone[2] = 0.0  # nor is it asked for: each may move alone
    for weights, count in ((w, 1), (alone, 4)):
        basis = invariances(weights, v, 4)
        assert basis.shape == (12, count)
        moved = x + att.unvec(2.0 * basis.sum(1), 3)
        outputs = (att.outputs(tokens, weights, v) for tokens in (moved, x))
        assert_close(*outputs, rtol=1e-10, atol=1e-10)
        rank = torch.linalg.matrix_rank(att.jacobian(x, weights, v).flatten(0, 1), atol=1e-10)
        assert int(rank) <= 12 - count
        assert float(symmetric_error(att.vec(moved)[None], att.vec(x), basis, 3)) < 1e-10
    swapped = att.vec(x[:, [1, 0, 2, 3]])[None]
    assert float(symmetric_error(swapped, att.vec(x), x.new_zeros(12, 0), 3)) < 1e-10


def test_recovery_counts_every_start_and_repeats(setup, tables):
    recovery, solutions = tables["recovery"], tables["solutions"]
    assert list(recovery["origin"]) == [BLIND, "0.1"] and list(recovery["starts"]) == [4, 2]
    assert (recovery["recovered"] + recovery["wrong"] >= recovery["exact"]).all()
    assert (recovery["exact"] <= recovery["starts"]).all() and (recovery["steps"] > 0).all()
    assert solutions["distinct"].sum() == (solutions["wrong"] + solutions["truth_found"]).sum()
    cell = next(cell for cell in setup.cells() if cell.params["study"] == "recovery")
    again = measured_again(setup, cell, 42, "recovery")
    pd.testing.assert_frame_equal(again, recovery)


def test_starts_that_the_cap_stops_are_counted(setup, problem):
    by_origin = {"0.1": starts_of(setup, problem)["0.1"]}
    rows, exact = origin_rows(replace(setup, max_steps=3), problem, by_origin)
    assert rows[0]["capped"] == rows[0]["starts"] and rows[0]["steps"] == 3 * len(by_origin["0.1"])
    rows, exact = origin_rows(setup, problem, by_origin)
    assert rows[0]["capped"] == 0 and rows[0]["exact"] == len(exact)


def test_full_steps_near_the_data_have_order_two():
    problem = draw(2, 2, 1.0, 0, Context(seed=44))  # well conditioned
    found = order_row(problem, near(problem.data, 1e-2, 6, seeded()), 20)
    assert found["starts"] == 6 and found["converged"] > 0
    assert found["order"] == pytest.approx(2.0, abs=0.3)
    away = order_row(problem, near(problem.data, 1e-2, 6, seeded()), 1)  # one step does not arrive
    assert away["converged"] == 0 and away["order"] != away["order"]


def test_theorem_converges_but_does_not_recover(setup, tables):
    check(setup, tables, true_by_construction="convexity; convergence", refuted="recovery")
    wished = {"theorem": tables["theorem"].assign(recovery_error=1e-3, excess=2.0)}
    check(setup, wished, confirmed="recovery", refuted="convergence")
    nothing = analyse(setup, {})
    assert {c.verdict for c in nothing.claims()} == {"not run", "true by construction"}
    assert nothing.figures() == {}


def repeated(table):
    return [table.assign(seed=seed) for seed in range(42, 47)]


def test_claims_can_fail(setup, tables):
    of_seeds = joined({k: repeated(t) for k, t in tables.items()})
    recovery, solutions, orders = (of_seeds[k] for k in ("recovery", "solutions", "orders"))

    def judged(changed, **expected):
        check(setup, of_seeds | changed, **expected)

    judged({"recovery": recovery.assign(exact=2, wrong=2)}, refuted="unique")
    judged({"recovery": recovery.assign(exact=2, wrong=0)}, confirmed="unique")
    judged({"recovery": recovery.assign(recovered=0)}, refuted="blind recovery")
    judged({"recovery": recovery.assign(recovered=1)}, confirmed="blind recovery")
    others = solutions.assign(wrong=3, wrong_by_symmetry=0)
    judged({"solutions": others}, refuted="symmetry")
    judged({"solutions": others.assign(wrong_by_symmetry=3)}, confirmed="symmetry")
    problems = pd.concat([orders, orders.assign(problem=1)])
    judged({"orders": problems.assign(order=2.0)}, confirmed="order")
    judged({"orders": problems.assign(order=1.0)}, refuted="order")
    judged({"orders": orders.assign(order=2.0)}, inconclusive="order")  # too few problems


def test_figures(setup, tables):
    assert set(analyse(setup, tables).figures()) == {"outcomes"}
