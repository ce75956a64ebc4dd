"""What each part will cost, told before it starts: in gradients of all batches, from the speed of this network here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from runner.diagnose.pricing_layers import Price, impossible, price_of_certificate, price_of_layers
from runner.diagnose.problem import Problem

__all__ = [
    "Price",
    "is_exact",
    "price_of",
    "price_of_certificate",
    "price_of_layers",
    "price_of_network",
    "price_of_noise",
]

RANK_STEPS = 5
"""Golub-Kahan steps that the largest singular value of a diagonal block is foretold to take."""
DENSITY_PROBES, DENSITY_STEPS, TRACE_PRODUCTS, BOUND_PROBES, PAIR_PROBES, COUPLING_PROBES = 4, 60, 60, 40, 10, 30


def price_of_network(problem: Problem) -> Price:
    """Told last: it is what was spent on the checks and on telling the other prices."""
    spent = (problem.clock() - problem.started) / problem.gradient.seconds
    return Price(spent, problem.gradient.bytes, "the checks, and what was run to tell the price")


# ------------------------------------------------------------------ over the parameters


def estimated_products(problem: Problem) -> dict[str, float]:
    """Products that the estimators are foretold to take, by part. Lanczos: two or three restarts for each end."""
    k, groups = problem.options.eigenvalues, len(problem.operator.groups)
    return {
        "groups": (PAIR_PROBES + COUPLING_PROBES + 2 * RANK_STEPS) * groups,
        "eigenvalues": 4 * max(2 * k + 1, 20) + k + 2 * 20,
        "density": DENSITY_PROBES * DENSITY_STEPS,
        "trace": TRACE_PRODUCTS + BOUND_PROBES,
    }


def is_exact(problem: Problem) -> bool:
    """Whether the whole matrix is cheaper than the estimates, and fits three times into the memory."""
    n = problem.operator.shape[0]
    fits = 3 * n * n * problem.operator.dtype.itemsize <= problem.options.memory
    return fits and n <= sum(estimated_products(problem).values())


def product_gradients(problem: Problem) -> tuple[float, float]:
    """Gradients that a product with the Hessian, and with its Gauss-Newton part, costs: measured."""
    if "products" not in problem.told:
        found = []
        for operator in (problem.operator, _smooth(problem)):
            v = torch.ones(operator.shape[0], dtype=operator.dtype, device=operator.device)
            operator.matvec(v)
            found.append(problem.seconds(partial(operator.matvec, v)) / problem.gradient.seconds)
            operator.products = 0
        problem.told["products"] = (found[0], found[1])
    one, two = problem.told["products"]
    return one, two


def _smooth(problem: Problem) -> Any:
    try:
        return problem.smooth
    except (ValueError, RuntimeError):  # told where it is measured
        return problem.operator


def price_of(part: str) -> Callable[[Problem], Price]:
    """The price of a part: of the whole matrix for the first that needs it."""

    def price(problem: Problem) -> Price:
        try:
            operator = problem.operator
        except ValueError as error:
            return impossible(error)
        product, smooth = product_gradients(problem)
        n, itemsize = operator.shape[0], operator.dtype.itemsize
        certified = certificate_gradients(problem) if part == "eigenvalues" else 0.0
        if is_exact(problem):
            first = problem.told.setdefault("matrix", part) == part
            how = f"exact: the whole matrix from {n} products" if first else "exact, from the same matrix"
            gradients = n * product * first + n * smooth * (part == "groups") + certified
            return Price(gradients, 3 * n * n * itemsize + 3 * problem.gradient.bytes, how)
        products = estimated_products(problem)[part]
        more = PAIR_PROBES * len(operator.groups) * smooth if part == "groups" else 0.0
        vectors = {"eigenvalues": 3 * problem.options.eigenvalues + 20, "density": 64}.get(part, 8)
        held = vectors * n * itemsize + 3 * problem.gradient.bytes
        return Price(products * product + more + certified, held, f"estimated: about {products:.0f} products")

    return price


def certificate_gradients(problem: Problem) -> float:
    """Of the certificate of the products: four gradients of each batch in float64, ten of the first, and for each batch
    an operator of its own with one product."""
    batches = len(problem.batches)
    double = 1.0 if problem.operator.dtype == torch.float64 else 2.0
    alone = problem.building / problem.gradient.seconds / batches + product_gradients(problem)[0] / batches
    return double * (4 + 10 / batches) + batches * alone


# ------------------------------------------------------------------ gradient noise


def price_of_noise(problem: Problem) -> Price:
    size = len(problem.batches) * problem.size * 8
    return Price(1, problem.gradient.bytes + size, "one gradient of each batch")
