"""DAG paper, Section 6 and Appendices I and J: products with the Hessian, complexity counts,
normalisation, noise."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.func import hessian
from torch.utils.flop_counter import FlopCounterMode

from experiments.paper_audit.checks import BothErrors, Checks, Outcome, relative_error, worked
from experiments.paper_audit.dag.instances import linear_chain, smooth
from experiments.paper_audit.dag.linear_graphs import line
from experiments.paper_audit.dag.oracle import first_example
from experiments.paper_audit.tensors import gauss, ones, real, seeded, total, zeros

CHECKS = Checks()


def flops(width: int) -> tuple[float, float]:
    """Floating-point operations of a backward pass and of an HVP of a fully connected network of
    this width."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(width, width), nn.Tanh()]
    network = nn.Sequential(*layers)
    x = torch.randn(8, width)
    parameters = list(network.parameters())
    counts = []
    for twice in (False, True):
        with FlopCounterMode(display=False) as counter:
            loss = network(x).square().sum()
            gradients = torch.autograd.grad(loss, parameters, create_graph=twice)
            if twice:
                torch.autograd.grad(total(g.sum() for g in gradients), parameters)
        counts.append(float(counter.get_total_flops()))
    return counts[0], counts[1]


def ratios_of_flops() -> list[float]:
    """HVP over gradient at three widths."""
    counts = [flops(width) for width in (8, 32, 128)]
    return [product / gradient for gradient, product in counts]


@CHECKS.clause("dag.cor21")
def hvp_cost() -> Outcome:
    """Corollary 21, Eq. I.1: HVP over gradient, the same multiple (at most 4) at every width; both
    linear in P."""
    ratios = ratios_of_flops()
    growth = flops(128)[1] / flops(32)[1]
    linear = growth / 16 - 1
    spread = max(ratios) - min(ratios)
    above_four = max(ratios) / 4 - 1
    nonlinear = abs(linear) - 0.01
    return Outcome(max(above_four, spread - 0.01, nonlinear), instances=3)


@CHECKS.clause("dag.s6.cost")
def product_cost() -> Outcome:
    """Section 6: an HVP costs 2 to 4 times a backward pass: floating-point operations of fully
    connected networks."""
    ratios = ratios_of_flops()
    below = 2 / min(ratios) - 1
    above = max(ratios) / 4 - 1
    return Outcome(max(below, above), instances=3)


@CHECKS.clause("dag.def20")
def propagated() -> BothErrors:
    """Definition 20: Σ_w H[v,w] r_w with r propagated by Eq. 6, against the derivative of δ_v along
    e_in = r.

    Corrected: with r_w the increments e_w themselves (nothing propagated).
    """
    witness = None
    cases = (linear_chain(), *smooth()[:3])
    for case in cases:
        e = first_example(case)
        order = case.dag.order
        first = order[0]
        r = ones(len(e.delta[first]))
        moved = {}
        for w in order:
            if (w, first) in e.total:
                moved[w] = e.total[w, first] @ r
        free = {w: zeros(len(e.delta[w])) for w in order}
        free[first] = r
        truth = e.blocks[first, first] @ r
        by_moved = total(e.blocks[first, w] @ change for w, change in moved.items())
        by_free = total(e.blocks[first, w] @ change for w, change in free.items())
        yield relative_error(by_moved, truth), relative_error(by_free, truth)
        witness = witness or worked(
            f"{case}, r = 1 at v: HVP at v",
            f"{float(by_moved):g}",
            f"{float(by_free):g}",
            f"{float(truth):g}",
        )
    return witness


@CHECKS.clause("dag.prop89")
def pair_count() -> Outcome:
    """Proposition 89, proof: pairs with non-empty Ch(v) ∪ Ch(w) are at most O(ns)? a chain of n =
    100, s = 2."""
    edges = line(99)
    nodes = set(itertools.chain(*edges))
    parents = {v for v, _ in edges}
    n = len(nodes)
    with_child = sum(bool({*pair} & parents) for pair in itertools.product(nodes, repeat=2))
    witness = worked(
        "a chain of 100 nodes, s = 2: pairs (v, w) with a child",
        "at most O(n s), 200",
        "n² − 1",
        str(with_child),
    )
    printed = with_child / (n * 2) - 1
    corrected = float(with_child != n * n - 1)
    return Outcome(printed, corrected, 1, witness)


@CHECKS.clause("dag.thm87.bn")
def batch_norm() -> Outcome:
    """Theorem 87, batch normalisation: the node function and its Jacobians in γ and β."""
    x = gauss(seeded(0), 6, 3)
    module = nn.BatchNorm1d(3, eps=1e-5).double()
    nn.init.constant_(module.weight, 1.3)
    nn.init.constant_(module.bias, 0.2)
    mean = x.mean(0)
    var = x.var(0, correction=0)
    scaled = 1.3 * (x - mean) / (var + 1e-5).sqrt()
    return Outcome(relative_error(scaled + 0.2, module(x).detach()))


@CHECKS.clause("dag.remark88")
def reparametrised() -> Outcome:
    """Remark 88: with f = μ + σ ε the Hessian of E[L] is the mean of the Hessians, over a finite
    noise."""
    noise = gauss(seeded(0), 5)
    p = real([0.3, 0.7])

    def loss(p: Tensor, eps: Tensor) -> Tensor:
        scale = torch.exp(p[0] + p[1] * eps)
        return torch.log1p(scale) ** 2

    def mean_loss(p: Tensor) -> Tensor:
        return torch.stack([loss(p, eps) for eps in noise]).mean()

    of_parts = torch.stack([hessian(loss)(p, eps) for eps in noise]).mean(0)
    of_mean = hessian(mean_loss)(p)
    return Outcome(relative_error(of_parts, of_mean), instances=5)
