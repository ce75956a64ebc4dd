"""The parts that train: outlier pairs along gradient descent with momentum, and the edge of
stability."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments.scalar_spectrum.settings import ScalarSpectrum
from experiments.scalar_spectrum.spectra import (
    certified,
    dense_eigenvalues,
    linear_output,
    normal,
    relative_gap,
    relu_output,
)
from runner.contract import Cell, Context, Table
from runner.curvature.closed_form import scalar
from runner.data.synthetic import linear, wedge

EXACT = 1e-6
"""Largest residual of an eigenpair in float64 that counts as rounding."""

STILL = 20
"""Steps without any change of the loss after which an edge run has settled."""


@dataclass(frozen=True)
class State:
    """Weights at one step with what was read off them."""

    step: int
    w: Tensor
    v: Tensor
    pairs: dict[str, scalar.PairProblem]
    loss: float

    @property
    def sharpness(self) -> float:
        """Largest Hessian eigenvalue, from the 2×2 problems alone."""
        return max((float(pair.outliers()[0]) for pair in self.pairs.values()), default=0.0)


def relu_pairs(w: Tensor, v: Tensor, cells: scalar.CellMoments) -> dict[str, scalar.PairProblem]:
    """The 2×2 problem of every cell with neurons, by name: all that loss, gradient and sharpness
    need of the weights.

    O(m), fourteen passes over the weights. A cell without neurons is left out: its problem would
    still give ±|d|.
    """
    sums = torch.stack([_block_sums(w[part], v[part]) for part in scalar.blocks(len(w))]).sum(0)
    pairs = {}
    for (name, moments), (count, plus, minus, slope) in zip(
        (("+", cells.plus), ("-", cells.minus)), sums, strict=True
    ):
        if count > 0:
            pairs[name] = scalar.PairProblem(
                moments.xx, moments.residual_covariance(slope), plus, minus, slope
            )
    return pairs


def _block_sums(w: Tensor, v: Tensor) -> Tensor:
    """(2, 4): neurons, |w+v|²/2, |w−v|²/2 and ⟨w, v⟩ of the neurons v > 0 and of those v < 0."""
    keep = torch.stack([(v > 0).to(v.dtype), (v < 0).to(v.dtype)])
    values = torch.stack([torch.ones_like(v), (w + v).square_() / 2, (w - v).square_() / 2, w * v])
    return keep @ values.T


class Network:
    """One of the two networks with its data reduced to moments: everything below costs O(m)."""

    def __init__(self, kind: str, x: Tensor, y: Tensor) -> None:
        self.relu = kind == "relu"
        self.x = x
        self.y = y
        self.split = scalar.CellMoments.of(x, y)
        self.all = scalar.Moments.of(x, y)
        self.moments = (
            {"+": self.split.plus, "-": self.split.minus} if self.relu else {"": self.all}
        )

    def read(self, step: int, w: Tensor, v: Tensor) -> State:
        """One pass over the weights gives the 2×2 problems; loss, gradient and sharpness follow
        from them."""
        if self.relu:
            pairs = relu_pairs(w, v, self.split)
        else:
            pairs = {"": scalar.PairProblem.of(w, v, self.all)}
        slopes = {
            name: pairs[name].slope if name in pairs else torch.zeros_like(self.all.xx)
            for name in self.moments
        }
        loss = sum(float(moments.loss(slopes[name])) for name, moments in self.moments.items())
        return State(step, w, v, pairs, loss)

    def neurons(self, v: Tensor) -> dict[str, Tensor]:
        """Mask over the neurons, by cell."""
        if self.relu:
            return {"+": v > 0, "-": v < 0}
        return {"": torch.ones_like(v, dtype=torch.bool)}

    def covariance(self, state: State, v: Tensor) -> Tensor:
        """mean xδ of the cell of each neuron v: the gradient is (this · v, this · w)."""
        if not self.relu:
            return state.pairs[""].d
        d = torch.zeros_like(v)
        for name, mask in self.neurons(v).items():
            if name in state.pairs:
                d += state.pairs[name].d * mask
        return d

    def gradient(self, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """(∂ℓ/∂w, ∂ℓ/∂v), each (m,): mean xδ of the neuron's cell times (v, w) (Eqs. 7, 8, 35, 36).
        O(m)."""
        if self.relu:
            plus = torch.dot(w, v.clamp_min(0.0))
            minus = torch.dot(w, v.clamp_max(0.0))
            above = self.split.plus
            below = self.split.minus
            d = above.residual_covariance(plus) * (v > 0) + below.residual_covariance(minus) * (
                v < 0
            )
        else:
            d = self.all.residual_covariance(torch.dot(w, v))
        return d * v, d * w

    def spectrum(self, w: Tensor, v: Tensor) -> scalar.Spectrum:
        measure = scalar.relu_spectrum if self.relu else scalar.linear_spectrum
        return measure(w, v, self.x, self.y)

    def flattest(self) -> float:
        """Sharpness of the flattest solution, 2|mean xy| (‖w‖ = ‖v‖, collinear), largest over the
        cells."""
        return 2 * max(abs(float(moments.xy)) for moments in self.moments.values())


def descend(
    network: Network, w: Tensor, v: Tensor, rate: float, momentum: float, steps: int, limit: float
) -> Iterator[State]:
    """The state before each of `steps` updates and after the last; the last one early once the loss
    passes `limit`."""
    velocity_w, velocity_v = (
        (torch.zeros_like(w), torch.zeros_like(v)) if momentum else (None, None)
    )
    for step in range(steps + 1):
        state = network.read(step, w, v)
        yield state
        if not state.loss <= limit:  # also NaN
            return
        if velocity_w is None or velocity_v is None:
            w, v = _plain_step(network, state, rate)
        else:
            d = network.covariance(state, v)
            velocity_w = momentum * velocity_w + d * v
            velocity_v = momentum * velocity_v + d * w
            w = w - rate * velocity_w
            v = v - rate * velocity_v


def _plain_step(network: Network, state: State, rate: float) -> tuple[Tensor, Tensor]:
    """Weights after one step without momentum, in blocks that stay in cache."""
    w = torch.empty_like(state.w)
    v = torch.empty_like(state.v)
    for part in scalar.blocks(len(w)):
        old_w = state.w[part]
        old_v = state.v[part]
        step = network.covariance(state, old_v) * -rate
        torch.addcmul(old_w, step, old_v, out=w[part])
        torch.addcmul(old_v, step, old_w, out=v[part])
    return w, v


def pairs(setup: ScalarSpectrum, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Both outliers of each cell along training on the wedge, with phase, trace and the bound of
    the smallest value."""
    m = setup.pair_width
    kind = str(cell.params["network"])
    rate = float(cell.params["rate"])
    generator = ctx.numpy_generator("scalar_spectrum.wedge")
    data = wedge(setup.samples, generator, left=float(cell.params["left"]), noise=setup.wedge_noise)
    x, y = (torch.from_numpy(a) for a in data)
    network = Network(kind, x, y)
    stream = ctx.torch_generator("scalar_spectrum.pairs.weights")
    # torch's default for Linear(1, m) and Linear(m, 1): uniform up to 1/sqrt(fan in)
    v = 2 * torch.rand(m, generator=stream, dtype=torch.float64) - 1
    w = (2 * torch.rand(m, generator=stream, dtype=torch.float64) - 1) / m**0.5
    rows = []
    limit = setup.diverged * network.read(0, w, v).loss
    for state in descend(network, w, v, rate, setup.momentum, setup.pair_steps, limit):
        ctx.progress(state.step, setup.pair_steps)
        rows += _pair_rows(setup, network, state)
    output = relu_output if network.relu else linear_output
    return {
        "pairs": rows,
        "certificate": [certified(network.spectrum(w, v), output, [v, w], x, y, ctx)],
    }


