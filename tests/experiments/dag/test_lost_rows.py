"""One value of a seed is infinite or missing: what reads it is not confirmed, and says so."""

import math
from dataclasses import replace
from itertools import product

import pytest

from tests.experiments.test_alternatives import analysis_of
from tests.slow import daily

SEED = 44
TABLES = {
    "exp5_attention": {"history": ["train_loss"], "networks": ["test_loss"], "blocks": ["gap"]},
    "exp3b_layernorm": {"distances": ["gn", "tensor"], "networks": ["sigma_pp_squared"]},
    "exp1_resonance": {"distances": ["R", "C"], "networks": ["rho", "lyapunov_1"]},
    "exp2_bottleneck": {"far": ["D_estimate", "C_estimate", "R_estimate"]},
    "exp4_diamond": {"distances": ["R"], "merge": ["gap"], "networks": ["rho"]},
    "exp6_resnet18": {"distances": ["R", "C", "tensor"]},
    "exp3_stochastic": {"draws": ["gap_exact", "gap_stochastic"]},
}
DAILY = ("exp5_attention",)


def read(claim):
    """What the deciding variant measured."""
    return f"{claim.statistic:.9g}", claim.detail


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize(
    "name",
    daily(TABLES, DAILY),
)
def test_a_lost_value_leaves_what_reads_it_undecided(name, tmp_path):
    analysis = analysis_of(name, tmp_path)
    before = {claim.name: claim for claim in analysis.claims()}
    moved = 0
    for table, columns in TABLES[name].items():
        rows = analysis.tables[table]
        of_paper = (rows.get("images", 0) == 0) & (rows.get("protocol", "recovered") == "recovered")
        own = rows[(rows["seed"] == SEED) & of_paper]
        for column, lost in product(columns, (math.nan, math.inf)):
            known = own.index[own[column].notna()]
            for at in {known[0], known[len(known) // 2], known[-1]}:
                damaged = rows.astype({column: float})
                damaged.loc[at, column] = lost
                changed = replace(analysis, tables=analysis.tables | {table: damaged})
                moved += check_moved(changed.claims(), before)
    assert moved


def check_moved(claims, before):
    """How many of the claims read the lost value; none of them is better for it."""
    moved = [claim for claim in claims if read(claim) != read(before[claim.name])]
    for claim in moved:
        counted = "infinite or missing" in claim.detail
        elsewhere = counted and claim.statistic == before[claim.name].statistic
        assert claim.verdict != "confirmed" or elsewhere, claim
        assert counted or claim.verdict != "refuted", claim
    return len(moved)
