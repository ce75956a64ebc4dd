"""Products over the parameters of ResNet-18 (ImageNet stem, 32 x 32) told in gradients, beside curvlinops in one run.

Operation count, F for one forward pass: a gradient 3 F; a Hessian product from the kept graph of the gradient 6 F, two
gradients, forward over reverse without it 9 F; a Gauss-Newton product 5 F (a tangent pass with its values 3 F, a
backward pass from the kept graph 2 F), 1.7 gradients. Goals: Hessian at most 2.5, Gauss-Newton at most 1.8, and
neither more than curvlinops. Ten largest eigenpairs of a small convolutional network: ours, and curvlinops with eigsh.

CPU time, one thread. Run: python -m tests.bench.bench_parameters [--quick] (B = 32 instead of 128).
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from scipy.sparse.linalg import eigsh
from torch import Tensor, nn

from runner.curvature import ParameterOperator, top_eigenpairs
from runner.models.resnet import resnet18
from tests.bench.machine import operations, seconds, share


def saved_bytes(function: Callable[[], object]) -> int:
    """Bytes of the distinct storages that automatic differentiation keeps during a call."""
    seen: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        seen[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        function()
    return sum(seen.values())


def curvlinops_operators(module: nn.Module, loss: nn.Module, data: list) -> dict[str, object]:
    try:
        import curvlinops
    except ImportError:
        return {}
    parameters = [p for p in module.parameters() if p.requires_grad]
    kinds = {"hessian": curvlinops.HessianLinearOperator, "gauss_newton": curvlinops.GGNLinearOperator}
    return {part: kind(module, loss, parameters, data, check_deterministic=False) for part, kind in kinds.items()}


def products(batch: int, repeats: int) -> None:
    generator = torch.Generator().manual_seed(0)
    module = resnet18(generator=generator).eval()
    x, y = torch.randn(batch, 3, 32, 32, generator=generator), torch.randint(0, 10, (batch,), generator=generator)
    loss = nn.CrossEntropyLoss()
    parameters = list(module.parameters())

    def gradient() -> tuple[Tensor, ...]:
        return torch.autograd.grad(loss(module(x), y), parameters)

    unit = seconds(gradient, repeats)
    print(f"ResNet-18, B = {batch}: gradient {unit:.2f} s, {share(operations(gradient), unit)}", flush=True)
    theirs = curvlinops_operators(module, loss, [(x, y)])
    for part in ("hessian", "gauss_newton"):
        lines = []
        for how, budget in (("graph kept", 1 << 34), ("graph not kept", 1 << 28)):
            operator = ParameterOperator(module, loss, [(x, y)], part=part, memory_budget=budget, check=False)  # type: ignore[arg-type]
            v = torch.randn(operator.shape[0], generator=generator)
            took = seconds(lambda o=operator, v=v: o @ v, repeats)
            lines.append(f"{how} {took / unit:.2f} ({share(operations(lambda o=operator, v=v: o @ v), took)})")
            del operator
        if part in theirs:
            lines.append(f"curvlinops {seconds(lambda o=theirs[part], v=v: o @ v, repeats) / unit:.2f}")  # type: ignore[operator]
        print(f"  {part} product, in gradients: " + ", ".join(lines), flush=True)
    operator = ParameterOperator(module, loss, [(x, y)], memory_budget=1 << 34, check=False)
    one = saved_bytes(gradient)
    kept = saved_bytes(lambda: operator @ torch.ones(operator.shape[0]))
    print(f"  memory of the kept graph: {kept / one:.2f} times what a gradient saves ({one / 2**20:.0f} MiB)")


def eigenpairs() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10)
    )
    data = [(torch.randn(256, 1, 16, 16), torch.randint(0, 10, (256,)))]
    loss = nn.CrossEntropyLoss()
    operator = ParameterOperator(module, loss, data)
    ours = seconds(lambda: top_eigenpairs(operator, 10, generator=torch.Generator().manual_seed(0)), 2)
    found = top_eigenpairs(operator, 10, generator=torch.Generator().manual_seed(0))
    line = f"ten largest eigenpairs, {operator.shape[0]} parameters: ours {ours:.2f} s, {found.products} products"
    theirs = curvlinops_operators(module, loss, data)
    if theirs:
        view = theirs["hessian"].to_scipy()  # type: ignore[attr-defined]
        other = seconds(lambda: eigsh(view, 10, which="LA", tol=1e-5), 2)
        values = eigsh(view, 10, which="LA", tol=1e-5)[0]
        difference = float((found.values - torch.from_numpy(values[::-1].copy())).abs().max() / found.values[0])
        line += f", curvlinops with eigsh {other:.2f} s, largest relative difference {difference:.1e}"
    print(line)


def main() -> None:
    torch.set_num_threads(1)
    quick = "--quick" in sys.argv
    products(32 if quick else 128, 1 if quick else 3)
    eigenpairs()


if __name__ == "__main__":
    main()
