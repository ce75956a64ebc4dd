"""Products over the parameters of ResNet-18 (ImageNet stem, 32 x 32) told in gradients, beside
curvlinops in one run.

Operation count, F for one forward pass: a gradient 3 F; a Hessian product from the kept graph of
the gradient 6 F, two gradients, and 9 F without it; a Gauss-Newton product from kept graphs 4 F (a
tangent pass and a backward pass), 1.3 gradients, and 6 F without them. Goals: Hessian at most 2.5
and 3 times the memory, Gauss-Newton at most 1.8, and neither more than curvlinops.

CPU time, one thread. Run: python -m tests.bench parameters [--quick]
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from runner.curvature import ParameterOperator
from runner.curvature.basics.peak import allocations
from runner.models.resnet import resnet18
from tests.bench.machine import gradient_of, in_turns, operations, peak
from tests.bench.table import Row
from tests.draws import seeded

AMPLE, DEFAULT = 1 << 34, 1 << 30
"""memory_budget: all graphs are kept; what a user gets who says nothing."""
PARTS = {"hessian": ("Hessian", 2.5), "gauss_newton": ("Gauss-Newton", 1.8)}
"""Name, and gradients that a product may cost."""


def curvlinops_operators(module: nn.Module, loss: nn.Module, data: list) -> dict[str, object]:
    """The same matrices; none where curvlinops is not installed."""
    try:
        import curvlinops
    except ImportError:
        return {}
    given = module, loss, list(module.parameters()), data
    kinds = curvlinops.HessianLinearOperator, curvlinops.GGNLinearOperator
    operators = [kind(*given, check_deterministic=False) for kind in kinds]
    return dict(zip(PARTS, operators, strict=True))


def products(batch: int, repeats: int) -> Iterator[Row]:
    """Hessian and Gauss-Newton products against a gradient, in time and memory, and against
    curvlinops."""
    generator = seeded()
    module = resnet18(generator=generator).eval()
    x = torch.randn(batch, 3, 32, 32, generator=generator)
    y = torch.randint(0, 10, (batch,), generator=generator)
    loss = nn.CrossEntropyLoss()
    gradient = gradient_of(module, loss, x, y)
    theirs = curvlinops_operators(module, loss, [(x, y)])
    for part, (title, goal) in PARTS.items():
        name = f"ResNet-18, B = {batch}: {title} product of all parameters"
        operator = ParameterOperator(
            module, loss, [(x, y)], part=part, memory_budget=AMPLE, check=False
        )
        v = torch.randn(operator.shape[0], generator=generator)
        ways: list[Callable[[], object]] = [partial(operator.matvec, v), gradient]
        if part in theirs:
            ways.append(partial(theirs[part].__matmul__, v))
        times = in_turns(*ways, repeats=repeats)
        counts = [operations(way) for way in ways]
        default = at_default(module, loss, x, y, part)
        told = f"the graph is kept, as with 16 GiB; at the default budget: {default}"
        for what, k, most in (("gradients", 1, goal), ("products of curvlinops", 2, 1)):
            if k < len(ways):
                both = times[0], times[k]
                counted = {"operations": (counts[0], counts[k]), "peak": peak(), "note": told}
                title = f"{name}, in {what}"
                yield Row("parameters", title, *both, most, at_least=False, **counted)
        del operator, ways
        if part == "hessian":
            operator = ParameterOperator(module, loss, [(x, y)], memory_budget=AMPLE, check=False)
            both = partial(operator.matvec, v), gradient
            peaks = [(max(allocations(way)) / 2**20,) for way in both]
            what = f"ResNet-18, B = {batch}: peak of a Hessian product, in peaks of a gradient"
            told = "bytes of tensors, graph kept"
            yield Row("parameters", what, *peaks, 3, at_least=False, unit="MiB", note=told)


def at_default(module: nn.Module, loss: nn.Module, x: Tensor, y: Tensor, part: str) -> str:
    """What the default budget chooses."""
    planned = ParameterOperator(
        module, loss, [(x, y)], part=part, memory_budget=DEFAULT, check=False
    ).planned
    return "kept" if planned.keep else f"made anew, {planned.chunk or len(x)} examples at once"


def rows(quick: bool = False, word: str = "") -> Iterator[Row]:
    """word: "products"."""
    if word in "products":
        yield from products(32 if quick else 128, 1 if quick else 2)
