"""What the corrections change in the papers' experiments: numbers of published cells or small
instances."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from statistics import mean, median
from typing import Any

import torch
from torch import nn

from experiments.paper_audit.attention import cases, terms as t
from experiments.paper_audit.checks import Worked
from experiments.paper_audit.dag import paths
from experiments.paper_audit.dag.instances import chain
from experiments.paper_audit.dag.oracle import first_example, transmitted
from experiments.paper_audit.hsr.derivatives import root_example
from experiments.paper_audit.published import Row, middle, numbers, rows
from experiments.paper_audit.scalar.cases import random_instance
from experiments.paper_audit.scalar.linear_vectors import bulk_error
from experiments.paper_audit.scalar.networks import Linear, Relu
from experiments.paper_audit.scalar.relu import outlier_vector_error
from runner.closed_form import attention as att
from runner.contract import Context
from runner.curvature import split_blocks
from runner.data.synthetic import load_attention
from runner.kinds.dataset import AttentionData
from runner.kinds.model import AttentionModel
from runner.training.initial import build
from runner.training.streams import PUBLISHED_SEEDS

Numbers = Mapping[str, Any]


TOKENS = 4
WIDTH = 3
SEEDS = 4


def share(case: t.Case, error: t.Expression) -> Numbers:
    """‖what the print adds to ∂²c‖ / ‖∂²c‖ over index tuples of a case at n = 4, d = 3, Gaussian X,
    W, V."""
    off = whole = 0.0
    for seed in range(SEEDS):
        indices = t.indices(TOKENS, WIDTH, case, seed)
        for k in indices:
            terms = t.Terms(*t.instance(TOKENS, WIDTH, seed), k)
            off += float(error(terms)) ** 2
            whole += float(t.second_derivative(terms)) ** 2
    return {"share": float((off / whole) ** 0.5)}


def starts_of_recovery() -> Numbers:
    """Theorem J.1 as attention_newton measures it: largest |X*|/|X_true|, the admitted distance of
    a start, and how many starts near the data reach them without regularisation."""
    theorem = [row for row in rows("attention_newton", "theorem") if row["status"] == "ok"]
    largest = max((float(row["norm_share"]) for row in theorem), default=math.nan)
    orders = rows("attention_newton", "orders")
    return {
        "problems": len(theorem),
        "norm": largest,
        "admitted": middle(theorem, "admitted_share"),
        "starts": sum(int(row["starts"]) for row in orders),
        "reached": sum(int(row["converged"]) for row in orders),
    }


def factor_of_gradient() -> Numbers:
    """‖∇L‖ by automatic differentiation over ‖Σ c ∇c‖."""
    x, w, v, b = (m.unsqueeze(0) for m in t.instance(TOKENS, WIDTH))
    point = x[0].clone().requires_grad_()
    residual = att.outputs(point.unsqueeze(0), w, v)[0] - b[0]
    exact = torch.autograd.grad(residual.square().sum(), point, retain_graph=True)[0]
    printed = torch.autograd.grad(residual, point, residual.detach())[0]
    return {"ratio": float(exact.norm() / printed.norm())}


z_error = t.f00 * (t.w2 * (t.y10 - t.z1) + t.w21) - t.f02 * (t.w2 * (t.y12 - t.z1) + t.w21)
"""Lemma C.5, Part 2, as printed less d z1/dx_{i2,j2}."""
f_error = t.f01 * (1 - t.f02) * t.w2 - cases.df01
"""Lemma D.1 as printed less d f_{i0,i1}/dx_{i2,j2}."""
product_error = cases.d5_part_1 - cases.df01 * t.h1 - t.f01 * t.v2
"""Lemma D.5, Part 1, as printed less d (f_{i0,i1} h_{j0,i1})/dx_{i2,j2}."""
error_of_d1 = f_error * (t.w1 * (t.h1 - t.s) + t.v1)
"""What Lemma D.1 adds to the second derivative of c."""
error_of_d6 = cases.d6 + (cases.ds * t.f01 + t.s * cases.df01) * t.w1


def exponents_at_init() -> Numbers:
    """Eq. 8 and the first exponent of QR steps, plain networks of Exp. 1 before training, on the
    published images."""
    return {"eq8": _by_depth("lyapunov_log_norm"), "qr": _by_depth("lyapunov_1")}


def _by_depth(column: str) -> str:
    """Means of a column at the three depths, as text."""
    texts = []
    for depth in (8, 10, 12):
        networks = rows("exp1_resonance", "networks", arch="plain", depth=depth)
        before = _on_published_images(networks, "init")
        texts.append(f"{mean(float(row[column]) for row in before):+.3f}".replace("-", "−"))
    return f"{texts[0]}, {texts[1]} and {texts[2]}"


def _on_published_images(found: list[Row], checkpoint: str) -> list[Row]:
    return [row for row in found if row["checkpoint"] == checkpoint and row["images"] == "0"]


PAIRS = (("q", "k"), ("q", "v"), ("k", "v"))


def largest_pair(seed: int) -> tuple[str, str]:
    """Which of the three mixed pairs has the largest tensor part in Exp. 5's untrained network."""
    data = load_attention(AttentionData(streams="published"), Context(seed=seed)).validation
    graph = build(AttentionModel(initial="published").network(), seed).eval().to_dag("mse")
    blocks = split_blocks(graph, data.inputs[:64], data.targets[:64], ("q", "k", "v"))
    sizes = [float(blocks.tensor[pair].norm()) for pair in PAIRS]
    return PAIRS[sizes.index(max(sizes))]


