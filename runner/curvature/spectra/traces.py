"""tr H, and the Wolkowicz-Styan bound of lambda_1 from tr H and tr H^2, of any symmetric operator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from runner.curvature.metrics.samples import student
from runner.curvature.spectra.bounds import wolkowicz_styan_upper
from runner.curvature.spectra.symmetric import NOT_FINITE, Symmetric

Method = Literal["auto", "hutchinson", "hutch++", "xtrace"]
PILOT = 6
SHARED = 1.25
"""XTrace's samples share their space and spread too little: their error is widened by this. Measured on even, flat,
decaying and indefinite spectra, where 400 estimates lay 1.12 to 1.30 of the plain errors from the truth."""


class TraceEstimate(NamedTuple):
    """value; error: standard error, widened for few samples so that +-1.96 errors cover 95 %; products used; reason for
    a NaN, else ""; the method ("exact" when n products were no more than allowed)."""

    value: float
    error: float
    products: int
    reason: str
    method: str


def trace_estimate(
    operator: Any, products: int = 60, method: Method = "auto", *, generator: torch.Generator | None = None
) -> TraceEstimate:
    """tr H from about `products` products. operator: see Symmetric.

    "hutchinson": mean of z^T H z over random signs. "hutch++" (Meyer, Musco, Musco and Woodruff): the trace on a sketch
    of the range, exactly, and Hutchinson on the rest. "xtrace" (Epperly, Tropp and Webber): every test vector in turn
    plays the rest, better where the spectrum decays. "auto" lets 12 products decide between the first and the last, and
    measures afresh with what remains. n products or more: the trace itself, error 0. Memory: `products` vectors.
    Raises ValueError for an unknown method and fewer than 6 products (18 for "auto").
    """
    symmetric = Symmetric(operator)
    if method not in ("auto", "hutchinson", "hutch++", "xtrace"):
        raise ValueError(f'method must be "auto", "hutchinson", "hutch++" or "xtrace", got {method!r}')
    if products >= symmetric.size:
        value = float(symmetric.dense().trace())
        if not math.isfinite(value):
            return TraceEstimate(math.nan, math.nan, symmetric.products, NOT_FINITE, "exact")
        return TraceEstimate(value, 0.0, symmetric.products, "", "exact")
    least = 18 if method == "auto" else 6
    if products < least:
        raise ValueError(f"{method} needs at least {least} products for an error, got {products}")
    if method == "auto":
        sketch = _xtrace_samples(symmetric, PILOT, generator)
        plain = torch.stack([(z @ y) for z, y in zip(*sketch[1:], strict=True)])
        # The same products buy twice as many plain samples.
        method = "xtrace" if SHARED * _error(sketch[0]) < _error(plain) / math.sqrt(2) else "hutchinson"
        products -= symmetric.products
    if method == "xtrace":
        samples, offset = _xtrace_samples(symmetric, products // 2, generator)[0], 0.0
    elif method == "hutch++":
        samples, offset = _hutch_samples(symmetric, products // 3, generator)
    else:
        signs = [symmetric.signs(generator) for _ in range(products)]
        samples, offset = torch.stack([z @ symmetric.matvec(z) for z in signs]), 0.0
    value = offset + float(samples.mean())
    if not math.isfinite(value):
        return TraceEstimate(math.nan, math.nan, symmetric.products, NOT_FINITE, method)
    error = _error(samples) * (SHARED if method == "xtrace" else 1.0)
    return TraceEstimate(value, error, symmetric.products, "", method)


def _error(samples: Tensor) -> float:
    return float(samples.std()) / math.sqrt(len(samples)) * student(len(samples) - 1)


def _xtrace_samples(
    symmetric: Symmetric, count: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The estimate of each test vector, with the test vectors and their images, (count, n).

    With Q R = H Omega, leaving vector i out replaces Q by Q (I - s s^T), s the normalised column i of R^-T; the sample
    is the trace of H on that space and (n - count + 1) mu^T H mu / |mu|^2 for mu, what it leaves of vector i.
    """
    tests = torch.stack([symmetric.gaussian(generator) for _ in range(count)])
    images = torch.stack([symmetric.matvec(z) for z in tests])
    if not bool(images.isfinite().all()):
        return torch.full((count,), torch.nan, dtype=torch.float64, device="cpu"), tests, images
    q, r = torch.linalg.qr(images.mT)
    hq = torch.stack([symmetric.matvec(column) for column in q.mT], 1)
    core = q.mT @ hq
    s = _left_out(r)
    inside = q.mT @ tests.mT
    crossed = hq.mT @ tests.mT
    samples = []
    for i in range(count):
        c = inside[:, i] - s[:, i] * (s[:, i] @ inside[:, i])
        left = float(tests[i] @ images[i] - 2 * c @ crossed[:, i] + c @ core @ c)
        size = float(tests[i] @ tests[i] - 2 * c @ inside[:, i] + c @ c)
        factor = (symmetric.size - count + 1) / size if size > 1e-12 * float(tests[i] @ tests[i]) else 0.0
        samples.append(float(core.trace() - s[:, i] @ core @ s[:, i]) + factor * left)
    return torch.tensor(samples, dtype=torch.float64, device="cpu"), tests, images


