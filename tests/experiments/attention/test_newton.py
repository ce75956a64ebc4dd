"""The attention_newton experiment: grid, outcomes, Theorem J.1 in numbers, claims that can fail, figures."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

from experiments.attention.newton import AttentionNewton
from experiments.attention.newton.claims import at_base, basin_radius, measured
from experiments.attention.newton.figures import work_per_run
from experiments.attention.newton.measure import OUTCOMES, outcomes, run
from experiments.attention.newton.problem import draw, follow
from runner.contract.experiment import Cell, Context, SettingError
from runner.curvature.closed_form import attention as att
from runner.run.config import build_job
from runner.store.tables import frame

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def setup() -> AttentionNewton:
    found = build_job(["experiment=attention_newton", "profile=quick"]).experiment
    assert isinstance(found, AttentionNewton)
    return found


@pytest.fixture(scope="module")
def tables(setup: AttentionNewton) -> dict[str, pd.DataFrame]:
    """Merged tables of two seeds at the base point, and of a noisy cell."""
    merged: dict[str, list[pd.DataFrame]] = {}
    base = {"tokens": setup.base_tokens, "width": setup.base_width, "gamma": setup.base_gamma}
    for seed, noise in ((42, 0.0), (43, 0.0), (42, 0.01)):
        cell = Cell({**base, "noise": noise})
        for name, table in setup.measure(cell, Context(seed=seed)).items():
            merged.setdefault(name, []).append(frame(name, table, {**cell.params, "seed": seed}))
    return {name: pd.concat(parts, ignore_index=True) for name, parts in merged.items()}


def test_cells_leave_the_base_point_along_one_axis() -> None:
    setup = build_job(["experiment=attention_newton"]).experiment
    assert isinstance(setup, AttentionNewton)
    base = {"tokens": 4, "width": 3, "gamma": 1e-8, "noise": 0.0}
    cells = [cell.params for cell in setup.cells()]
    assert base in cells and len(cells) == 9 + 4 + 3
    for params in cells:
        changed = {name for name in base if params[name] != base[name]}
        assert changed <= {"tokens", "width"} or len(changed) == 1
    assert sum(setup.tests_theorem(cell) for cell in setup.cells()) == 9


def test_problem_is_shared_by_the_cells_of_a_size() -> None:
    ctx = Context(seed=42)
    clean, noisy = (draw(3, 2, noise, 1.0, 0, ctx) for noise in (0.0, 0.1))
    assert torch.equal(clean.x, noisy.x) and torch.equal(clean.w, noisy.w)
    assert torch.allclose(clean.b, att.outputs(clean.x, clean.w, clean.v))
    assert 0 < (noisy.b - clean.b).norm() < clean.b.norm()
    assert not torch.equal(clean.x, draw(3, 2, 0.0, 1.0, 1, ctx).x)


def test_minimiser_follows_the_first_order_prediction() -> None:
    problem = draw(2, 2, 0.0, 1.0, 0, Context(seed=42))
    point, smallest, status = follow(problem.objective(1e-8), problem.data)
    shift = float((point - problem.data).norm() / problem.data.norm())
    assert status == "ok" and smallest > 0
    assert shift == pytest.approx(problem.predicted_shift(1e-8), rel=1e-2)
    assert problem.predicted_shift(1e12) == pytest.approx(1.0, rel=1e-6)


def test_outcomes_are_told_apart(setup: AttentionNewton) -> None:
    problem = draw(2, 2, 0.0, 1.0, 0, Context(seed=42))
    objective = problem.objective(1e-8)
    minimiser, _, _ = follow(objective, problem.data)
    start = torch.stack([minimiser, torch.zeros_like(minimiser), minimiser + 1e-3])
    trace = run("full", objective, start, setup)
    found = outcomes(setup, problem, objective, trace, torch.arange(3), minimiser)
    assert found[0] == found[2] == "minimiser"
    assert found[1] != "minimiser" and found[1] in OUTCOMES


def test_tables_count_every_start_and_repeat(setup: AttentionNewton, tables: dict[str, pd.DataFrame]) -> None:
    basin = tables["basin"]
    assert set(basin["method"]) == set(setup.method) and set(basin["distance"]) == set(setup.distance)
    counted = basin[[name.replace(" ", "_") for name in OUTCOMES]].sum(axis=1)
    assert (counted == basin["starts"]).all()
    assert (tables["iterates"].groupby(["seed", "method", "distance", "noise"])["step"].diff().dropna() == 1).all()
    near = basin[(basin["distance"] == min(setup.distance)) & (basin["method"] == "line search")]
    assert (near["minimiser"] == near["starts"]).all()
    assert tables["cost"]["milliseconds"].isna().all()
    cell = Cell({"tokens": 2, "width": 2, "gamma": setup.base_gamma, "noise": 0.0})
    first, second = (setup.measure(cell, Context(seed=42)) for _ in range(2))
    assert repr(first) == repr(second)  # as text, because NaN differs from itself


def test_theorem_converges_but_does_not_recover(setup: AttentionNewton, tables: dict[str, pd.DataFrame]) -> None:
    theorem = tables["theorem"]
    assert (theorem["status"] == "ok").all()
    assert (theorem["norm_share"] < 1e-2).all() and (theorem["recovery_error"] > 0.99).all()
    verdicts = {claim.name: claim.verdict for claim in setup.analyse(tables).claims()}
    assert verdicts == {
        **dict.fromkeys(("recovery from a tenth", "recovery from afar"), "empty"),  # distances that this grid lacks
        "convexity": "confirmed",
        "convergence": "confirmed",
        "recovery": "refuted",
        "order": "no power",
    }
    wished = {"theorem": theorem.assign(recovery_error=1e-3, excess=2.0)}
    verdicts = {claim.name: claim.verdict for claim in setup.analyse(wished).claims()}
    assert verdicts["recovery"] == "confirmed" and verdicts["convergence"] == "refuted"
    assert setup.analyse({}).claims() == []


def test_scan_recovers_at_small_gamma_only(setup: AttentionNewton, tables: dict[str, pd.DataFrame]) -> None:
    clean = tables["scan"].query("noise == 0 and status == 'ok'")
    smallest = clean[clean["scanned_gamma"] == clean["scanned_gamma"].min()]
    assert (smallest["error_data"] < setup.recovered).all()
    assert (clean.loc[clean["admissible"], "error_data"] > 0.99).all()


def test_measured_statistics_and_notes(setup: AttentionNewton, tables: dict[str, pd.DataFrame]) -> None:
    values = measured(tables)
    assert values is not None and set(values["metric"]) == {"error_over_epsilon", "recovery_error"}
    assert set(values["seed"]) == {42, 43}
    radii = basin_radius(tables["basin"])
    assert set(radii["radius"]) <= {0.0, *setup.distance}
    assert len(setup.analyse(tables).statistics()) >= len(setup.method)
    assert any("Theorem J.1" in line for line in setup.analyse(tables).notes())
    assert measured({}) is None and setup.analyse({}).notes() == [] and setup.analyse({}).statistics() == []


def test_work_counts_what_each_method_does() -> None:
    rows = pd.DataFrame({"steps": [3.0], "work": [10.0]})
    parts = {"value": 1.0, "gradient": 2.0, "hessian": 100.0, "product": 5.0, "cholesky": 50.0}
    counts = pd.Series(parts)
    assert work_per_run(rows, counts, "full").item() == 3 * (3 + 150)
    assert work_per_run(rows, counts, "truncated CG").item() == 3 * 3 + 10 * 5
    assert work_per_run(rows, counts, "l-bfgs").item() == 10 * 3


def test_figures_draw(setup: AttentionNewton, tables: dict[str, pd.DataFrame]) -> None:
    drawn = setup.analyse(tables).figures()
    assert set(drawn) == {"iterates", "basin", "outcomes", "order", "recovery", "cost"}
    for make in drawn.values():
        make().canvas.draw()
    assert len(at_base(setup, tables["basin"])) < len(tables["basin"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("experiment.method=[newton]", "expected one of full"),
        ("experiment.scan=[1.0,0.1]", "rising values"),
        ("experiment.shown=[0.5]", "expected one of"),
        ("experiment.tokens=[6]", "along one axis only"),
        ("experiment.gamma=[-1.0]", "zero or more"),
    ],
)
def test_mistakes_are_named(override: str, message: str) -> None:
    arguments = ["experiment=attention_newton", override]
    if "tokens" in override:
        arguments.append("experiment.gamma=[0.0]")
    with pytest.raises(SettingError, match=message):
        build_job(arguments)
