"""Verdicts on the authors' own networks, against sums on their published means that share no code
with them."""

import csv
import itertools
import math

import pytest

from experiments.dag.protocol.authors import Results, by_value
from runner.contract import Statement
from runner.results import load
from runner.run.config.experiment import preview
from runner.stats.numbers import read_numbers, unrounded
from tests import ROOT
from tests.experiments.tables import claims_of

REFERENCE = ROOT / "experiments" / "reference"


pytestmark = pytest.mark.usefixtures("published")


def means():
    with open(REFERENCE / "unrounded" / "results.csv", newline="") as stream:
        return {f"{r['file']}:{r['place']}": float(r["mean"]) for r in csv.DictReader(stream)}


M = means()


def r_squared(y):
    n = len(y)
    x, middle = [i - (n - 1) / 2 for i in range(n)], sum(y) / n
    slope = sum(a * b for a, b in zip(x, y, strict=True)) / sum(a * a for a in x)
    rest = sum((b - middle - slope * a) ** 2 for a, b in zip(x, y, strict=True))
    return 1 - rest / sum((b - middle) ** 2 for b in y)


def published_claims(name):
    return claims_of(preview(name), dict(load(name)))


def decided(claim):
    return claim.authors, claim.authors_value


def near(value):
    return pytest.approx(value, rel=1e-6)


def test_fits_of_plain_networks_and_coupling_of_residual_ones():
    made, fits, smallest = published_claims("exp1_resonance"), [], []
    for n, c in itertools.product((8, 10, 12), ("init", "final")):
        norms = [M[f"exp1:{n}/plain/{c}/distances/{d}/R"] for d in range(n)]
        fits.append(r_squared([math.log(norm) for norm in norms]))
        smallest += [M[f"exp1:{n}/residual/{c}/distances/{d}/C"] for d in range(n)]
    assert min(fits) > 0.917 and max(fits) < 0.983
    found = made["plain R² of log R"]
    assert found.authors == "confirmed" and found.authors_value in [near(fit) for fit in fits]
    assert min(smallest) < 0.93 and made["residual C"].authors == "refuted"


def test_suppression_across_the_narrow_layer():
    found = published_claims("exp2_bottleneck")
    ratio = M["exp2_unified:6/256/init/D_far"] / M["exp2_unified:6/4/init/D_far"]
    assert ratio == pytest.approx(6.52, abs=0.005)
    assert decided(found["suppression of D_far"]) == ("confirmed", near(ratio))
    # a range of percents is held to its printed digits
    place = "exp2_unified:{}/{}/init/D_far".format
    ratios = [M[place(8, d)] / M[place(6, d)] for d in (64, 128, 256, 512)]
    lower = [100 * (1 - ratio) for ratio in ratios]
    assert 7.5 < min(lower) < 8 and max(lower) < 20.5  # printed: 8 to 20
    assert found["D_far of the deeper net"].authors == "confirmed"


def test_discrepancies_of_the_printed_table():
    made = published_claims("exp3_stochastic")
    for name, checkpoints, printed in (
        ("discrepancy at init", ("init",), 0.82),
        ("discrepancy at the end", ("final",), 0.33),
        ("below 1 %", ("init", "final"), 0.82),
    ):
        places = [f"{a}/{c}/gap_global" for a in ("softplus", "silu", "gelu") for c in checkpoints]
        sizes = [100 * abs(M[f"exp3_appendix:{p}"] / M[f"exp3:{p}"] - 1) for p in places]
        assert max(sizes) == pytest.approx(printed, abs=0.005)
        assert decided(made[name]) == ("confirmed", near(max(sizes)))


def test_growth_across_branches():
    place = "exp4:2/{}/final/cross_AB/{}/R".format
    kinds = ("sum_relu", "cat_relu", "sum_silu", "cat_silu")
    growth = [M[place(kind, 4)] / M[place(kind, 2)] for kind in kinds]
    assert max(growth) == pytest.approx(6.47, abs=0.005)
    assert published_claims("exp4_diamond")["H4.2b growth"].authors == "refuted"


def test_gap_under_layer_norm_after_the_middle():
    change = M["exp3_ln:gelu/final/gap_global"] / M["exp3_ln:gelu/mid/gap_global"] - 1
    assert change == pytest.approx(0.256, abs=0.0005)
    found = published_claims("exp3b_layernorm")["gap stabilises"]
    assert decided(found) == ("refuted", near(change))


def test_decay_of_untrained_resnets():
    made = published_claims("exp6_resnet18")
    place = "exp6:relu/plain_resnet18/init/distances/{}/R".format
    ratio = M[place(0)] / M[place(4)]
    assert ratio == pytest.approx(626.99, abs=0.01)
    assert made["decay of the plain ReLU network"].authors_value == near(ratio)
    assert made["gap before the head"].authors == "confirmed"


def test_printed_means_round_their_results():
    table = read_numbers(REFERENCE / "dag" / "numbers.csv")
    known = unrounded(REFERENCE / "unrounded" / "results.csv")
    rows = table[(table["results"] != "") & (table["mean"] != "")]
    assert len(rows)
    for row in rows.to_dict("records"):
        mantissa, _, exponent = row["mean"].lower().partition("e")
        digits = len(mantissa.partition(".")[2]) - int(exponent or 0)
        error = abs(float(row["mean"]) - known[row["results"]][0])
        assert error <= 0.5000001 * 10.0**-digits, row


def test_a_number_of_the_text_is_about_its_value():
    says = Statement(name="s", text="about 2.6", place="x", number=2.6, rounding=0.05, std=0.3, n=5)
    made = by_value(says)
    assert (made.margin, made.std) == (pytest.approx(0.13), 0.0)
    assert Results("exp5", ("network",)).rows(by_distance=True) == []