def _left_out(r: Tensor) -> Tensor:
    """Columns of R^-T, normalised. A matrix of lower rank than `count` leaves rows of rounding at the end of R, and the
    whole range in Q: held above zero, they make every vector left out one of rounding, and every sample the trace."""
    diagonal = r.diagonal()
    floor = 1e-15 * float(diagonal.abs().max())
    held = torch.where(diagonal.abs() <= floor, torch.full_like(diagonal, floor if floor > 0 else 1.0), diagonal)
    units = torch.eye(len(r), dtype=r.dtype, device=r.device)
    s = torch.linalg.solve_triangular(r - diagonal.diag() + held.diag(), units, upper=True).mT
    s = s / s.abs().amax(0)  # before the squares of the norm, which could leave the range
    return s / s.norm(dim=0)


def _hutch_samples(symmetric: Symmetric, count: int, generator: torch.Generator | None) -> tuple[Tensor, float]:
    """Hutchinson's samples outside the range sketch, and the trace inside."""
    sketch = torch.stack([symmetric.matvec(symmetric.signs(generator)) for _ in range(count)], 1)
    if not bool(sketch.isfinite().all()):
        return torch.full((count,), torch.nan, dtype=torch.float64, device="cpu"), math.nan
    q, _ = torch.linalg.qr(sketch)
    inside = math.fsum(float(column @ symmetric.matvec(column)) for column in q.mT)
    samples = []
    for _ in range(count):
        z = symmetric.signs(generator)
        z = z - q @ (q.mT @ z)
        samples.append(float(z @ symmetric.matvec(z)))
    return torch.tensor(samples, dtype=torch.float64, device="cpu"), inside


@dataclass(frozen=True)
class UpperBound:
    """value: lambda_sup; low, high: its 95 % interval from the probes (equal where exact); trace and trace_of_square
    with standard errors; products used; reason for a NaN, else ""."""

    value: float
    low: float
    high: float
    trace: tuple[float, float]
    trace_of_square: tuple[float, float]
    products: int
    reason: str = ""


def upper_bound_estimate(operator: Any, probes: int = 40, *, generator: torch.Generator | None = None) -> UpperBound:
    """lambda_sup = mu + sqrt(n-1) sigma >= lambda_1 with mu = tr H / n, sigma^2 = tr H^2 / n - mu^2 (WS bound, Eq. 7).

    Both traces come from the same probes, z^T H z and |H z|^2; the interval is the jackknife's over the probes, with
    Student's factor. n <= probes: exact. The bound holds for the exact traces: an estimate below lambda_1 is one
    whose interval is to be believed. Raises ValueError for fewer than 4 probes.
    """
    if probes < 4:
        raise ValueError(f"expected at least 4 probes, got {probes}")
    symmetric = Symmetric(operator)
    n = symmetric.size
    if n <= probes:
        dense = symmetric.dense()
        first, second = float(dense.trace()), float(dense.square().sum())
        exact = float(
            _bound(
                n,
                torch.tensor(first, dtype=torch.float64, device="cpu"),
                torch.tensor(second, dtype=torch.float64, device="cpu"),
            )
        )
        if not math.isfinite(exact):
            return _no_bound(symmetric)
        return UpperBound(exact, exact, exact, (first, 0.0), (second, 0.0), symmetric.products)
    rows = []
    for _ in range(probes):
        z = symmetric.signs(generator)
        image = symmetric.matvec(z)
        rows.append((float(z @ image), float(image @ image)))
    traces, squares = torch.tensor(rows, dtype=torch.float64, device="cpu").unbind(1)
    value = float(_bound(n, traces.mean(), squares.mean()))
    if not math.isfinite(value):
        return _no_bound(symmetric)
    left_out = _bound(n, (traces.sum() - traces) / (probes - 1), (squares.sum() - squares) / (probes - 1))
    # On the scale of logarithms, where the interval of a positive quantity is closer to symmetric.
    logs = left_out.clamp_min(1e-300).log()
    error = math.sqrt((probes - 1) / probes * float((logs - logs.mean()).square().sum())) * student(probes - 1)
    width = math.exp(min(1.96 * error, 700.0))
    return UpperBound(
        value,
        value / width,
        value * width,
        (float(traces.mean()), _error(traces)),
        (float(squares.mean()), _error(squares)),
        symmetric.products,
    )


def _no_bound(symmetric: Symmetric) -> UpperBound:
    nothing = (math.nan, math.nan)
    return UpperBound(math.nan, math.nan, math.nan, nothing, nothing, symmetric.products, NOT_FINITE)


def _bound(n: int, trace: Tensor, square: Tensor) -> Tensor:
    return wolkowicz_styan_upper(n, trace, square)