def sources_before_training() -> Numbers:
    """Exp. 5's untrained networks with the described targets: for how many of the published seeds
    (k, v), and (q, k), has the largest tensor part of the three mixed pairs; mean block of the
    first 64 validation samples."""
    largest = [largest_pair(seed) for seed in PUBLISHED_SEEDS]
    values = largest.count(("k", "v"))
    queries = largest.count(("q", "k"))
    return {"values": values, "queries": queries}


DEPTH = 12
"""Of the deepest network of Exp. 1 with published values."""


def gap_of_equation_2() -> Numbers:
    """Exp. 3's gap of SiLU at init, Σ ‖H^T‖ / Σ ‖H^GN‖ over all pairs, mean of the seeds; with Eq.
    2 the tensor part of a pair v ≠ w of a chain is zero (its recursion ends at H[v,out], which has
    none), that of (v, v) is right."""
    pairs = rows("exp3_gn_gap", "pairs", activation="silu")
    by_seed: dict[str, list[Row]] = {}
    for row in pairs:
        if row["checkpoint"] == "init":
            by_seed.setdefault(row["seed"], []).append(row)
    if not by_seed:
        return {"right": math.nan, "printed": math.nan}
    right = []
    printed = []
    for seed in sorted(by_seed):
        whole = by_seed[seed]
        diagonal = [row for row in whole if row["v"] == row["w"]]
        gauss_newton = sum(numbers(whole, "frob_gn"))
        right.append(sum(numbers(whole, "frob_tensor")) / gauss_newton)
        printed.append(sum(numbers(diagonal, "frob_tensor")) / gauss_newton)
    mean_right = sum(right) / len(right)
    mean_printed = sum(printed) / len(printed)
    return {"right": mean_right, "printed": mean_printed}


def counted_twice() -> Numbers:
    """‖Eq. 11‖ / ‖H[v,v]‖ of the first node of a linear chain as deep as Exp. 1's."""
    case = chain(0, nn.Identity, widths=(2,) * (DEPTH + 1), batch=1)
    e = first_example(case)
    first = case.dag.order[0]
    printed = paths.equation_11(e, first, first)
    times = float(printed.norm() / e.blocks[first, first].norm())
    return {"depth": DEPTH, "times": times}


def stabilised() -> Numbers:
    """Theorem 34(b) with the paper's alpha = L^(−1/2) and k = 1, in units of C: what the print
    allows, and what f(h) = h + alpha rho h, L times, reaches; R at the largest over R at the
    smallest distance in Exp. 1 at init."""
    rho = 0.9
    scaled = rho / DEPTH**0.5
    distances = rows("exp1_resonance", "distances", arch="residual", depth=DEPTH)
    before = _on_published_images(distances, "init")
    far = [row for row in before if row["distance"] == str(DEPTH - 1)]
    near = [row for row in before if row["distance"] == "0"]
    layers = [lambda h: h + scaled * h] * DEPTH
    return {
        "depth": DEPTH,
        "rho": rho,
        "allowed": scaled,
        "reached": transmitted(layers),
        "kept": middle(far, "R") / middle(near, "R"),
    }


def described_share() -> Numbers:
    """Exp. 5 with the described targets: mean ‖H^GN‖ over mean ‖H‖ of (Q, K) at the end."""
    blocks = rows("exp5_attention", "blocks", protocol="described", network="attention")
    after = _on_published_images(blocks, "final")
    if not after:
        return {"share": math.nan}
    gauss_newton = sum(numbers(after, "gn"))
    return {"share": gauss_newton / sum(numbers(after, "full"))}


NEURONS = 10
SAMPLES = 100
DRAWS = 20
"""Neurons of Figs. 2 and 3; samples of a draw."""


def bulk_vectors() -> Numbers:
    """Share of Gaussian draws of width 10 in which mean xδ is negative, and |Hz − λz| of the
    printed z there."""
    errors = []
    for seed in range(DRAWS):
        (w, v), x, y = random_instance(900 + seed, NEURONS, SAMPLES)
        case = Linear(w, v, x, y)
        if float(case.d) < 0:
            errors.append(bulk_error(case, False))
    return {"share": len(errors) / DRAWS, "error": median(errors) if errors else math.nan}


def outlier_vectors() -> Numbers:
    """Median |Hz − λz| of Eq. 64's vectors over Gaussian draws of width 10, as printed and with the
    weight."""
    printed = []
    right = []
    for seed in range(DRAWS):
        (w, v), x, y = random_instance(700 + seed, NEURONS, SAMPLES)
        case = Relu(w, v, x, y)
        printed.append(outlier_vector_error(case, 1, weighted=False))
        right.append(outlier_vector_error(case, 1, weighted=True))
    return {"printed": median(printed), "right": median(right)}


NUMBERS: dict[str, Callable[[], Numbers]] = {
    "attention.j.1": starts_of_recovery,
    "attention.b.17": factor_of_gradient,
    "attention.d.1": partial(share, t.both_other, error_of_d1),
    "attention.c.5.2": partial(share, t.same_then_other, -t.s * z_error),
    "attention.c.10.1": partial(share, t.all_same, t.s * t.z1 * t.z2 * (t.f00 - 1)),
    "attention.d.5.1": partial(share, t.both_other_equal, product_error * t.w1),
    "attention.d.6": partial(share, t.both_other, error_of_d6),
    "dag.eq2": gap_of_equation_2,
    "dag.lambda1": exponents_at_init,
    "dag.prop102": sources_before_training,
    "dag.thm33": counted_twice,
    "dag.thm34b": stabilised,
    "dag.table7": described_share,
    "scalar.thm3": bulk_vectors,
    "scalar.eq64": outlier_vectors,
}
"""Numbers that the text of an erratum quotes, by its id."""
EXAMPLES: dict[str, Callable[[], Worked]] = {"hsr.root": root_example}
"""Worked checks of errata that no check of a clause gives, by the id of the erratum."""
