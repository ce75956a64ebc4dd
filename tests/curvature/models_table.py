"""Products of models of other packages against independent double backward in float64, as a table.

Run: python -m tests.curvature.models_table [--page docs/other-libraries.md] [--device cuda]
[NAME ...] (`make models`). The models are small and have random weights; nothing is downloaded.
Each is measured as it comes, in float32, and in float64. The reference is a float64 copy:
torch.autograd.grad twice over parameters, or over shifts that hooks add to outputs.
"""

from __future__ import annotations

import argparse
import copy
import importlib.metadata
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from runner.curvature import LayerOperator, ParameterOperator
from tests.curvature.models_of_others import MODELS, Case
from tests.curvature.oracles import arguments, factored, shifted, twice
from tests.draws import seeded

PARTS = {
    "hessian": "Hessian",
    "gauss_newton": "Gauss–Newton",
    "layers": "between layers",
}
TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-4, torch.bfloat16: 5e-2}
START, END = "<!-- models: made by `make models` -->", "<!-- end of models -->"

Vectors = dict[str, Tensor]


def widened(value: Any, dtype: torch.dtype) -> Any:
    """A copy with floating tensors in `dtype`, caches of keys and values included."""
    value = copy.deepcopy(value)
    leaves = [vars(layer) for cache in tree_leaves(value) for layer in getattr(cache, "layers", ())]
    leaves += [
        cache._store._mapping for cache in tree_leaves(value) if hasattr(cache, "edge_index")
    ]
    for held in leaves:
        for name, t in held.items():
            if isinstance(t, Tensor) and t.is_floating_point():
                held[name] = t.to(dtype)
    return tree_map(
        lambda t: t.to(dtype) if isinstance(t, Tensor) and t.is_floating_point() else t, value
    )


def called(module: nn.Module, given: Any) -> Any:
    args, kwargs = arguments(widened(given, next(module.parameters()).dtype))
    return module(*args, **kwargs)


def hard_sigmoid(x: Tensor, inplace: bool = False) -> Tensor:
    """With a second derivative, which torch's has not."""
    return F.hardtanh(x / 6 + 0.5, 0, 1)


def reference(case: Case, part: str, direction: Vectors) -> Vectors:
    """The product by double backward in float64, without the engine."""
    module = copy.deepcopy(case.module).double()
    for config in [
        m.config
        for m in module.modules()
        if hasattr(getattr(m, "config", None), "num_local_experts")
    ]:
        config._experts_implementation = "eager"  # the grouped product has no float64
    target = widened(case.target, torch.float64)
    with sdpa_kernel(SDPBackend.MATH), patch.object(F, "hardsigmoid", hard_sigmoid):
        if part == "layers":
            return between(case, module, target, direction)
        parameters = {k: p for k, p in module.named_parameters() if p.requires_grad}
        at, v = list(parameters.values()), [direction[k].double() for k in parameters]
        outputs, spec = tree_flatten(case.pick(called(module, case.given)))
        if part == "hessian":
            found = twice(case.loss(tree_unflatten(outputs, spec), target), at, v)
            return dict(zip(parameters, found, strict=True))

        def curvature(leaves: list[Tensor], tangents: list[Tensor]) -> list[Tensor]:
            return twice(case.loss(tree_unflatten(leaves, spec), target), leaves, tangents)

        return dict(zip(parameters, factored(outputs, at, v, curvature), strict=True))


def between(case: Case, module: nn.Module, target: Any, direction: Vectors) -> Vectors:
    """Along shifts of the submodules' outputs, one for all examples."""
    shifts = {
        v: torch.zeros_like(r, dtype=torch.float64, requires_grad=True)
        for v, r in direction.items()
    }

    def placed(e: Tensor, t: Tensor) -> Tensor:
        """One e for all examples; of the shape of the output where the batch cannot be cut."""
        return e.view(t.shape) if e.numel() == t.numel() else e.view(1, *t.shape[1:])

    def hook(e: Tensor) -> Callable[..., Any]:
        return lambda _, __, out: shifted(out, lambda t: placed(e, t))

    for node, e in shifts.items():
        module.get_submodule(node).register_forward_hook(hook(e))
    value = case.loss(case.pick(called(module, case.given)), target)
    found = twice(value, list(shifts.values()), [direction[v].double() for v in shifts])
    return dict(zip(shifts, found, strict=True))


def measured(case: Case, part: str, dtype: torch.dtype, seed: int) -> tuple[Vectors, Vectors]:
    """A direction, and the engine's product with it."""
    module = copy.deepcopy(case.module)
    module = module.double() if dtype == torch.float64 else module
    given, target = widened(case.given, dtype), widened(case.target, dtype)
    generator = seeded(seed)

    def draw(size: int) -> Tensor:
        return torch.randn(size, generator=generator, device="cpu").to(
            torch.get_default_device(), dtype
        )

    if part == "layers":
        layers = LayerOperator(module, case.full_loss, (given, target), case.nodes)
        direction = {v: draw(layers.sizes[v]) for v in case.nodes}
        product = layers.apply({v: r.unsqueeze(0) for v, r in direction.items()})
        return direction, {v: product[v][0] for v in case.nodes}
    operator = ParameterOperator(module, case.full_loss, (given, target), part=part)
    v = draw(operator.shape[0])
    parameters = operator.layout.parameters
    return in_shapes(v, parameters), in_shapes(operator @ v, parameters)


