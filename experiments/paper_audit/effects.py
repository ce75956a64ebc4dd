"""What the corrections change in the papers' experiments: numbers of published cells or small instances."""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from statistics import mean, median
from typing import Any

import torch
from torch import nn

from experiments.paper_audit.attention import cases
from experiments.paper_audit.attention.terms import (
    Case,
    Expression,
    Terms,
    all_same,
    both_other,
    both_other_equal,
    indices,
    instance,
    same_then_other,
    second_derivative,
)
from experiments.paper_audit.dag import recursion
from experiments.paper_audit.dag.instances import chain
from experiments.paper_audit.dag.oracle import examples
from experiments.paper_audit.scalar import cases as scalar
from experiments.paper_audit.scalar.cases import Linear, Relu
from experiments.paper_audit.scalar.linear import bulk_error
from experiments.paper_audit.scalar.relu import outlier_vector_error
from runner.contract import Context
from runner.curvature import split_blocks
from runner.curvature.closed_form import attention as att
from runner.data.synthetic import load_attention
from runner.kinds.dataset import AttentionData
from runner.kinds.model import AttentionModel
from runner.store.archive import published_cells
from runner.store.cells import Stored
from runner.training.initial import PUBLISHED_SEEDS, build

Row = dict[str, str]


def rows(experiment: str, table: str, **parameters: Any) -> list[Row]:
    """Rows of one table of the published cells with these parameters; none where there are no such cells (`cells`)."""
    found = (cell for cell in cells(experiment, **parameters) if table in cell.meta["tables"])
    return [row for cell in found for row in _rows(cell.content(table))]


def cells(experiment: str, **parameters: Any) -> Iterator[Stored]:
    """Published cells at the papers' seeds and protocol, in the order of ids.

    Left out are changed inputs (training.perturbation), the order of another seed (training.order_seed), networks that
    stay untrained for a variant, and further seeds.
    """
    archive = published_cells(experiment)
    for name in sorted(archive.names()) if archive is not None else ():
        cell = archive.usable(name) if archive is not None else None
        if cell is not None and _in_protocol(cell.meta, parameters):
            yield cell


