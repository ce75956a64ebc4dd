"""The attention_hessian experiment: instances obey the assumption, claims can fail, figures draw."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch

from experiments.attention.bounds import BOUNDS, POINT
from experiments.attention.hessian_report import claims, measured, notes, statistics
from experiments.attention.measure import climb, draw, draw_raw, feasible
from experiments.attention.settings import AttentionHessian
from runner.contract import Context, SettingError, analyse, measure
from runner.run.config import build_job
from runner.store.tables import frame

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def setup() -> AttentionHessian:
    found = build_job(["experiment=attention_hessian", "profile=quick"]).experiment
    assert isinstance(found, AttentionHessian)
    return found


@pytest.fixture(scope="module")
def tables(setup: AttentionHessian) -> dict[str, pd.DataFrame]:
    """Measured tables of two random cells and a small ascent, as the runner would merge them."""
    cells = setup.cells()
    merged: dict[str, list[pd.DataFrame]] = {}
    for cell in (cells[0], cells[-3], cells[-1]):
        for name, table in measure(setup, cell, Context(seed=42)).items():
            merged.setdefault(name, []).append(frame(name, table, {**cell.params, "seed": 42}))
    return {name: pd.concat(parts, ignore_index=True) for name, parts in merged.items()}


@pytest.mark.parametrize("aligned", [False, True])
def test_random_instances_obey_the_assumption(setup: AttentionHessian, aligned: bool) -> None:
    x, y, w, v, b = draw(aligned, 3, 2, 2.0, setup, torch.Generator().manual_seed(0))
    for matrix in (x, w, v):
        assert torch.allclose(torch.linalg.matrix_norm(matrix, 2), torch.tensor(2.0, dtype=x.dtype))
    assert torch.linalg.matrix_norm(y, 2).max() <= 2 + 1e-12
    assert b.abs().max() <= 4
    assert ((x - y).norm(dim=(-2, -1)) > 0).all()
    if aligned:
        assert (torch.linalg.svdvals(x)[:, 1] < 1e-12).all()


def test_ascent_stays_feasible_and_climbs(setup: AttentionHessian) -> None:
    raw = draw_raw(2, 2, 3, torch.Generator().manual_seed(1))
    x, y, w, _v, b = feasible([100 * m for m in raw], 1.5, 0.01)
    for matrix in (x, y, w):
        assert torch.linalg.matrix_norm(matrix, 2).max() <= 1.5 + 1e-12
    assert b.abs().max() <= 1.5**2
    start = POINT["I.2"](*(feasible(raw, 1.5, setup.near)[i] for i in (0, 2, 3, 4)))
    found = climb("I.2", raw, 1.5, setup)
    assert (found >= start - 1e-12).all() and (found > 1.05 * start).any()
    assert found.max() <= BOUNDS["I.2"].printed(2, 2, 1.5)


def test_tables_cover_every_bound_and_repeat(setup: AttentionHessian, tables: dict[str, pd.DataFrame]) -> None:
    assert set(tables["bounds"]["bound"]) == set(BOUNDS)
    assert (tables["bounds"]["status"] == "ok").all()
    assert tables["accuracy"][["hessian_error", "product_error"]].to_numpy().max() < 1e-10
    assert (tables["convexity"]["needed_gamma"] <= tables["convexity"]["admissible_gamma"]).all()
    cell = setup.cells()[0]
    first, second = (measure(setup, cell, Context(seed=42)) for _ in range(2))
    assert repr(first) == repr(second)  # as text, because NaN differs from itself


def test_claims_confirm_and_can_refute(tables: dict[str, pd.DataFrame]) -> None:
    found = claims(tables)
    assert len(found) == len(BOUNDS) and {claim.verdict for claim in found} == {"confirmed"}
    bounds = tables["bounds"].copy()
    bounds.loc[bounds.index[-1], ["ratio", "largest"]] = 1.2
    broken = {c.name: c.verdict for c in claims({"bounds": bounds})}
    assert broken[f"lemma_{bounds['bound'].iloc[-1]}"] == "refuted"
    bounds.loc[bounds.index[-1], ["ratio", "status"]] = [0.5, "not finite"]
    assert {c.name: c.verdict for c in claims({"bounds": bounds})}[
        f"lemma_{bounds['bound'].iloc[-1]}"
    ] == "inconclusive"
    assert claims({}) == []


def test_measured_fits_the_reference_and_notes_speak(tables: dict[str, pd.DataFrame]) -> None:
    values = measured(tables)
    assert values is not None and set(values["bound"]) == set(BOUNDS)
    assert (values["value"] <= 1).all()
    assert any("Loosest" in line for line in notes(tables)) and any("Closed form" in line for line in notes(tables))
    assert measured({}) is None and notes({}) == []
    assert all(row.kind == "linear" for row in statistics(tables))


def test_figures_draw(setup: AttentionHessian, tables: dict[str, pd.DataFrame]) -> None:
    drawn = analyse(setup, tables).figures()
    assert set(drawn) == {"tightness", "index_cases", "convexity"}
    for make in drawn.values():
        make().canvas.draw()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("experiment.radius=[1.0]", "above 1"),
        ("experiment.search=[descent]", "expected one of gaussian"),
        ("experiment.near=0.7", "between 0 and 0.5"),
        ("experiment.instances=0", "above zero"),
    ],
)
def test_mistakes_are_named(override: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        build_job(["experiment=attention_hessian", override])


def test_an_ascent_that_covers_nothing_is_refused() -> None:
    arguments: list[Any] = ["experiment=attention_hessian", "experiment.search=[ascent]", "experiment.tokens=[8]"]
    with pytest.raises(SettingError, match="at least one cell"):
        build_job([*arguments, "experiment.width=[8]"])
