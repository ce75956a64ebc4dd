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
import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass
class Lines:
    """Numbers of the lines of refusals, in the order of their first use."""

    known: list[str] = field(default_factory=list)

    def cell(self, found: dict[torch.dtype, float | str]) -> str:
        return " / ".join(dict.fromkeys(self._one(dtype, value) for dtype, value in found.items()))

    def _one(self, dtype: torch.dtype, value: float | str) -> str:
        if isinstance(value, float):
            return f"{value:.0e}" if value <= TOLERANCES[dtype] else f"**wrong: {value:.1e}**"
        line = re.sub(r"\s+", " ", value)
        if line not in self.known:
            self.known.append(line)
            print(f"{len(self.known)}. {line}", flush=True)
        return f"refused ({self.known.index(line) + 1})"


def row(name: str, lines: Lines) -> str:
    """One line of the table."""
    model = MODELS[name]
    start = time.process_time()
    torch.manual_seed(0)
    case = model.make()
    own = next(case.module.parameters()).dtype
    cells = []
    for part in PARTS:
        found = {d: compared(case, part, d) for d in dict.fromkeys((torch.float64, own))}
        if all(isinstance(value, str) for value in found.values()):
            found = {own: found[own]}
        cells.append(lines.cell(found))
    size = sum(p.numel() for p in case.module.parameters())
    line = f"| {name} | {model.package} | {size:,} | {' | '.join(cells)} | {model.before} |"
    print(f"{line} {time.process_time() - start:.1f} s", flush=True)
    return line


def page(rows: Sequence[str], lines: Lines) -> str:
    packages = dict.fromkeys(model.package for model in MODELS.values())
    versions = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in packages)
    head = ["model", "package", "parameters", *PARTS.values(), "before"]
    table = [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *rows]
    refused = [f"{k}. {line}" for k, line in enumerate(lines.known, start=1)]
    text = f"torch {torch.__version__}, {versions}."
    return "\n\n".join([text, "\n".join(table), "Refused:", "\n".join(refused)])


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
    lines = Lines()
    words = given.names or [""]
    rows = []
    for name in MODELS:
        if any(word in name for word in words):
            rows.append(row(name, lines))
    if given.page and not given.names:
        text = given.page.read_text()
        before, rest = text.split(START)
        given.page.write_text(
            f"{before}{START}\n\n{page(rows, lines)}\n\n{END}{rest.split(END)[1]}"
        )
    if any("**" in r for r in [*rows, *lines.known]):
        sys.exit(1)


if __name__ == "__main__":
    main()