def _in_protocol(meta: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    settings, given = meta["settings"], {**meta["params"], "seed": meta["seed"]}
    training = settings.get("training") or {}
    if training.get("perturbation") or training.get("order_seed") or settings.get("untrained"):
        return False
    if meta["seed"] not in PUBLISHED_SEEDS:
        return False
    return all(given.get(name) == value for name, value in parameters.items())


def _rows(content: bytes) -> list[Row]:
    return list(csv.DictReader(io.StringIO(gzip.decompress(content).decode(), newline="")))


@cache
def critical_points(protocol: str, seed: int, rate: float = 0.01) -> list[Row]:
    """The different points at which the sigmoid search of ws_bound with N = 3 stopped, of one data set."""
    keys = {"seed": seed, "protocol": protocol, "activation": "sigmoid", "hidden": 3, "rate": rate}
    found = rows("ws_bound", "critical_points", **keys)
    return [row for row in found if row["converged"] == "1" and row["duplicate"] == "0"]


def middle(found: list[Row], column: str) -> float:
    """Median of a column, NaN without a value.

    >>> middle([{"a": "1"}, {"a": "3"}, {"a": "2"}, {"a": ""}], "a")
    2.0
    """
    values = [float(row[column]) for row in found if row[column] not in ("", "nan")]
    return median(values) if values else math.nan


TOKENS, WIDTH, SEEDS = 4, 3, 4


def share(case: Case, error: Expression) -> float:
    """‖what the print adds to ∂²c‖ / ‖∂²c‖ over index tuples of a case at n = 4, d = 3, Gaussian X, W, V."""
    off = whole = 0.0
    for seed in range(SEEDS):
        for k in indices(TOKENS, WIDTH, case, seed):
            terms = Terms(*instance(TOKENS, WIDTH, seed), k)
            off += float(error(terms)) ** 2
            whole += float(second_derivative(terms)) ** 2
    return float((off / whole) ** 0.5)


def ball_of_recovery() -> Mapping[str, float]:
    """Theorem J.1 and the certified balls, as attention_newton measures them: largest |X*|/|X_true| and radii."""
    theorem = [row for row in rows("attention_newton", "theorem") if row["status"] == "ok"]
    balls = rows("attention_newton", "balls")
    return {
        "problems": len(theorem),
        "norm": max((float(row["norm_share"]) for row in theorem), default=float("nan")),
        "admitted": middle(theorem, "admitted_share"),
        "ball": middle(balls, "radius_share"),
    }


def factor_of_gradient() -> Mapping[str, float]:
    """‖∇L‖ by automatic differentiation over ‖Σ c ∇c‖."""
    x, w, v, b = (m.unsqueeze(0) for m in instance(TOKENS, WIDTH))
    point = x[0].clone().requires_grad_()
    residual = att.outputs(point.unsqueeze(0), w, v)[0] - b[0]
    exact = torch.autograd.grad(residual.square().sum(), point, retain_graph=True)[0]
    printed = torch.autograd.grad(residual, point, residual.detach())[0]
    return {"ratio": float(exact.norm() / printed.norm())}


def _entry(case: Case, error: Expression) -> Callable[[], Mapping[str, float]]:
    return lambda: {"share": share(case, error)}


def z_error(t: Terms) -> torch.Tensor:
    """Lemma C.5, Part 2, as printed less d z1/dx_{i2,j2}."""
    return t.f00 * (t.w2 * (t.y10 - t.z1) + t.w21) - t.f02 * (t.w2 * (t.y12 - t.z1) + t.w21)


def f_error(t: Terms) -> torch.Tensor:
    """Lemma D.1 as printed less d f_{i0,i1}/dx_{i2,j2}."""
    return t.f01 * (1 - t.f02) * t.w2 - cases.df01(t)


def product_error(t: Terms) -> torch.Tensor:
    """Lemma D.5, Part 1, as printed less d (f_{i0,i1} h_{j0,i1})/dx_{i2,j2}."""
    return (1 - t.f02 + t.v2) * t.f01 * t.w2 * t.h1 - cases.df01(t) * t.h1 - t.f01 * t.v2


def exponents_at_init() -> Mapping[str, str]:
    """Eq. 8 and the first exponent of QR steps, plain networks of Exp. 1 before training, on the published images."""
    shown: dict[str, list[str]] = {"lyapunov_log_norm": [], "lyapunov_1": []}
    for depth in (8, 10, 12):
        found = rows("exp1_resonance", "networks", arch="plain", depth=depth)
        found = [row for row in found if row["checkpoint"] == "init" and row["images"] == "0"]
        for column, texts in shown.items():
            texts.append(f"{mean(float(row[column]) for row in found):+.3f}".replace("-", "−"))
    eq8, qr = (f"{texts[0]}, {texts[1]} and {texts[2]}" for texts in shown.values())
    return {"eq8": eq8, "qr": qr}


def sources_before_training() -> Mapping[str, float]:
    """Exp. 5's untrained networks with the described targets: for how many of the published seeds (k, v), and (q, k),
    has the largest tensor part of the three mixed pairs; mean block of the first 64 validation samples."""
    described, network = (
        AttentionData(streams="published"),
        AttentionModel(initial="published").network(),
    )
    pairs, firsts = (("q", "k"), ("q", "v"), ("k", "v")), []
    for seed in PUBLISHED_SEEDS:
        data = load_attention(described, Context(seed=seed)).validation
        inputs, targets = data.inputs[:64], data.targets[:64]
        blocks = split_blocks(
            build(network, seed).eval().to_dag("mse"), inputs, targets, ("q", "k", "v")
        )
        sizes = [float(blocks.tensor[pair].norm()) for pair in pairs]
        firsts.append(pairs[sizes.index(max(sizes))])
    return {"values": firsts.count(("k", "v")), "queries": firsts.count(("q", "k"))}


DEPTH = 12
"""Of the deepest network of Exp. 1 with published values."""


def gap_of_equation_2() -> Mapping[str, float]:
    """Exp. 3's gap of SiLU at init, Σ ‖H^T‖ / Σ ‖H^GN‖ over all pairs, mean of the seeds; with Eq. 2 the tensor part of
    a pair v ≠ w of a chain is zero (its recursion ends at H[v,out], which has none), that of (v, v) is right."""
    found = [
        row
        for row in rows("exp3_gn_gap", "pairs", activation="silu")
        if row["checkpoint"] == "init"
    ]
    gaps: dict[str, list[float]] = {"right": [], "printed": []}
    for seed in sorted({row["seed"] for row in found}):
        own = [row for row in found if row["seed"] == seed]
        total = sum(float(row["frob_gn"]) for row in own)
        gaps["right"].append(sum(float(row["frob_tensor"]) for row in own) / total)
        gaps["printed"].append(
            sum(float(row["frob_tensor"]) for row in own if row["v"] == row["w"]) / total
        )
    return {
        name: sum(values) / len(values) if values else float("nan") for name, values in gaps.items()
    }


def counted_twice() -> Mapping[str, float]:
    """‖Eq. 11‖ / ‖H[v,v]‖ of the first node of a linear chain as deep as Exp. 1's."""
    case = chain(0, nn.Identity, widths=(2,) * (DEPTH + 1), batch=1)
    e, first = examples(case)[0], case.dag.order[0]
    found = recursion.equation_11(case.dag, e, first, first)
    return {"depth": DEPTH, "times": float(found.norm() / e.blocks[first, first].norm())}


def stabilised() -> Mapping[str, float]:
    """Theorem 34(b) with the paper's alpha = L^(−1/2) and k = 1, in units of C: what the print allows, and what
    f(h) = h + alpha rho h, L times, reaches; R at the largest over R at the smallest distance in Exp. 1 at init."""
    rho = 0.9
    scaled = rho / DEPTH**0.5
    found = [
        row
        for row in rows("exp1_resonance", "distances", arch="residual", depth=DEPTH)
        if row["checkpoint"] == "init" and row["images"] == "0"
    ]
    far = [row for row in found if row["distance"] == str(DEPTH - 1)]
    near = [row for row in found if row["distance"] == "0"]
    kept = middle(far, "R") / middle(near, "R")
    return {
        "depth": DEPTH,
        "rho": rho,
        "allowed": scaled,
        "reached": (1 + scaled) ** DEPTH,
        "kept": kept,
    }


def described_share() -> Mapping[str, float]:
    """Exp. 5 with the described targets: mean ‖H^GN‖ over mean ‖H‖ of (Q, K) at the end."""
    found = [
        row
        for row in rows("exp5_attention", "blocks", protocol="described", network="attention")
        if row["checkpoint"] == "final" and row["images"] == "0"
    ]
    total = sum(float(row["full"]) for row in found)
    return {"share": sum(float(row["gn"]) for row in found) / total if found else math.nan}


NEURONS, SAMPLES, DRAWS = 10, 100, 20
"""Neurons of Figs. 2 and 3; samples of a draw."""


def bulk_vectors() -> Mapping[str, float]:
    """Share of Gaussian draws of width 10 in which mean xδ is negative, and |Hz − λz| of the printed z there."""
    errors = []
    for seed in range(DRAWS):
        (w, v), x, y = scalar.random_instance(900 + seed, NEURONS, SAMPLES)
        case = Linear(w, v, x, y)
        if float(case.d) < 0:
            errors.append(bulk_error(case, False))
    return {"share": len(errors) / DRAWS, "error": median(errors) if errors else float("nan")}


def outlier_vectors() -> Mapping[str, float]:
    """Median |Hz − λz| of Eq. 64's vectors over Gaussian draws of width 10, as printed and with the weight."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(DRAWS):
        (w, v), x, y = scalar.random_instance(700 + seed, NEURONS, SAMPLES)
        for weighted in found:
            found[weighted].append(outlier_vector_error(Relu(w, v, x, y), 1, weighted))
    return {"printed": median(found[False]), "right": median(found[True])}


NUMBERS: dict[str, Callable[[], Mapping[str, Any]]] = {
    "attention.j.1": ball_of_recovery,
    "attention.b.17": factor_of_gradient,
    "attention.d.1": _entry(both_other, lambda t: f_error(t) * (t.w1 * (t.h1 - t.s) + t.v1)),
    "attention.c.5.2": _entry(same_then_other, lambda t: -t.s * z_error(t)),
    "attention.c.10.1": _entry(all_same, lambda t: t.s * t.z1 * t.z2 * (t.f00 - 1)),
    "attention.d.5.1": _entry(both_other_equal, lambda t: product_error(t) * t.w1),
    "attention.d.6": _entry(
        both_other, lambda t: cases._d6(t) + (cases.ds(t) * t.f01 + t.s * cases.df01(t)) * t.w1
    ),
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