def in_shapes(flat: Tensor, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Pieces of a flat vector, each in the shape of its parameter."""
    pieces = flat.split([p.numel() for p in parameters.values()])
    return {k: piece.view_as(parameters[k]) for k, piece in zip(parameters, pieces, strict=True)}


def compared(case: Case, part: str, dtype: torch.dtype) -> float | str:
    """The relative error, or the line of a refusal."""
    try:
        direction, product = measured(case, part, dtype, seed=1)
    except ValueError as error:
        return str(error)
    except Exception as error:
        return f"**{type(error).__name__}**: {str(error).splitlines()[0] if str(error) else ''}"
    expected = reference(case, part, direction)
    truth = torch.cat([t.double().flatten() for t in expected.values()])
    measured_product = torch.cat([product[k].double().flatten() for k in expected])
    if not float(truth.norm()) > 0:
        raise AssertionError("the reference is zero: give the model other weights")
    return float((measured_product - truth).norm() / truth.norm())


Outcome = dict[torch.dtype, float | str]
"""Errors of the products of one matrix, or the line of a refusal, in float64 and as it comes."""


@dataclass(frozen=True)
class Measured:
    """One model: its name, package, and what was measured of each matrix."""

    name: str
    package: str
    found: Mapping[str, Outcome]


def measure(name: str) -> Measured:
    """The products of one model."""
    model = MODELS[name]
    start = time.process_time()
    torch.manual_seed(0)
    case = model.make()
    own = next(case.module.parameters()).dtype
    found = {}
    for part in PARTS:
        found[part] = {d: compared(case, part, d) for d in dict.fromkeys((torch.float64, own))}
    print(name, found, f"{time.process_time() - start:.1f} s", flush=True)
    return Measured(name, model.package, found)


def wrong(model: Measured) -> list[str]:
    """Products beyond the tolerance, and failures that are no refusal."""
    lines = []
    for part, outcome in model.found.items():
        for dtype, value in outcome.items():
            failed = isinstance(value, str) and value.startswith("**")
            if failed or (isinstance(value, float) and value > TOLERANCES[dtype]):
                lines.append(f"{model.name}, {PARTS[part]}, {dtype}: {value}")
    return lines


def largest(models: Sequence[Measured], part: str) -> str:
    """Largest errors of a matrix over the models, by precision."""
    by_precision: dict[torch.dtype, list[float]] = {dtype: [] for dtype in TOLERANCES}
    for model in models:
        for dtype, value in model.found[part].items():
            if isinstance(value, float):
                by_precision[dtype].append(value)
    errors = [f"{max(values):.0e}" for values in by_precision.values() if values]
    return " / ".join(errors) or "refused"


def page(models: Sequence[Measured]) -> str:
    """One line for each package, and the refusals by their messages."""
    head = ["package", "models", *PARTS.values()]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for package in dict.fromkeys(model.package for model in models):
        of_package = [model for model in models if model.package == package]
        version = importlib.metadata.version(package)
        errors = [largest(of_package, part) for part in PARTS]
        lines.append(f"| {package} {version} | {len(of_package)} | {' | '.join(errors)} |")
    refused = [refusal(model) for model in models]
    said = [f"- {line}" for line in refused if line]
    return "\n".join([*lines, "", f"With torch {torch.__version__}. Refused:", "", *said])


def refusal(model: Measured) -> str:
    """What of a model is refused, and the beginning of the first message."""
    lines = {}
    precisions = set()
    for part, outcome in model.found.items():
        for dtype, value in outcome.items():
            precisions.add(dtype)
            if isinstance(value, str):
                lines[part, dtype] = value
    if not lines:
        return ""
    parts = dict.fromkeys(PARTS[part] for part, _ in lines)
    own = {dtype for _, dtype in lines}
    which = "" if len(parts) == len(PARTS) else f" ({', '.join(parts)})"
    where = "" if own == precisions else f" in {str(own.pop()).removeprefix('torch.')}"
    message = textwrap.shorten(next(iter(lines.values())), 110, placeholder=" …")
    return f"{model.name}{which}{where}: {message}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "names", nargs="*", help="parts of names: these models alone (no page is written)"
    )
    parser.add_argument("--page", type=Path)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    torch.set_default_device(given.device)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    words = given.names or [""]
    models = []
    for name in MODELS:
        if any(word in name for word in words):
            models.append(measure(name))
    if given.page and not given.names:
        text = given.page.read_text()
        before, rest = text.split(START)
        given.page.write_text(f"{before}{START}\n\n{page(models)}\n\n{END}{rest.split(END)[1]}")
    failed = []
    for model in models:
        failed += wrong(model)
    print(*failed, sep="\n")
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
