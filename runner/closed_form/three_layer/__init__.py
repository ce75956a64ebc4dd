"""Closed forms of the three-layer cross-entropy network: f(theta, x, q, activation="sigmoid").

theta (..., D) with D = M N + 2 N + 1, order [vec W (column by column), v] as in WS bound, Eq. 3; x
(I, M); q (I,) in [0, 1]; leading dimensions of theta are a batch. The loss is the sum over samples.
Wrong shapes, mixed dtypes and unknown activations raise ValueError.

    >>> import torch
    >>> from runner.closed_form import three_layer as tl
    >>> x, q = torch.randn(50, 2, dtype=torch.float64), (torch.arange(50) % 2).double()
    >>> theta = torch.randn(7, tl.parameter_count(2, 3), dtype=torch.float64)
    >>> largest = torch.linalg.eigvalsh(tl.hessian(theta, x, q))[:, -1]
    >>> bool((largest <= tl.upper_bound(theta, x, q)).all())
    True
"""

from runner.closed_form.three_layer.hessian import (
    contraction_gradient,
    hessian,
    lower_bound,
    mean_and_std,
    mean_gradient,
    std_gradient,
    trace,
    trace_gradient,
    trace_of_square,
    trace_of_square_double_sum,
    trace_of_square_frobenius,
    trace_of_square_gradient,
    trace_parts,
    traces,
    upper_bound,
    upper_bound_gradient,
)
from runner.closed_form.three_layer.model import (
    ACTIVATIONS,
    Activation,
    Parameters,
    get_activation,
    gradient,
    hidden_representation,
    hidden_width,
    join,
    loss,
    parameter_count,
    predict,
    split,
)
