"""Human names of what tables call by identifiers: one name for each quantity, method and condition."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

LABELS: Mapping[str, str] = {
    "gap": "GN gap",
    "gap_global": "GN gap",
    "gap_merge": "GN gap at the merge node",
    "gap_exact": "GN gap, exact",
    "gap_stochastic": "GN gap, estimated",
    "gap_change_percent": "change of the GN gap (%)",
    "abs_rel_discrepancy_percent": "|estimated − exact| GN gap (%)",
    "E_sigma_pp_sq": "E[σ''²]",
    "frob_full": "‖H‖_F",
    "frob_gn": "‖H^GN‖_F",
    "frob_tensor": "‖H^T‖_F",
    "frob_tensor_merge": "‖H^T‖_F at the merge node",
    "frob_gn_sum_over_pairs": "Σ‖H^GN‖_F over pairs",
    "frob_tensor_sum_over_pairs": "Σ‖H^T‖_F over pairs",
    "test_acc_percent": "test accuracy (%)",
    "test_mse": "test MSE",
    "rho_max": "largest ρ",
    "lyapunov_1": "Lyapunov exponent λ₁",
    "R_d0": "R at distance 0",
    "R_dLminus1": "R at distance L − 1",
    "C_dLminus1": "C at distance L − 1",
    "R_far": "R at the largest distance",
    "C_far": "C at the largest distance",
    "D_far": "D at the largest distance",
    "largest_ratio": "largest value over the bound",
    "error_over_epsilon": "error / ε",
    "difference_norm": "norm of the difference",
    "hessian_error_mean": "mean error of the Hessian",
    "hessian_size": "size of the Hessian",
    "lambda_sup_smallest": "smallest upper bound of λ₁",
    "lambda_sup_second_smallest": "second smallest upper bound of λ₁",
    "high_group": "points of high bound",
    "low_group": "points of low bound",
    "converged": "starts that converge",
    "unique": "distinct points",
    "starts": "starts",
    "relu": "ReLU",
    "leaky_relu": "leaky ReLU",
    "gelu": "GELU",
    "silu": "SiLU",
    "init": "before training",
    "mid": "halfway",
    "final": "after training",
    "init->final": "from before to after training",
    "plain_sn": "plain, spectrally normalised",
    "resnet18": "ResNet-18",
    "plain_resnet18": "ResNet-18 without skips",
    "relu_mlp": "ReLU network",
    "gd": "gradient descent",
    "sgd": "SGD",
    "sam": "SAM",
    "asam": "A-SAM",
    "hsr": "HSR",
    "l-bfgs": "L-BFGS",
    "levenberg-marquardt": "Levenberg–Marquardt",
    "lambda_max": "λ₁",
    "test_accuracy": "test accuracy",
}
NAMED = ("depth", "distance", "hidden", "width", "d_u", "k", "probes", "pair")
"""Keys whose value says nothing without their name."""
FIRST = "metric"


def label(text: Any) -> str:
    """The human name of an identifier; the identifier itself, with spaces, where it has none.

    >>> label("gelu"), label("gap_global"), label("some_part")
    ('GELU', 'GN gap', 'some part')
    """
    word = str(text)
    return LABELS.get(word, LABELS.get(word.lower(), word.replace("_", " ")))


NAMES = ("relu", "leaky_relu", "gelu", "silu", "sgd", "sam", "asam", "hsr", "l-bfgs", "levenberg-marquardt", "resnet18")
"""Identifiers of activations, methods and networks, for legends."""


def name(text: str) -> str:
    """A legend entry with its activation, method or network spelt as in print.

    >>> name("gelu"), name("l-bfgs, continued"), name("mean")
    ('GELU', 'L-BFGS, continued', 'mean')
    """
    first, comma, rest = text.partition(",")
    return f"{LABELS[first]}{comma}{rest}" if first in NAMES else text


def row_label(keys: Mapping[str, Any]) -> str:
    """The human name of a published number, from its key columns.

    >>> row_label({"activation": "gelu", "checkpoint": "final", "metric": "gap", "depth": "8"})
    'GN gap, GELU, after training, depth 8'
    """
    parts = [label(keys[FIRST])] if keys.get(FIRST) else []
    parts += [f"{label(k)} {v}" if k in NAMED or re.fullmatch(r"[-\d.]+", str(v)) else label(v) for k, v in _rest(keys)]
    return ", ".join(parts)


def _rest(keys: Mapping[str, Any]) -> list[tuple[str, Any]]:
    rest = [(key, value) for key, value in keys.items() if key not in (FIRST, "experiment", "table") and value != ""]
    return sorted(rest, key=lambda item: item[0] in NAMED)
