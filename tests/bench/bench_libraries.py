"""This package, curvlinops, hessian-eigenthings and PyHessian on the same work, on one thread in
one process.

Hessian products and the five largest eigenvalues of a convolutional network trained on
scikit-learn's digits, whose matrix is known. Seconds are processor time: the libraries take turns
in every repeat, the median counts. Ratio: their time / ours. A library that is not installed is
left out (`hess-run[libraries]`).

Run: python -m tests.bench.bench_libraries [--quick]
"""

import copy
import importlib.metadata
import sys
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from scipy.sparse.linalg import eigsh
from sklearn.datasets import load_digits
from torch import Tensor, nn

from runner.curvature import ParameterOperator, as_linear_operator, top_eigenpairs
from tests.bench.machine import in_turns
from tests.draws import normal, seeded, tanh_net, trained

OURS = "hess-run"
PACKAGES = {
    "curvlinops": "curvlinops-for-pytorch",
    "hessian_eigenthings": "hessian-eigenthings",
    "pyhessian": "pyhessian",
}
EIGENVALUES = 5

Data = tuple[Tensor, Tensor]
Ways = dict[str, Callable[[], Any]]


def library(name: str) -> Any:
    """The module, None where it is not installed."""
    try:
        return __import__(name)
    except ImportError:
        return None


def hessians(module: nn.Module, data: Data) -> dict[str, Any]:
    """The Hessian as each library has it, of a copy of the module, since some write to its
    gradients."""
    loss, found = nn.CrossEntropyLoss(), {}
    if curvlinops := library("curvlinops"):
        given = module, loss, list(module.parameters()), [data]
        found["curvlinops"] = curvlinops.HessianLinearOperator(*given, check_deterministic=False)
    if eigenthings := library("hessian_eigenthings"):
        twin = copy.deepcopy(module)
        found["hessian_eigenthings"] = eigenthings.HessianOperator(
            twin, [data], eigenthings.supervised_loss(loss)
        )
    if pyhessian := library("pyhessian"):
        found["pyhessian"] = pyhessian.hessian(copy.deepcopy(module), loss, data=data, cuda=False)
    return found


def products(ours: ParameterOperator, theirs: dict[str, Any], v: Tensor) -> Ways:
    def by_parts(of: Any) -> Tensor:
        from pyhessian.utils import hessian_vector_product

        pieces = v.split([p.numel() for p in of.params])
        parts = [piece.view_as(p) for piece, p in zip(pieces, of.params, strict=True)]
        return torch.cat([t.flatten() for t in hessian_vector_product(of.gradsH, of.params, parts)])

    ways: Ways = {OURS: lambda: ours @ v}
    for name, of in theirs.items():
        ways[name] = (
            (lambda of=of: by_parts(of))
            if name == "pyhessian"
            else (lambda of=of: (of @ v).detach())
        )
    return ways


def eigenvalues(ours: ParameterOperator, theirs: dict[str, Any]) -> Ways:
    ways: Ways = {OURS: lambda: top_eigenpairs(ours, EIGENVALUES).values}
    if of := theirs.get("curvlinops"):
        ways["curvlinops and eigsh"] = lambda: eigsh(
            of.to_scipy(), EIGENVALUES, which="LA", tol=1e-4
        )[0][::-1].copy()
    if thing := theirs.get("hessian_eigenthings"):
        lanczos = library("hessian_eigenthings").lanczos
        for steps in (2 * EIGENVALUES, 50):
            given = {"k": EIGENVALUES, "max_iter": steps, "which": "LA"}
            ways[f"hessian-eigenthings, {steps} steps"] = lambda given=given: (
                lanczos(thing, **given).eigenvalues
            )
    if powers := theirs.get("pyhessian"):
        ways["PyHessian, power iteration"] = lambda: powers.eigenvalues(top_n=EIGENVALUES)[0]
    return ways


