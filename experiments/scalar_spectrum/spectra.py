"""The parts that measure one spectrum at a time: data scaling, ReLU cells, bias. Each next to a
dense eigensolver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from experiments.certificates import of_hessian
from experiments.scalar_spectrum.settings import ScalarSpectrum
from experiments.scalar_spectrum.theorem6 import theorem6_outliers, triple_bounds
from runner.closed_form import scalar
from runner.contract import Cell, Context, Table
from runner.data.synthetic import linear, wedge

Row = dict[str, Any]


def linear_output(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return torch.dot(w, v) * x


def relu_output(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return torch.relu(torch.outer(x, v)) @ w


def bias_output(x: Tensor, w: Tensor, v: Tensor, b: Tensor) -> Tensor:
    return (torch.outer(x, v) + b) @ w


def dense_eigenvalues(
    output: Callable[..., Tensor], layers: Sequence[Tensor], x: Tensor, y: Tensor
) -> Tensor:
    """All eigenvalues, descending, of the automatic Hessian of ½ mean (output − y)²."""
    loss = squared_error(output, layers, x, y)
    theta = torch.cat(list(layers))
    return torch.linalg.eigvalsh(torch.func.hessian(loss)(theta)).flip(0)


def squared_error(
    output: Callable[..., Tensor], layers: Sequence[Tensor], x: Tensor, y: Tensor
) -> Callable[[Tensor], Tensor]:
    """½ mean (output − y)² as a function of all weights."""
    sizes = [len(layer) for layer in layers]

    def loss(theta: Tensor) -> Tensor:
        residual = output(x, *torch.split(theta, sizes)) - y
        return 0.5 * (residual**2).mean()

    return loss


def certified(
    spectrum: scalar.Spectrum,
    output: Callable[..., Tensor],
    layers: Sequence[Tensor],
    x: Tensor,
    y: Tensor,
    ctx: Context,
) -> Row:
    """Row of `certificate`: the Hessian that the closed-form eigenvalues and eigenvectors make."""
    vectors = spectrum.eigenvectors()
    values = spectrum.expanded()

    def applied(z: Tensor) -> Tensor:
        return vectors @ (values * (vectors.mT @ z))

    loss = squared_error(output, layers, x, y)
    return of_hessian("eigenvalues and eigenvectors", applied, loss, torch.cat(list(layers)), ctx)


def relative_gap(values: Tensor, dense: Tensor) -> float:
    """max |values − dense| over max |dense|."""
    return float((values - dense).abs().max() / dense.abs().max())


def normal(m: int, ctx: Context, role: str) -> Tensor:
    """(m,) standard normal numbers of the named stream."""
    generator = ctx.torch_generator(f"scalar_spectrum.{role}")
    return torch.randn(m, generator=generator, dtype=torch.float64)


def scaling(setup: ScalarSpectrum, cell: Cell, ctx: Context) -> dict[str, Table]:
    """The spectrum of one linear network while the inputs are scaled: targets unchanged, or scaled
    with them."""
    m = int(cell.params["scaled_width"])
    generator = ctx.numpy_generator("scalar_spectrum.scaling.data")
    x0, y0 = map(torch.from_numpy, linear(setup.samples, generator, slope=0.0, noise=1.0))
    x0 = x0 / (x0**2).mean().sqrt()  # σ = 1, so that a scale is the σ of the data
    w = normal(m, ctx, "scaling.w") / m**0.5
    v = normal(m, ctx, "scaling.v") / m**0.5
    layers = [v, w]
    unscaled = scalar.linear_spectrum(w, v, x0, y0)
    certificate = certified(unscaled, linear_output, layers, x0, y0, ctx)
    rows = []
    settings = product(("fixed", "scaled"), setup.scales)
    for targets, scale in settings:
        x = scale * x0
        y = scale * y0 if targets == "scaled" else y0
        spectrum = scalar.linear_spectrum(w, v, x, y)
        dense = dense_eigenvalues(linear_output, layers, x, y)
        error = relative_gap(spectrum.expanded(), dense)
        for group in spectrum.groups:
            row = {"targets": targets, "sigma": scale, **group_row(group)}
            rows.append(row | {"dense_error": error})
    return {"scaling": rows, "certificate": [certificate]}


def group_row(group: Any) -> Row:
    """Kind, value and multiplicity of a group of eigenvalues."""
    return {
        "kind": group.kind,
        "eigenvalue": float(group.value),
        "multiplicity": group.multiplicity,
    }


def cells(setup: ScalarSpectrum, cell: Cell, ctx: Context) -> dict[str, Table]:
    """A ReLU network's spectrum by cell; again with the samples x <= 0 repeated, which changes n±/n
    alone."""
    q = setup.positive_neurons
    m = q + setup.negative_neurons
    w = normal(m, ctx, "cells.w")
    v = normal(m, ctx, "cells.v").abs()
    v[q:] = -v[q:]
    layers = [v, w]
    generator = ctx.numpy_generator("scalar_spectrum.cells.data")
    x, y = map(torch.from_numpy, wedge(setup.samples, generator, noise=setup.wedge_noise))
    spectrum = scalar.relu_spectrum(w, v, x, y)
    dense = dense_eigenvalues(relu_output, layers, x, y)
    density = []
    for copies in setup.copies:
        times = torch.where(x > 0, 1, copies)
        many_x = torch.repeat_interleave(x, times)
        many_y = torch.repeat_interleave(y, times)
        repeated = scalar.relu_spectrum(w, v, many_x, many_y)
        sides = (("+", many_x > 0), ("-", many_x <= 0))
        for name, inside in sides:
            share = float(inside.double().mean())
            for group in repeated.select(cell=name).groups:
                density.append({"copies": copies, "cell": name, "share": share} | group_row(group))
    return {
        "relu_cells": _cell_rows(spectrum, dense),
        "density": density,
        "certificate": [certified(spectrum, relu_output, layers, x, y, ctx)],
    }


def _cell_rows(spectrum: scalar.Spectrum, dense: Tensor) -> list[Row]:
    """Each eigenvalue with its kind and cell, next to that of the dense eigensolver."""
    rows = []
    values = spectrum.expanded().tolist()
    exact = dense.tolist()
    index = 0
    for group in spectrum.groups:
        for _ in range(group.multiplicity):
            row = {"index": index, "eigenvalue": values[index], "dense": exact[index]}
            rows.append(row | {"kind": group.kind, "cell": group.cell})
            index += 1
    return rows


def bias(setup: ScalarSpectrum, cell: Cell, ctx: Context) -> dict[str, Table]:
    """The five outliers while b turns from ⟂ v towards v at constant length: Theorem 6 holds at mix
    = 0 only."""
    m = setup.bias_width
    w = normal(m, ctx, "bias.w") / m**0.5
    v = normal(m, ctx, "bias.v") / m**0.5
    other = normal(m, ctx, "bias.b") / m**0.5
    length = torch.linalg.vector_norm(v)
    along = torch.dot(other, v) / length**2 * v
    across = other - along
    across = across * length / torch.linalg.vector_norm(across)
    x, y = _uncorrelated(setup.samples, ctx)
    rows = []
    outliers = []
    certificate = []
    for i in range(setup.mix_points):
        mix = i / (setup.mix_points - 1)
        angle = torch.tensor(0.5 * torch.pi * mix, dtype=torch.float64)
        turned = v * torch.sin(angle)
        b = across * torch.cos(angle) + turned
        layers = [w, v, b]
        spectrum = scalar.bias_spectrum(w, v, b, x, y)
        if i == 0:
            certificate.append(certified(spectrum, bias_output, layers, x, y, ctx))
        values = spectrum.select("outlier").expanded()
        for rank, value in enumerate(values):
            outliers.append({"mix": mix, "rank": rank, "eigenvalue": float(value)})
        dense = dense_eigenvalues(bias_output, layers, x, y)
        for row in _theorem6_rows(w, v, b, spectrum, dense):
            rows.append({"mix": mix} | row)
    return {"bias": rows, "bias_outliers": outliers, "certificate": certificate}


def _theorem6_rows(
    w: Tensor, v: Tensor, b: Tensor, spectrum: scalar.Spectrum, dense: Tensor
) -> list[Row]:
    """Theorem 6's five values, also where its assumptions fail, each with its distance to the
    nearest eigenvalue."""
    pair, triple = theorem6_outliers(w, v, b, tolerance=float("inf"))
    lower, upper = triple_bounds(w, v, b)
    bulk = torch.sqrt(torch.dot(w, v) ** 2 + torch.dot(w, b) ** 2)
    largest = dense.abs().max()
    shared = {
        "lower": float(lower),
        "upper": float(upper),
        "dense_error": relative_gap(spectrum.expanded(), dense),
        **_counts(dense, bulk),
    }
    rows = []
    members = (("pair", pair), ("triple", triple))
    for member, values in members:
        for value in values:
            gap = float((dense - value).abs().min() / largest)
            rows.append({"member": member, "theorem": float(value), "gap": gap} | shared)
    return rows


def _uncorrelated(samples: int, ctx: Context) -> tuple[Tensor, Tensor]:
    """Gaussian x, y with mean x = mean y = mean xy = 0 and mean x² = 1, as Theorem 6 assumes."""
    generator = ctx.numpy_generator("scalar_spectrum.bias.data")
    x, y = map(torch.from_numpy, linear(samples, generator, slope=0.0, noise=1.0))
    x = x - x.mean()
    x = x / (x**2).mean().sqrt()
    y = y - y.mean()
    y = y - (x * y).mean() * x
    return x, y


def _counts(dense: Tensor, bulk: Tensor) -> dict[str, int]:
    """How many eigenvalues of the dense Hessian are 0, +r and −r, to 1e-9 of the largest."""
    near = 1e-9 * dense.abs().max()
    counts = {}
    bulks = (("zeros", 0.0), ("plus", bulk), ("minus", -bulk))
    for name, value in bulks:
        counts[name] = int(((dense - value).abs() <= near).sum())
    return counts