def _pair_rows(setup: ScalarSpectrum, network: Network, state: State) -> list[dict[str, Any]]:
    """One row per cell, also for a cell without neurons."""
    w = state.w
    v = state.v
    spectrum = network.spectrum(w, v)
    output = relu_output if network.relu else linear_output
    # From the residuals, not the moments: these lose half the digits of a loss near zero, and the
    # bound is its root.
    loss = 0.5 * ((output(network.x, v, w) - network.y) ** 2).mean()
    error = float("nan")
    if state.step % setup.dense_every == 0:
        error = relative_gap(
            spectrum.expanded(), dense_eigenvalues(output, [v, w], network.x, network.y)
        )
    bound = float(smallest_eigenvalue_bound(loss, network.all.xx))
    shared = {
        "step": state.step,
        "loss": float(loss),
        "smallest": float(spectrum.smallest),
        "bound": bound,
        "dense_error": error,
    }
    rows = []
    for name, mask in network.neurons(v).items():
        moments = network.moments[name]
        pair = state.pairs.get(name)
        target = float(moments.xy / moments.xx)
        row = {**shared, "cell": name, "neurons": int(mask.sum()), "target": target}
        if pair is None:
            nothing = dict.fromkeys(("slope", "trace", "first", "second"), float("nan"))
            row |= {**nothing, "phase": "", "status": "no neuron in this cell"}
        else:
            slope = float(pair.slope)
            first, second = (float(value) for value in pair.outliers())
            row |= {
                "slope": slope,
                "trace": float(pair.trace),
                "first": first,
                "second": second,
                "phase": phase_of_slope(slope, target),
                "status": "ok",
            }
        rows.append(row)
    return rows


