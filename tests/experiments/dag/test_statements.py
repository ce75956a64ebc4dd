"""Every statement of Section 5 and Appendix N has a row of claims or of the scorecard, and none a limit of its own
making: limits are printed, or stand in the experiment's YAML with their reason."""

import math

import pandas as pd
import pytest

from experiments.printed import judged, statements
from runner.contract.claim import Statement
from runner.contract.schema import SettingError
from runner.report.collect import reference_path
from runner.report.compare import read_reference
from runner.run.config import build_job
from runner.stats import judge

NAMES = (
    *("exp1_resonance", "exp1b_spectral_norm", "exp1_deep", "exp2_bottleneck", "exp3_gn_gap", "exp3b_layernorm"),
    *("exp3_stochastic", "exp4_diamond", "exp5_attention", "exp6_resnet18"),
)
CLAIMED = {  # statement of the text, in its words -> experiment and row of claims.csv
    "R² > 0.91, plain, init and final": ("exp1_resonance", "plain R² of log R"),
    "b ≈ 0.02, residual": ("exp1_resonance", "residual slope"),
    "two orders slower than plain": ("exp1_resonance", "residual slower than plain"),
    "norms decrease by 3-4 orders at L = 12": ("exp1_resonance", "norms at L=12"),
    "to 1e-14 at L = 32": ("exp1_deep", "norms at L=32"),
    "plain C from 1 to 0.24": ("exp1_resonance", "plain C at the largest distance"),
    "plain C falls monotonically": ("exp1_resonance", "plain C monotone"),
    "residual C > 0.93": ("exp1_resonance", "residual C"),
    "both architectures shift upward": ("exp1_resonance", "C shifts upward"),
    "init ~ 1e-1": ("exp1_resonance", "scale of R at init"),
    "final ~ 1e0": ("exp1_resonance", "scale of R at the end"),
    "‖J_8 … J_1‖ ~ 5": ("exp1_resonance", "norm of the chain"),
    "λ₁ ~ −0.02": ("exp1_resonance", "Lyapunov exponent"),
    "residual ρ > 1 by construction": ("exp1_resonance", "rho of residual networks"),
    "at init the decay is guaranteed by λ₁ < 0": ("exp1_resonance", "negative exponent at init"),
    "after training λ₁ > 0 for all": ("exp1_resonance", "positive exponent after training"),
    "yet R still decays": ("exp1_resonance", "decay after training"),
    "contributions cancel upon averaging": ("exp1_resonance", "cancellation"),
    "R(0)/R(L−1) reaches 5.9": ("exp1_deep", "fall of R"),
    "C(L−1) drops to 0.145": ("exp1_deep", "coupling of the ends"),
    "residual C(L−1) > 0.91": ("exp1_deep", "residual C of the ends"),
    "residual R is stable": ("exp1_deep", "residual R is stable"),
    "from 1.75": ("exp1_deep", "start of the U"),
    "to a minimum of 0.33": ("exp1_deep", "bottom of the U"),
    "at d = 14": ("exp1_deep", "place of the bottom"),
    "to 0.52 at d = 31": ("exp1_deep", "end of the U"),
    "rise for d > L/2": ("exp1_deep", "rise of R"),
    "larger R(v,v) near the output": ("exp1_deep", "self-curvature near the output"),
    "C decays monotonically": ("exp1_deep", "C monotone"),
    "R² > 0.90": ("exp1_deep", "R² of log C"),
    "R² > 0.91": ("exp1_deep", "R² of log C at L=32"),
    "decay persists up to L = 32": ("exp1_deep", "R² of log R"),
    "D < 1 for distant pairs": ("exp1_deep", "D below 1"),
    "5.5 orders at L = 16": ("exp1b_spectral_norm", "decay in orders"),
    "plateau at 0.94": ("exp1b_spectral_norm", "plateau of R"),
    "ρ excess < 1.04": ("exp1b_spectral_norm", "rho after training"),
    "accuracy drops with depth": ("exp1b_spectral_norm", "accuracy drops"),
    "residual ~ 51 %": ("exp1b_spectral_norm", "accuracy of residual networks"),
    "suppression 6.5": ("exp2_bottleneck", "suppression of D_far"),
    "8-20 % lower at L = 8": ("exp2_bottleneck", "D_far of the deeper net"),
    "< 10 % after training": ("exp2_bottleneck", "D_far after training"),
    "without systematic direction": ("exp2_bottleneck", "no direction after training"),
    "C ≈ 2×": ("exp2_bottleneck", "range of C_far"),
    "C less sensitive": ("exp2_bottleneck", "C_far less sensitive"),
    "R const at init": ("exp2_bottleneck", "R_far constant"),
    "R decreases after training": ("exp2_bottleneck", "R_far falls"),
    "R² = 0.908": ("exp3_gn_gap", "linear fit of the gap"),
    "ρ = 0.97": ("exp3_gn_gap", "rank correlation"),
    "p < 0.01": ("exp3_gn_gap", "p of the ranking"),
    "H^T ~ σ''²": ("exp3_gn_gap", "scaling of H^T"),
    "gap stabilises": ("exp3_gn_gap", "gap stabilises"),
    "ranking with LayerNorm": ("exp3b_layernorm", "gap ranks as E[σ''²]"),
    "‖H^T‖ < 1e-7": ("exp3_gn_gap", "H^T of piecewise linear networks"),
    "accuracy < 12 %": ("exp3_gn_gap", "accuracy of smooth activations"),
    "0.82 % at init": ("exp3_stochastic", "discrepancy at init"),
    "0.33 % at the end": ("exp3_stochastic", "discrepancy at the end"),
    "overestimates": ("exp3_stochastic", "overestimation"),
    "within 5-10 %": ("exp3_stochastic", "stochastic estimates agree"),
    "R(d+2)/R(d) 0.28-0.39": ("exp4_diamond", "H4.2a ratio"),
    "growth 3.5-5.7": ("exp4_diamond", "H4.2b growth"),
    "weakened cancellation": ("exp4_diamond", "weakened cancellation"),
    "45 of 48": ("exp4_diamond", "H4.1"),
    "separation 2e7": ("exp4_diamond", "separation"),
    "< 3 % at init": ("exp4_diamond", "gap over branch depths, init"),
    "~ 15 % at the end": ("exp4_diamond", "gap over branch depths, final"),
    "MSE 0.99": ("exp5_attention", "attention MSE at init"),
    "MSE 0.57": ("exp5_attention", "attention MSE at the end"),
    "MSE 0.92": ("exp5_attention", "ReLU network MSE at init"),
    "MSE 0.03": ("exp5_attention", "ReLU network MSE at the end"),
    "< 2 % of ‖H‖": ("exp5_attention", "share of Gauss–Newton"),
    "gap ratio > 1e7": ("exp5_attention", "separation"),
    "785 parameters": ("exp5_attention", "size of attention"),
    "833 parameters": ("exp5_attention", "size of relu_mlp"),
    "R(0)/R(4) ~ 1": ("exp6_resnet18", "decay of the ReLU ResNet"),
    "627×": ("exp6_resnet18", "decay of the plain ReLU network"),
    "25×": ("exp6_resnet18", "decay of the SiLU ResNet"),
    "47000×": ("exp6_resnet18", "decay of the plain SiLU network"),
    "gap < 2e-6": ("exp6_resnet18", "gap of ReLU, final"),
    "gap < 1e-5": ("exp6_resnet18", "gap of ReLU"),
    "C monotone in all configurations": ("exp6_resnet18", "C monotone"),
    "D = NaN below 1e-12": ("exp6_resnet18", "negligible blocks"),
}
SCORED = {  # single numbers that stand in the scorecard alone
    "accuracies of Exp. 6": ("exp6_resnet18", "test_acc_percent", (88.3, 87.4, 88.2, 87.3, 80.8, 77.0, 79.9, 78.4)),
    "ρ = 0.91 at init": ("exp1b_spectral_norm", "rho_max", (0.91,)),
    "36.3 % and 10.0 %": ("exp1b_spectral_norm", "test_acc_percent", (36.3, 10.0)),
    "D = 11.2 and 5.2 of the control run": ("exp2_bottleneck", "D_far", (11.17, 5.18)),
}


