"""Twenty printed comparisons, computed again from the stored cells by code that imports nothing of
the project."""

import math
from itertools import product

import pytest
from scipy.stats import t

from tests.experiments.stored import SEEDS, chosen, rows, verdicts


def comparisons():
    """(experiment, table, its rows, their row of the scorecard, the value of a seed's sums)."""
    for activation, at in product(("softplus", "silu", "gelu"), ("init", "final")):
        at = {"activation": activation, "checkpoint": at}
        keys = at | {"metric": "gap_global"}
        yield "exp3_gn_gap", "distances", at | {"images": 0}, keys, lambda s: s.tensor / s.gn
    for arch, d in product(("resnet18", "plain_resnet18"), (0, 4)):
        at = {"activation": "relu", "arch": arch, "checkpoint": "init", "distance": d}
        where = at | {"estimator": "published", "statistics": "running"}
        yield "exp6_resnet18", "distances", where, at | {"metric": "R"}, lambda s: s.R
    for d_u in (4, 256):
        at = {"depth": 6, "d_u": d_u, "checkpoint": "final"}
        where, keys = at | {"phase": "trained", "images": 0}, at | {"base_width": 512}
        yield "exp2_bottleneck", "far", where, keys | {"metric": "D_far"}, lambda s: s.D_estimate
        keys |= {"metric": "C_far"}
        yield "exp2_bottleneck", "far", where, keys, lambda s: s.C_estimate
    for at in ("init", "mid", "final"):
        at = {"network": "attention", "protocol": "recovered", "checkpoint": at}
        keys = at | {"metric": "gap"}
        yield "exp5_attention", "blocks", at | {"images": 0}, keys, lambda s: s.gap
    for arch, at in (("plain", "init"), ("plain", "final"), ("residual", "init")):
        at = {"depth": 8, "arch": arch, "checkpoint": at}
        keys = at | {"metric": "rho_max", "initial": "published"}
        yield "exp1_resonance", "networks", at | {"images": 0}, keys, lambda s: s.rho


CASES = list(comparisons())


@pytest.mark.parametrize("case", CASES, ids=lambda c: " ".join(map(str, (c[0], *c[3].values()))))
def test_a_printed_comparison_computed_again(case):
    experiment, table, where, keys, of = case
    sums = rows(experiment, table, **where).groupby("seed").sum(numeric_only=True)
    values = of(sums)
    assert set(values.index) == set(SEEDS)
    (row,) = chosen(verdicts(experiment), **keys).to_dict("records")
    n, mean = len(values), math.fsum(values) / len(values)
    variance = math.fsum((v - mean) ** 2 for v in values) / (n - 1)
    assert row["measured_mean"] == pytest.approx(mean, rel=1e-7)
    assert row["measured_std"] == pytest.approx(math.sqrt(variance), rel=1e-6)
    printed = row["paper_mean"]
    if row["verdict"] == "exact match":
        assert abs(mean - printed) <= row["resolution"] * (1 + 1e-6)
    if not math.isnan(row["rounding_std"]) or not isinstance(row["equivalence"], str):
        return
    stds = (row.get(c, math.nan) for c in ("paper_std", "results_std"))
    known = [std for std in stds if not math.isnan(std)]
    std = known[0] if known else math.nan
    theirs = std**2 / (n - 1) if not math.isnan(std) else variance / n
    parts = [(variance / n, n - 1), (theirs, n - 1)]
    if math.isnan(std):
        parts = [(variance / n + theirs, n - 1)]
    if row["image_variance"] > 0:
        parts.append((row["image_variance"], row["image_df"]))
    square = sum(v for v, _ in parts)
    df = square**2 / sum(v**2 / d for v, d in parts if v > 0)
    half = float(t.ppf(0.95, df)) * math.sqrt(square)
    low, high = mean - printed - half, mean - printed + half
    assert (row["low"], row["high"]) == pytest.approx((low, high), rel=1e-5)
    margin = row["margin"]
    inside, outside = -margin <= low and high <= margin, low > margin or high < -margin
    expected = "not reproduced" if outside else "inconclusive"
    if inside:
        expected = "reproduced"
    assert row["equivalence"] == expected


def test_there_are_twenty():
    assert len(CASES) == 20
