"""The paper's inequalities at measured points, its equality condition on constructed cases, and its
limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from experiments.three_layer.ends import columns
from experiments.three_layer.network import Network
from experiments.three_layer.ws_bound.search import Search
from runner.closed_form import three_layer as tl
from runner.closed_form.three_layer.hessian import double_sum_terms
from runner.closed_form.three_layer.model import forward
from runner.curvature.spectra.bounds import wolkowicz_styan_upper

ROUNDING = 1e-12
"""Relative size below which a violated inequality is the rounding of float64 sums."""
SEMIDEFINITE = 1e-10
"""A spectrum counts as positive semi-definite when λ_D >= −SEMIDEFINITE λ_1."""
CHUNK = 100
"""Points whose I × I matrices (Theorem 6) are held in memory at once."""
SCALES = tuple(2.0 ** (k / 2) for k in range(25))
SMALLEST = {"scaled": 1e-30, "cancelling": 1e-16}
"""Errors at which a path ends; weights of 1/√error beyond 1e8 would swamp the rest of z in float64.
"""


def theorem_slack(network: Network, points: Tensor) -> dict[str, Any]:
    """One row per inequality, over points (S, D): how many hold, and how much room they leave.

    slack = (bound − value) / max(|bound|, |value|), 1 for an infinite bound; an inequality holds at
    slack >= −ROUNDING.
    """
    slacks: dict[str, list[Tensor]] = {}
    tiny = torch.finfo(points.dtype).tiny
    for theta in points.split(CHUNK):
        for name, value, bound in _inequalities(network, theta):
            size = torch.maximum(value.abs(), bound.abs()).clamp(min=tiny)
            slack = (bound - value) / size
            slack = torch.where(torch.isinf(bound), 1.0, slack)
            slacks.setdefault(name, []).append(slack)
    rows = []
    for name, parts in slacks.items():
        slack = torch.cat(parts)
        holding = int((slack >= -ROUNDING).sum())
        least = middle = math.nan
        if len(slack):
            least = float(slack.min())
            middle = float(slack.median())
        rows.append((name, len(slack), holding, least, middle))
    return columns(("inequality", "points", "holding", "slack_min", "slack_median"), rows)


def _inequalities(network: Network, theta: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
    """(name, value, bound), each over the points at which the statement speaks."""
    x = network.x
    spectrum = network.spectrum(theta)
    trace, square = tl.traces(theta, *network.args)
    ww, vv = tl.trace_parts(theta, *network.args)
    dimension = theta.shape[-1]
    units = (dimension - 1) // (x.shape[1] + 2)
    constant = trace_vv_bound(len(x), units, network.activation)
    yield "Theorem 1", spectrum[:, -1], network.bound(theta)
    yield "lower bound", -spectrum[:, 0], -tl.lower_bound(theta, *network.args)
    yield "Theorem 3", vv, torch.full_like(vv, constant)
    yield "Theorem 4", ww, trace_ww_bound(theta, x, network.activation)
    yield "Theorem 6", square, trace_of_square_bound(theta, *network.args)
    yield "Prop. 8, left", trace.square() / dimension, square
    smallest = -SEMIDEFINITE * spectrum[:, -1]
    definite = spectrum[:, 0] >= smallest
    yield "Prop. 8, right", square[definite], trace[definite].square()


def equality_cases(search: Search, generator: torch.Generator) -> dict[str, Any]:
    """λ_1 against λ_sup on spectra and networks made so that Prop. 1's condition holds, or does
    not.

    condition: 1 where λ_1 > 0 is the only nonzero eigenvalue, as Prop. 1 asks. A network has such a
    Hessian when its prediction equals its (soft) label, delta = 0, on copies of one sample: H =
    s'(z) Σ_i j jᵀ then has rank one.
    """
    rows = []

    def add(case: str, condition: int, hessian: Tensor, bound: Tensor) -> None:
        largest = float(torch.linalg.eigvalsh(hessian)[-1])
        rows.append((case, condition, hessian.shape[-1], largest, float(bound)))

    dimension = search.starts.shape[1]
    rest = torch.rand(dimension - 1, dtype=search.x.dtype, generator=generator)
    largest = rest.new_tensor([3.0])
    for case, condition, others in (
        ("spectrum (λ, 0, …, 0)", 1, 0 * rest),
        ("spectrum (λ, c, …, c)", 0, 0 * rest + 0.5),
        ("spectrum (λ, random)", 0, rest),
    ):
        matrix = _with_spectrum(torch.cat([largest, others]), generator)
        bound = wolkowicz_styan_upper(dimension, matrix.trace(), matrix.square().sum())
        add(case, condition, matrix, bound)
    theta = torch.randn(dimension, dtype=search.x.dtype, generator=generator)
    for case, condition, copies, soft in (
        ("network, one sample, q = p", 1, 1, True),
        ("network, copies of one sample, q = p", 1, len(search.x), True),
        ("network, one sample, hard label", 0, 1, False),
    ):
        x = search.x[:1].expand(copies, -1).contiguous()
        q = search.q[:1].expand(copies).contiguous()
        if soft:
            q = tl.predict(theta, x, search.activation)
        network = Network(x, q, activation=search.activation)
        add(case, condition, network.hessian(theta), network.bound(theta))
    return columns(("case", "condition", "dimension", "lambda_max", "lambda_sup"), rows)


def _with_spectrum(eigenvalues: Tensor, generator: torch.Generator) -> Tensor:
    """A symmetric matrix with these eigenvalues in a random basis."""
    size = len(eigenvalues)
    random = torch.randn(size, size, dtype=eigenvalues.dtype, generator=generator)
    basis = torch.linalg.qr(random).Q
    return (basis * eigenvalues) @ basis.t()


def vanishing_error(search: Search) -> dict[str, Any]:
    """λ_sup along two paths on which every error delta_i tends to zero (WS bound, Theorem 7).

    Both start at the flattest critical point, with the labels set to the network's own decisions so
    that delta can vanish. "scaled": V grows by `scale`; delta falls exponentially, faster than any
    power of V grows. "cancelling": in addition, two hidden units of equal constant output get the
    weights ±1/√max|delta|, which cancel in z: delta tends to zero as before, but s'(z) ||Ṽ||² does
    not, and neither does λ_sup.
    """
    x = search.x
    activation = search.activation
    theta = search.starts[0]
    if len(search.unique):
        flattest = search.ranked[-1]
        theta = search.ends.theta[flattest]
    W, V = (part.clone() for part in tl.split(theta, x.shape[1]))
    units = len(W)
    rows = []
    for path, smallest in SMALLEST.items():
        if path == "cancelling":
            if units < 3:
                break
            W[:2] = 0
            V[1:3] = 0
        decisions = tl.predict(tl.join(W, V), x, activation) > 0.5
        q = decisions.to(theta.dtype)
        network = Network(x, q, activation=activation)
        for scale in SCALES:
            point = tl.join(W, scale * V)
            error = (tl.predict(point, x, activation) - q).abs().max()
            if error < smallest:
                break
            if path == "cancelling":
                point[-units] = error.rsqrt()
                point[-units + 1] = -error.rsqrt()
            bound = float(network.bound(point))
            largest = float(network.spectrum(point)[-1])
            rows.append((path, scale, float(error), bound, largest))
    return columns(("path", "scale", "error_max", "lambda_sup", "lambda_max"), rows)


def trace_vv_bound(samples: int, hidden_width: int, activation: str = "sigmoid") -> float:
    """tr H_L(v, v) <= I (N sup f² + 1) / 4; infinite for unbounded f (WS bound, Theorem 3)."""
    largest = tl.get_activation(activation).sup_abs
    return samples * (hidden_width * largest**2 + 1) / 4


def trace_ww_bound(theta: Tensor, x: Tensor, activation: str = "sigmoid") -> Tensor:
    """tr H_L(w, w) <= (zeta_1 ||Ṽ||² / 4 + zeta_2 ||Ṽ||_1) Σ_i (1 + x_iᵀ x_i), (...,) (WS bound,
    Theorem 4).

    zeta_1 = sup f'², zeta_2 = sup |f''|, per activation. For GELU zeta_1 = 1.27443..., not the
    printed 1.272..., which is the square of a truncated 1.128 and therefore too small to be a
    bound.
    """
    constants = tl.get_activation(activation)
    weights = tl.split(theta, x.shape[1]).V[..., 1:]
    by_square = constants.sup_slope**2 / 4 * weights.square().sum(-1)
    scale = by_square + constants.sup_bend * weights.abs().sum(-1)
    return scale * (x.shape[0] + x.square().sum())


def trace_of_square_bound(
    theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid"
) -> Tensor:
    """tr H_L² <= ||Ψ||² + (1 + max φ) ||J + XᵀX||² + ||J + RᵀR||² / 16, (...,) (WS bound, Theorem
    6).
    """
    state = forward(theta, x, q, activation, 2)
    phi, psi, _ = double_sum_terms(state)
    r = state.hidden[0]
    both = (-2, -1)
    kernel = (state.inputs.t() @ state.inputs).square().sum()
    hidden = (1 + r.transpose(-2, -1) @ r).square().sum(both)
    by_kernel = (1 + phi.amax(both)) * kernel
    return psi.square().sum(both) + by_kernel + hidden / 16