@pytest.mark.parametrize("words", CLAIMED)
def test_a_statement_of_the_text_has_its_row(words):
    name, row = CLAIMED[words]
    assert row in statements(name)


@pytest.mark.parametrize("words", SCORED)
def test_a_number_of_the_text_has_its_row(words):
    name, metric, values = SCORED[words]
    table = read_reference(reference_path(name))
    printed = pd.to_numeric(table[table["metric"] == metric]["mean"]).round(6)
    assert set(values) <= set(printed)


@pytest.mark.parametrize("name", NAMES)
def test_every_statement_is_held_to_a_print_or_to_a_reading_with_its_reason(name):
    experiment = build_job([f"experiment={name}"]).experiment
    printed, says = statements(name), experiment.says
    assert list(says) == list(printed)
    for which, statement in says.items():
        assert statement.decidable, which
        assert statement.reading or statement.threshold == printed[which].threshold, which
        assert not printed[which].reading, f"{which}: a reading is a line of YAML"


def test_readings_replace_what_is_printed():
    printed = statements("exp4_diamond")["H4.2a ratio"]
    assert (printed.low, printed.high) == (0.28, 0.39)
    says = judged("exp4_diamond", {"H4.2a ratio": {"low": 0.1, "reason": "because"}})["H4.2a ratio"]
    assert (says.low, says.high, says.reading) == (0.1, 0.39, "because")
    number = judged("exp4_diamond", {"accuracy": {"high": 60, "reason": "because"}})["accuracy"]
    assert math.isnan(number.number) and number.holds(50) and not number.holds(61)
    assert judged("exp4_diamond", {"accuracy": {"margin": 1, "reason": "because"}})["accuracy"].number == 50


@pytest.mark.parametrize(
    ("readings", "text"),
    [
        ({"acuracy": {"margin": 1, "reason": "x"}}, "did you mean accuracy"),
        ({"accuracy": {"margin": 1}}, "expected limits and a reason"),
        ({"accuracy": {"margin": 1, "reason": " "}}, "expected limits and a reason"),
        ({"accuracy": {"lower": 1, "reason": "x"}}, "expected one of low, high, margin, reason"),
        ({"accuracy": {"low": "1", "reason": "x"}}, "expected a number, found '1'"),
        ({"accuracy": 3}, "expected limits and a reason"),
    ],
)
def test_a_reading_that_says_nothing_is_refused(readings, text):
    with pytest.raises(SettingError, match=text):
        judged("exp4_diamond", readings)


def test_what_could_not_fail_is_empty():
    bare = Statement(name="x", text="x", where="x")
    assert not bare.decidable
    assert judge.bound(bare, [1.0, 2.0, 3.0]).verdict == "empty"
    assert judge.number(bare, [1.0, 2.0, 3.0]).verdict == "empty"
    assert judge.exact(bare, {"": 1.0}).verdict == "empty"