def edge(setup: ScalarSpectrum, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Sharpness against 2/rate along plain gradient descent, rate = factor · 2/reference.

    reference: sharpness of the start (start=large), or of the flattest solution (start=small),
    which the sharpness climbs to from below.
    """
    m = int(cell.params["width"])
    large = cell.params["start"] == "large"
    network = _edge_network(setup, str(cell.params["network"]), ctx)
    size = (setup.large_scale if large else setup.small_scale) / m**0.5
    w = size * normal(m, ctx, "edge.w")
    v = size * normal(m, ctx, "edge.v")
    begin = network.read(0, w, v)
    reference = begin.sharpness if large else network.flattest()
    rate = 2 * float(cell.params["factor"]) / reference
    limit = setup.diverged * begin.loss
    rows: list[dict[str, Any]] = []
    residuals = []
    for state in descend(network, w, v, rate, 0.0, setup.edge_steps, limit):
        ctx.progress(state.step, setup.edge_steps)
        recent = [row["loss"] for row in rows[-STILL:]] + [state.loss]
        status = "ok"
        if len(recent) > STILL and max(recent) - min(recent) <= 1e-12 * max(recent):
            status = "settled"
        if not state.loss <= limit:
            status = "diverged"
        row = {"step": state.step, "rate": rate, "loss": state.loss}
        rows.append(row | {"sharpness": state.sharpness, "status": status})
        if status == "settled" or (status == "ok" and state.step in (0, setup.edge_steps)):
            residuals.append(top_residual(network, state))
        if status == "settled":
            break  # every further step would repeat this one
    residual = max(residuals)
    end = {"rate": rate, "residual": residual, "last": rows[-1]["step"]}
    end["status"] = rows[-1]["status"]
    return {"edge": rows, "edge_runs": [end], "certificate": [_edge_certificate(residual)]}


def _edge_network(setup: ScalarSpectrum, kind: str, ctx: Context) -> Network:
    slope = setup.edge_slope
    generator = ctx.numpy_generator("scalar_spectrum.edge.data")
    if kind == "relu":
        data = wedge(setup.samples, generator, right=slope, left=slope, noise=setup.edge_noise)
    else:
        data = linear(setup.samples, generator, slope=slope, noise=setup.edge_noise)
    return Network(kind, *(torch.from_numpy(a) for a in data))


def _edge_certificate(error: float) -> dict[str, Any]:
    status = "the closed-form pair is none of the differentiated gradient"
    if error <= EXACT:
        status = "ok"
    return {
        "what": "top eigenpair, |H z - lambda z| / lambda",
        "ok": int(error <= EXACT),
        "error": error,
        "where": "all",
        "tolerance": EXACT,
        "difference_step": float("nan"),
        "status": status,
    }


def top_residual(network: Network, state: State) -> float:
    """‖H z − λ z‖/λ for the closed-form top eigenpair, H z by differentiating the gradient along
    z."""
    m = len(state.v)
    outliers = network.spectrum(state.w, state.v).select("outlier")
    vector = scalar.Spectrum(outliers.groups[:1]).eigenvectors()[:, 0]

    def gradient(theta: Tensor) -> Tensor:
        in_w, in_v = network.gradient(theta[m:], theta[:m])
        return torch.cat([in_v, in_w])

    product = torch.func.jvp(gradient, (torch.cat([state.v, state.w]),), (vector,))[1]
    return float(
        torch.linalg.vector_norm(product - outliers.sharpness * vector) / outliers.sharpness
    )


def phase_of_slope(slope: float, target: float) -> str:
    """Training phase of a linear network with slope ⟨w, v⟩ and θ* = target: "early", "late" or
    "divergent".

    late: the slope lies between θ*/3 and θ* (both included): the second outlier is >= 0 and the
    first <= tr H. divergent: beyond θ*; early: on the other side of θ*/3. In both the second
    outlier is <= 0 and the first >= tr H. The paper orders the phases along the real line, which is
    right for θ* > 0 only; for θ* < 0 the order is reversed. For θ* = 0 there is no early phase:
    every slope but zero is beyond the solution.
    """
    if target == 0:
        if slope == 0:
            return "late"
        return "divergent"
    share = slope / target
    if share > 1:
        return "divergent"
    if share >= 1 / 3:
        return "late"
    return "early"


def smallest_eigenvalue_bound(loss: Tensor, xx: Tensor) -> Tensor:
    """−√(2ℓ) σ, never above the smallest Hessian eigenvalue of a linear or ReLU network (Eq. 34).

    loss: ½ mean δ²; xx: σ² = mean x². By Cauchy–Schwarz from λ_min >= −|mean xδ|; the paper writes
    it without the absolute value.
    """
    return -torch.sqrt(2 * loss * xx)
