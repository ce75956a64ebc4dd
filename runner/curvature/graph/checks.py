"""What is checked before anything is measured: each of these would make the numbers wrong without an error.

- BatchNorm in training mode mixes the examples; dropout in training mode is random;
- a network that is not deterministic, or whose examples are not independent, has no per-example blocks;
- a loss that is not the mean of per-example losses makes every block wrong by a factor;
- an exact computation that does not fit in memory is refused, and the estimator to use instead is named.
A fused kernel without a second derivative is caught where it is differentiated (derivatives.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from runner.curvature.exact.derivatives import Evaluation, evaluate
from runner.curvature.graph.dag import INPUT, Dag
from runner.curvature.graph.losses import CrossEntropy, MeanSquaredError

MEMORY_BUDGET = 1 << 30
"""Default bytes for one exact computation, working set and results together."""

_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_BATCH_NORM = (nn.modules.batchnorm._BatchNorm,)


def modules_of(dag: Dag) -> Iterator[tuple[str, str, nn.Module]]:
    """(node, path inside it, module) for every module of the graph."""
    for name in dag.order:
        fn = dag.nodes[name].fn
        if isinstance(fn, nn.Module):
            for path, module in fn.named_modules():
                yield name, path, module


def check_modes(dag: Dag) -> None:
    """Raises ValueError for BatchNorm that uses batch statistics and for active dropout."""
    for name, path, module in modules_of(dag):
        where = f"node {name!r}" + (f", module {path!r}" if path else "")
        if isinstance(module, _BATCH_NORM) and (module.training or module.running_mean is None):
            raise ValueError(
                f"{where}: {type(module).__name__} normalises by the batch: one example's loss depends on the others. "
                "Call .eval() on the model before measuring (and keep running statistics)"
            )
        if isinstance(module, _DROPOUT) and module.training and module.p > 0:
            raise ValueError(f"{where}: {type(module).__name__} is in training mode: the loss is random. Call .eval()")


def check_loss(dag: Dag, output: Tensor, y: Tensor) -> None:
    """Raises ValueError unless the loss of the batch is the mean of the losses of its examples, and repeatable."""
    if isinstance(dag.loss, CrossEntropy | MeanSquaredError):
        return
    if y.shape[:1] != output.shape[:1]:
        raise ValueError(
            f"expected one target per example: {output.shape[0]} examples, targets of shape {tuple(y.shape)}"
        )
    dag.loss.check_shape(dag.loss.fn(output, y), output)
    twice = [dag.loss.fn(output, y).mean().item() for _ in range(2)]
    if not _close(twice[0], twice[1], output.dtype):
        raise ValueError(
            f"the loss is not deterministic: {twice[0]!r}, then {twice[1]!r} for the same output and target"
        )
    single = (
        torch.stack([dag.loss.fn(output[b : b + 1], y[b : b + 1]).reshape(()) for b in range(len(output))])
        .mean()
        .item()
    )
    if not _close(twice[0], single, output.dtype):
        hint = (
            " (it looks like a sum: use reduction='mean' or 'none')"
            if _close(twice[0], single * len(output), output.dtype)
            else ""
        )
        raise ValueError(
            f"the loss of the batch, {twice[0]:.6g}, is not the mean of its examples' losses, {single:.6g}{hint}. "
            "Return the mean over the examples, or one value per example"
        )


def check_examples(dag: Dag, x: Tensor) -> None:
    """Raises ValueError when two evaluations differ, or when an example's outputs depend on the rest of the batch."""
    with torch.no_grad():
        first, second = dag.forward(x), dag.forward(x)
        half = dag.forward(x[: (len(x) + 1) // 2])
    for name in dag.order:
        if not torch.equal(first[name], second[name]) and not _alike(first[name], second[name]):
            raise ValueError(
                f"node {name!r} is not deterministic: two evaluations of the same input differ. Remove the randomness"
            )
        if not _alike(first[name][: len(half[name])], half[name]):
            raise ValueError(
                f"node {name!r} mixes the examples of the batch: its output for the first ones changes with the rest. "
                "Per-example blocks need a function of one example (normalisation in evaluation mode)"
            )


def exact_elements(
    dag: Dag, sizes: dict[str, int], measured: tuple[str, ...], per_example: bool = False
) -> tuple[int, int]:
    """Numbers stored per example while routing, and for the results, for the exact blocks of `measured`."""
    routed = sum(sizes[v] for v in dag.order)
    widest = max(sizes[v] for v in dag.order)
    total = sum(sizes[v] for v in measured)
    edges = sum(
        sizes[u] * sizes[p] + sizes[p] ** 2
        for u in dag.order
        for p in set(dag.nodes[u].parents)
        if p != INPUT or INPUT in measured
    )
    working = 3 * routed * widest + edges + 3 * sizes[dag.output] * total
    return working + (3 * total**2 if per_example else 0), 0 if per_example else 3 * total**2


def plan_chunk(
    dag: Dag,
    sizes: dict[str, int],
    measured: tuple[str, ...],
    examples: int,
    itemsize: int,
    budget: int,
    per_example: bool = False,
) -> int:
    """How many examples fit at once into `budget` bytes.

    Raises ValueError when not even one does (per_example: when not all do), naming the estimators to use instead.
    """
    working, result = exact_elements(dag, sizes, measured, per_example)
    room = budget // itemsize - result
    chunk = min(examples, room // working) if room > 0 else 0
    if chunk < (examples if per_example else 1):
        need = (result + working * (examples if per_example else 1)) * itemsize
        raise ValueError(
            f"exact blocks of {len(measured)} nodes need {_bytes(need)}, over the budget of {_bytes(budget)}. "
            "Measure fewer nodes, raise memory_budget, or estimate without the blocks: frobenius_norms (Hutchinson) "
            "for R and C, spectral_norms (power iteration) for D, lanczos_extremes for eigenvalues"
        )
    return chunk


def check_before_measuring(dag: Dag, x: Tensor, y: Tensor) -> Evaluation:
    """Every check but the memory's; returns the evaluation of the batch. Raises ValueError."""
    if len(x) == 0:
        raise ValueError("the batch is empty: expected at least one example")
    if len(x) != len(y):
        raise ValueError(f"expected as many targets as examples, got {len(y)} targets for {len(x)} examples")
    check_modes(dag)
    evaluation = evaluate(dag, x)
    if set(evaluation.structures) != set(dag.order):  # nodes in closed form cannot mix examples or draw random numbers
        check_examples(dag, x)
    if not isinstance(dag.loss, CrossEntropy | MeanSquaredError):
        with torch.no_grad():
            check_loss(dag, evaluation.values[dag.output], y)
    return evaluation


def _tolerance(dtype: torch.dtype) -> float:
    return 1e4 * torch.finfo(dtype).eps


def _close(a: float, b: float, dtype: torch.dtype) -> bool:
    return math.isclose(a, b, rel_tol=_tolerance(dtype), abs_tol=_tolerance(dtype))


def _alike(a: Tensor, b: Tensor) -> bool:
    scale = float(a.abs().max()) if a.numel() else 0.0
    return a.shape == b.shape and bool((a - b).abs().max() <= _tolerance(a.dtype) * max(scale, 1e-12))


def _bytes(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"