def told(title: str, ways: Ways, repeats: int, error: Callable[[Any], float]) -> None:
    """Times in turns, ratios to ours, and the error of what each gives."""
    outcomes: dict[str, list[float]] = {name: [] for name in ways}
    kept = [lambda name=name: outcomes[name].append(error(ways[name]())) for name in ways]
    seconds = dict(zip(ways, map(median, in_turns(*kept, repeats=repeats)), strict=True))
    print(f"\n{title}\n\n| library | seconds | ratio | error |\n|---|---|---|---|")
    for name in ways:
        rms = (sum(e * e for e in outcomes[name]) / len(outcomes[name])) ** 0.5
        print(
            f"| {name} | {seconds[name]:.3g} | {seconds[name] / seconds[OURS]:.2f} | {rms:.1e} |",
            flush=True,
        )


def digits() -> tuple[nn.Module, Data]:
    """A convolutional network of 902 parameters after 60 steps of Adam on 512 digits."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 6, 3, 2, 1),
        nn.Tanh(),
        nn.Conv2d(6, 9, 3, 2, 1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(36, 10),
    )
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images[:512] / 16).float().view(-1, 1, 8, 8), torch.tensor(labels[:512])
    trained(net, x, y, 60)
    return net, (x, y)


def copies(starts: int = 20) -> None:
    """How often each way misses copies of an eigenvalue that a linear layer under squared error
    repeats ten times."""
    torch.manual_seed(0)
    net = tanh_net(10, 16, 10).double()
    x, y = 3 * normal(40, 10), normal(40, 10)
    head = ParameterOperator(net, "mse", (x, y), groups=["2"])
    values = torch.linalg.eigvalsh(head.dense()).flip(0)
    what = f"starts of {starts} that miss a copy of an eigenvalue"
    print(f"\nHead of a network under squared error: {what}\n")
    print("| k | hess-run | eigsh |\n|---|---|---|")
    for k in (2, 5, 8, 10, 15):
        missed = [0, 0]
        for seed in range(starts):
            generator = seeded(seed)
            start = normal(len(values), generator=generator).numpy()
            theirs = eigsh(
                as_linear_operator(head), k, which="LA", v0=start, return_eigenvectors=False
            )
            found = (
                top_eigenpairs(head, k, generator=generator).values,
                torch.tensor(theirs).sort().values.flip(0),
            )
            missed = [
                m + (not torch.allclose(f, values[:k], atol=1e-8))
                for m, f in zip(missed, found, strict=True)
            ]
        print(f"| {k} | {missed[0]} | {missed[1]} |", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    quick = "--quick" in sys.argv
    known = {name: package for name, package in PACKAGES.items() if library(name)}
    print(
        f"torch {torch.__version__}, "
        + ", ".join(f"{p} {importlib.metadata.version(p)}" for p in known.values())
    )
    net, data = digits()
    ours, theirs = ParameterOperator(net, "cross_entropy", data), hessians(net, data)
    wide = copy.deepcopy(net).double()
    exact = ParameterOperator(wide, "cross_entropy", (data[0].double(), data[1])).dense()
    values = torch.linalg.eigvalsh(exact).flip(0)[:EIGENVALUES]
    n, v = len(exact), torch.randn(len(exact))
    expected = exact @ v.double()
    told(
        f"Convolutional network, {n} parameters, B = 512: Hessian product; error: relative to "
        "float64",
        products(ours, theirs, v), 3 if quick else 20,
        lambda found: float((found.double() - expected).norm() / expected.norm()),
    )  # fmt: skip
    told(
        "The same network: five largest eigenvalues; error: largest, relative to the largest "
        "eigenvalue",
        eigenvalues(ours, theirs), 1 if quick else 5,
        lambda found: float((torch.as_tensor(found).double() - values).abs().max() / values[0]),
    )  # fmt: skip
    copies(2 if quick else 20)


if __name__ == "__main__":
    main()
