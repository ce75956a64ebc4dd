"""The two networks with their data reduced to moments, and gradient descent on them: every step is
one pass over the weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.scalar_spectrum.spectra import linear_output, relu_output
from runner.closed_form import scalar


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
    by_block = [_block_sums(w[block], v[block]) for block in scalar.blocks(len(w))]
    sums = torch.stack(by_block).sum(0)
    pairs = {}
    named = (("+", cells.plus), ("-", cells.minus))
    for (name, moments), cell_sums in zip(named, sums, strict=True):
        count, plus, minus, slope = cell_sums
        d = moments.residual_covariance(slope)
        if count > 0:
            pairs[name] = scalar.PairProblem(moments.xx, d, plus, minus, slope)
    return pairs


def _block_sums(w: Tensor, v: Tensor) -> Tensor:
    """(2, 4): neurons, |w+v|²/2, |w−v|²/2 and ⟨w, v⟩ of the neurons v > 0 and of those v < 0."""
    signs = torch.stack([v > 0, v < 0]).to(v.dtype)
    plus = (w + v).square_() / 2
    minus = (w - v).square_() / 2
    return signs @ torch.stack([torch.ones_like(v), plus, minus, w * v]).T


def default_weights(m: int, stream: torch.Generator) -> tuple[Tensor, Tensor]:
    """w and v as torch's Linear(1, m) and Linear(m, 1) begin: uniform up to 1/sqrt(fan in)."""
    v = 2 * torch.rand(m, generator=stream, dtype=torch.float64) - 1
    w = (2 * torch.rand(m, generator=stream, dtype=torch.float64) - 1) / m**0.5
    return w, v


class Network:
    """One of the two networks with its data reduced to moments: everything below costs O(m)."""

    def __init__(self, kind: str, x: Tensor, y: Tensor) -> None:
        self.relu = kind == "relu"
        self.x = x
        self.y = y
        self.split = scalar.CellMoments.of(x, y)
        self.all = scalar.Moments.of(x, y)
        self.moments = {"": self.all}
        self.output = linear_output
        if self.relu:
            self.moments = {"+": self.split.plus, "-": self.split.minus}
            self.output = relu_output

    def read(self, step: int, w: Tensor, v: Tensor) -> State:
        """One pass over the weights gives the 2×2 problems; loss, gradient and sharpness follow
        from them."""
        if self.relu:
            pairs = relu_pairs(w, v, self.split)
        else:
            pairs = {"": scalar.PairProblem.of(w, v, self.all)}
        loss = 0.0
        for name, moments in self.moments.items():
            slope = pairs[name].slope if name in pairs else torch.zeros_like(moments.xx)
            loss += float(moments.loss(slope))
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
        d = torch.zeros_like(v)
        neurons = self.neurons(v)
        for name, mask in neurons.items():
            slope = torch.dot(w, v * mask)
            d = d + self.moments[name].residual_covariance(slope) * mask
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
    velocity_w = torch.zeros_like(w)
    velocity_v = torch.zeros_like(v)
    for step in range(steps + 1):
        state = network.read(step, w, v)
        yield state
        if not state.loss <= limit:  # also NaN
            return
        if momentum == 0:
            w, v = _plain_step(network, state, rate)
            continue
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
