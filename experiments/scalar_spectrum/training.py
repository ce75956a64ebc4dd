"""The parts that train: outlier pairs along gradient descent with momentum, and the edge of
stability."""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.scalar_spectrum.network import Network, State, default_weights, descend
from experiments.scalar_spectrum.settings import ScalarSpectrum
from experiments.scalar_spectrum.spectra import (
    Row,
    certified,
    dense_eigenvalues,
    normal,
    relative_gap,
)
from runner.closed_form import scalar
from runner.contract import Cell, Context, Table
from runner.data.synthetic import linear, wedge

EXACT = 1e-6
"""Largest residual of an eigenpair in float64 that counts as rounding."""

STILL = 20
"""Steps without any change of the loss after which an edge run has settled."""


def pairs(setup: ScalarSpectrum, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Both outliers of each cell along training on the wedge, with phase, trace and the bound of
    the smallest value."""
    m = setup.pair_width
    kind = str(cell.params["network"])
    rate = float(cell.params["rate"])
    left = float(cell.params["left"])
    generator = ctx.numpy_generator("scalar_spectrum.wedge")
    data = wedge(setup.samples, generator, left=left, noise=setup.wedge_noise)
    x, y = map(torch.from_numpy, data)
    network = Network(kind, x, y)
    w, v = default_weights(m, ctx.torch_generator("scalar_spectrum.pairs.weights"))
    rows = []
    limit = setup.diverged * network.read(0, w, v).loss
    states = descend(network, w, v, rate, setup.momentum, setup.pair_steps, limit)
    for state in states:
        ctx.progress(state.step, setup.pair_steps)
        rows += _pair_rows(setup, network, state)
    certificate = certified(network.spectrum(w, v), network.output, [v, w], x, y, ctx)
    return {"pairs": rows, "certificate": [certificate]}


def _pair_rows(setup: ScalarSpectrum, network: Network, state: State) -> list[Row]:
    """One row per cell, also for a cell without neurons."""
    layers = [state.v, state.w]
    spectrum = network.spectrum(state.w, state.v)
    # From the residuals, not the moments: these lose half the digits of a loss near zero, and the
    # bound is its root.
    residual = network.output(network.x, *layers) - network.y
    loss = 0.5 * (residual**2).mean()
    bound = smallest_eigenvalue_bound(loss, network.all.xx)
    error = float("nan")
    if state.step % setup.dense_every == 0:
        dense = dense_eigenvalues(network.output, layers, network.x, network.y)
        error = relative_gap(spectrum.expanded(), dense)
    shared = {
        "step": state.step,
        "loss": float(loss),
        "smallest": float(spectrum.smallest),
        "bound": float(bound),
        "dense_error": error,
    }
    rows = []
    neurons = network.neurons(state.v)
    for name, mask in neurons.items():
        moments = network.moments[name]
        target = float(moments.xy / moments.xx)
        row = {"cell": name, "neurons": int(mask.sum()), "target": target}
        rows.append(shared | row | _outlier_pair(state.pairs.get(name), target))
    return rows


def _outlier_pair(pair: scalar.PairProblem | None, target: float) -> Row:
    """What the 2×2 problem of a cell gives; None: it has no neuron."""
    if pair is None:
        nothing = dict.fromkeys(("slope", "trace", "first", "second"), float("nan"))
        return {**nothing, "phase": "", "status": "no neuron in this cell"}
    first, second = map(float, pair.outliers())
    slope = float(pair.slope)
    row = {"slope": slope, "trace": float(pair.trace), "first": first, "second": second}
    return {**row, "phase": phase_of_slope(slope, target), "status": "ok"}


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
    rows: list[Row] = []
    losses: list[float] = []
    residuals = []
    states = descend(network, w, v, rate, 0.0, setup.edge_steps, limit)
    for state in states:
        ctx.progress(state.step, setup.edge_steps)
        losses.append(state.loss)
        status = "ok"
        if _still(losses):
            status = "settled"
        if not state.loss <= limit:
            status = "diverged"
        row = {"step": state.step, "rate": rate, "loss": state.loss}
        rows.append(row | {"sharpness": state.sharpness, "status": status})
        at_an_end = state.step in (0, setup.edge_steps)
        if status == "settled" or (status == "ok" and at_an_end):
            residuals.append(top_residual(network, state))
        if status == "settled":
            break  # every further step would repeat this one
    residual = max(residuals)
    last = rows[-1]
    run = {"rate": rate, "residual": residual, "last": last["step"], "status": last["status"]}
    return {"edge": rows, "edge_runs": [run], "certificate": [_edge_certificate(residual)]}


def _still(losses: list[float]) -> bool:
    """Whether the loss has not changed in the last `STILL` steps."""
    recent = losses[-STILL - 1 :]
    largest = max(recent)
    return len(recent) > STILL and largest - min(recent) <= 1e-12 * largest


def _edge_network(setup: ScalarSpectrum, kind: str, ctx: Context) -> Network:
    slope = setup.edge_slope
    generator = ctx.numpy_generator("scalar_spectrum.edge.data")
    if kind == "relu":
        data = wedge(setup.samples, generator, right=slope, left=slope, noise=setup.edge_noise)
    else:
        data = linear(setup.samples, generator, slope=slope, noise=setup.edge_noise)
    return Network(kind, *map(torch.from_numpy, data))


def _edge_certificate(error: float) -> Row:
    exact = error <= EXACT
    status = "the closed-form pair is none of the differentiated gradient"
    if exact:
        status = "ok"
    return {
        "what": "top eigenpair, |H z - lambda z| / lambda",
        "ok": int(exact),
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
    value = outliers.sharpness
    vector = scalar.Spectrum(outliers.groups[:1]).eigenvectors()[:, 0]
    theta = torch.cat([state.v, state.w])

    def gradient(theta: Tensor) -> Tensor:
        in_w, in_v = network.gradient(theta[m:], theta[:m])
        return torch.cat([in_v, in_w])

    product = torch.func.jvp(gradient, (theta,), (vector,))[1]
    residual = torch.linalg.vector_norm(product - value * vector)
    return float(residual / value)


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
