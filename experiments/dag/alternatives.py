"""How things would be if confirmed statements of the DAG paper were false, by experiment."""

from __future__ import annotations

from collections.abc import Mapping

from runner.stats.alternatives import (
    Change,
    columns_exchanged,
    exchanged,
    random_order,
    reversed_order,
    scaled,
    shifted,
    to_power,
)

Changes = Mapping[str, Change]
"""What would be so -> the tables then; the statements' rows say it in these words."""
TRAINED_FIRST = "untrained and trained networks exchange their places"
TRAINED = exchanged("checkpoint", "init", "final")
RESIDUAL_FIRST = "plain and residual networks exchange their places"
NO_ORDER = "the distances are in random order"
RANDOM = random_order("distance", "depth")
RISING = "what is measured at the largest distance is that at the smallest"
REVERSED = reversed_order("distance", "depth")
OPPOSITE_EXPONENT = "Lyapunov exponents have the opposite sign"
OPPOSITE = scaled(-1.0, "lyapunov_1", "lyapunov_log_norm")
SMOOTH_FIRST = "ReLU and GELU exchange their places"
SMOOTH = exchanged("activation", "relu", "gelu")
LESS_ACCURATE = "accuracies are a tenth lower"
LESS = scaled(0.9, "test_accuracy")

RESONANCE: Changes = {
    RESIDUAL_FIRST: exchanged("arch", "plain", "residual"),
    NO_ORDER: RANDOM,
    "R is ten times as large": scaled(10.0, "R"),
    "ρ is half as large": scaled(0.5, "rho"),
    OPPOSITE_EXPONENT: OPPOSITE,
}
DEEP: Changes = {
    NO_ORDER: RANDOM,
    RESIDUAL_FIRST: exchanged("arch", "plain", "residual"),
}
SPECTRAL_NORM: Changes = {
    RESIDUAL_FIRST: exchanged("arch", "plain_sn", "residual"),
    NO_ORDER: RANDOM,
    OPPOSITE_EXPONENT: OPPOSITE,
}
BOTTLENECK: Changes = {
    "a block has one more rank than the narrow layer allows": shifted(1, "rank"),
    "the widest layer is the narrowest": reversed_order("d_u"),
    "C and D exchange their places": columns_exchanged(("C_estimate", "D_estimate")),
}
SQUARED = "the gap is linear in the square of E[σ''²]"
GAP: Changes = {
    SQUARED: to_power(2, "sigma_pp_squared"),
    "E[σ''²] has the opposite order": scaled(-1.0, "sigma_pp_squared"),
    SMOOTH_FIRST: SMOOTH,
    NO_ORDER: RANDOM,
    TRAINED_FIRST: TRAINED,
}
STOCHASTIC: Changes = {
    "estimates are a fifth larger": scaled(1.2, "gap_stochastic"),
    "more probes give larger errors": reversed_order("probes"),
}
LAYER_NORM: Changes = {
    "E[σ''²] has the opposite order": scaled(-1.0, "sigma_pp_squared"),
    SMOOTH_FIRST: SMOOTH,
    TRAINED_FIRST: TRAINED,
}
DIAMOND: Changes = {
    "the mean block falls as single images' blocks do, and these as the mean block": (
        columns_exchanged(("R", "R_examples"))
    ),
    TRAINED_FIRST: TRAINED,
    "ρ is a third as large": scaled(1 / 3, "rho"),
    "ReLU and SiLU exchange their places": exchanged("activation", "relu", "silu"),
    LESS_ACCURATE: LESS,
}
ATTENTION: Changes = {
    "attention and the ReLU network exchange their places": (
        exchanged("network", "attention", "relu_mlp")
    ),
    "Gauss–Newton and tensor part exchange their places": columns_exchanged(("gn", "tensor")),
    TRAINED_FIRST: TRAINED,
    "the last epoch is the first": reversed_order("epoch", "protocol", "network"),
}
RESNET: Changes = {
    "ReLU and SiLU exchange their places": exchanged("activation", "relu", "silu"),
    RISING: REVERSED,
    TRAINED_FIRST: TRAINED,
    "ResNets and plain networks exchange their places": (
        exchanged("arch", "resnet18", "plain_resnet18")
    ),
    "D is so large that every block is below the threshold": scaled(1e13, "D"),
}
