"""How things would be if confirmed statements on three-layer networks were false, by experiment."""

from __future__ import annotations

from collections.abc import Mapping

from runner.stats.alternatives import (
    Change,
    columns_exchanged,
    exchanged,
    reversed_order,
    scaled,
    shifted,
    shuffled,
    to_power,
)

Changes = Mapping[str, Change]
"""What would be so -> the tables then; the statements' rows say it in these words."""
LOOSER = "the bound is a fifth larger", scaled(1.2, "lambda_sup")
WS_BOUND: Changes = {
    LOOSER[0]: LOOSER[1],
    "the bound is the inverse of what it is": to_power(-1, "lambda_sup"),
    "sharpest and flattest points exchange their places": columns_exchanged(
        ("sharpest_1", "flattest_1"), ("sharpest_2", "flattest_2")
    ),
    "every inequality fails at one point, by as much as its bound": shifted(
        -1, "slack_min", "holding"
    ),
    "differences give traces that are a hundredth larger": scaled(
        1.01, "trace_numerical", "trace_of_square_numerical"
    ),
    "the Hessian differs ten thousand times as much": scaled(1e4, "hessian_error"),
}
REGULARIZATION: Changes = {
    LOOSER[0]: LOOSER[1],
    "HSR and plain descent exchange their places": exchanged("method", "gd", "hsr"),
    "tr H² alone and trace regularisation exchange their places": exchanged(
        "method", "trace", "square"
    ),
    "trace regularisation and plain descent exchange their places": exchanged(
        "method", "gd", "trace"
    ),
    "HSR and trace regularisation exchange their places": exchanged("method", "trace", "hsr"),
    "bounds are the inverse of what they are, smallest eigenvalues a hundred times as large": (
        lambda tables: scaled(100.0, "lambda_min")(to_power(-1, "lambda_sup")(tables))
    ),
}
GRADIENT: Changes = {
    "the paper's form and differences exchange their times": exchanged(
        "form", "matrix", "numerical"
    ),
    "the double sum and our form exchange their times": exchanged("form", "own", "double sum"),
    "gradients differ a million times as much": scaled(1e6, "difference_norm"),
    "a sample's part of the gradient does not depend on its error": shuffled("norm"),
    "the two terms exchange their places": columns_exchanged(("mean_term", "std_term")),
    "the last step of the descent is the first": reversed_order("step"),
}
