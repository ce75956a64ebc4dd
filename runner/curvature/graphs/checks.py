"""What is checked before anything is measured: each of these would make the numbers wrong without
an error.

- a network that is not deterministic (dropout in training mode), or whose examples are not
  independent (BatchNorm in training mode), has no blocks of its examples;
- a loss that is not the mean of per-example losses makes every block wrong by a factor;
- values that are not finite have no derivatives;
- an exact computation that does not fit in memory is refused, and what to use instead is named.

Backwards without a second derivative are caught where they are differentiated (derivatives.py).
Tolerances are relative, and never wide: in half precision they are a few roundings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from runner.curvature.function.errors import (
    MeasurementError,
    first_not_finite,
    no_derivatives,
)
from runner.curvature.function.trees import alike, tolerance
from runner.curvature.graphs.dag import INPUT, Dag
from runner.curvature.graphs.derivatives import Evaluation, evaluate
from runner.curvature.graphs.losses import CrossEntropy, MeanSquaredError
from runner.curvature.graphs.state import measuring

MEMORY_BUDGET = 1 << 30
"""Default bytes for one exact computation, working set and results together."""


def exact_elements(
    dag: Dag,
    sizes: dict[str, int],
    measured: tuple[str, ...],
    per_example: bool = False,
    kept: int = 3,
) -> tuple[int, int]:
    """Numbers stored per example while routing, and for the results, for the exact blocks of
    `measured`.

    kept: how many sets of blocks exist at once (Gauss-Newton alone 1, with the tensor part 2, both
    and their sum 3), each half of a square matrix, since the other half are transposed views."""
    routed = sum(sizes[v] for v in dag.order)
    widest = max(sizes[v] for v in dag.order)
    total = sum(sizes[v] for v in measured)
    edges = 0
    for u in dag.order:
        for p in set(dag.nodes[u].parents):
            if p != INPUT or INPUT in measured:
                edges += sizes[p] * (sizes[u] + sizes[p])
    working = 3 * routed * widest + edges + 3 * sizes[dag.output] * total
    result = kept * (total**2 + widest * total) // 2 + widest * total
    return working + (result if per_example else 0), 0 if per_example else result


def plan_chunk(
    dag: Dag,
    sizes: dict[str, int],
    measured: tuple[str, ...],
    examples: int,
    itemsize: int,
    budget: int,
    per_example: bool = False,
    kept: int = 3,
    reserved: int = 0,
) -> int:
    """How many examples fit at once into `budget` bytes, `reserved` of them set aside.

    Raises ValueError when not even one does (per_example: when not all do), naming the estimators
    to use instead."""
    working, result = exact_elements(dag, sizes, measured, per_example, kept)
    room = (budget - reserved) // itemsize - result
    chunk = 0
    if room > 0:
        chunk = min(examples, room // working)
    if chunk < (examples if per_example else 1):
        need = (result + working * (examples if per_example else 1)) * itemsize + reserved
        raise ValueError(
            f"exact blocks of {len(measured)} nodes need {_bytes(need)}, over the budget of "
            f"{_bytes(budget)}. Measure fewer nodes, raise memory_budget, or take "
            "inter_layer_metrics, which estimates without the blocks"
        )
    return chunk


def _bytes(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"


def check_before_measuring(dag: Dag, x: Tensor, y: Tensor, *, finite: bool = True) -> Evaluation:
    """Every check but the memory's; returns the evaluation of the batch, and leaves the model as it
    was.

    finite=False lets NaN and infinity pass, for callers that report them with their result. Raises
    ValueError."""
    with measuring(dag):
        if len(x) != len(y):
            raise MeasurementError(
                f"expected as many targets as examples, got {len(y)} targets for {len(x)} examples"
            )
        evaluation = check_network(dag, x, finite=finite)
        if not finite and first_not_finite(evaluation.values):
            return evaluation
        output = evaluation.values[dag.output]
        dag.loss.targets(output, y)
        if not isinstance(dag.loss, CrossEntropy | MeanSquaredError):
            with torch.no_grad():
                check_loss(dag, output, y)
    return evaluation


def check_network(dag: Dag, x: Tensor, *, finite: bool = True) -> Evaluation:
    """The checks that need no loss: values, examples that mix, random draws. Raises
    ValueError."""
    if len(x) == 0:
        raise MeasurementError("the batch is empty: expected at least one example")
    evaluation = evaluate(dag, x)
    bad = first_not_finite(evaluation.values)
    if bad and finite:
        raise no_derivatives(bad)
    recognised = evaluation.structures.keys() == set(dag.order)
    if not bad and not recognised:  # closed forms neither mix examples nor draw
        check_examples(dag, x, evaluation.values)
    return evaluation


# ------------------------------------------------------------------ the loss


def check_loss(dag: Dag, output: Tensor, y: Tensor) -> None:
    """Raises ValueError unless the loss of a batch is the mean of the losses of its examples, and
    repeatable.

    Checked on the outputs and on the outputs with examples and components exchanged: a trained
    network's own losses are so small that a sum hides among roundings. Twice the batch tells a sum
    from a mean for one example too."""
    if y.shape[:1] != output.shape[:1]:
        raise MeasurementError(
            f"expected one target per example: {output.shape[0]} examples, targets of shape "
            f"{tuple(y.shape)}"
        )
    loss = dag.loss.value
    allowed = tolerance(output.dtype)
    first, second = (loss(output, y).mean() for _ in range(2))
    differ = float((first - second).abs()) > allowed * float(first.abs())
    if differ and not torch.equal(first, second):
        raise MeasurementError(
            f"the loss is not deterministic: {float(first)!r}, then {float(second)!r} for the "
            "same output and target"
        )
    trials = []
    for changed in (output, output.roll(1, 0).flip(1)):
        outputs = torch.cat([output, changed])
        targets = torch.cat([y, y])
        pairs = zip(outputs.split(1), targets.split(1), strict=True)
        single = torch.stack([loss(output, target).reshape(()) for output, target in pairs])
        trials.append((loss(outputs, targets), single))
    sizes = [float(s.abs().mean()) for _, s in trials if s.isfinite().all()]
    scale = max(sizes, default=0.0)
    for whole, single in trials:
        if bool(single.isfinite().all()) or not bool(whole.isfinite().all()):
            _compare_losses(whole, single, allowed * scale)
        else:
            raise MeasurementError(
                "the loss of the batch is finite and that of a single example is not (an example "
                "that the loss ignores?): use reduction='none', or drop these examples"
            )


def _compare_losses(whole: Tensor, single: Tensor, allowed: float) -> None:
    """Raises ValueError when the loss of a batch is not that of its examples."""
    if whole.dim() == 1:
        if bool(((whole - single).abs() > allowed).any()):
            raise MeasurementError(
                "an example's loss depends on the rest of the batch: return the loss of each alone"
            )
        return
    mean = single.mean()
    if not whole.isfinite() or float((whole - mean).abs()) <= allowed:
        return
    summed = float((whole - single.sum()).abs()) <= allowed * len(single)
    hint = " (it looks like a sum: use reduction='mean' or 'none')" if summed else ""
    raise MeasurementError(
        f"the loss of the batch, {float(whole):.6g}, is not the mean of its examples' losses, "
        f"{float(mean):.6g}{hint}. Return the mean over the examples, or one value per example"
    )


# ------------------------------------------------------------------ the examples


def check_examples(dag: Dag, x: Tensor, values: dict[str, Tensor]) -> None:
    """Raises ValueError when an example's outputs depend on the rest of the batch, or two
    evaluations differ.

    values: of the batch. Each example must give the same outputs in another order between other
    inputs, in half of the batch, and with one other: a recurrent network over dimension 0 leaves
    the first examples alone, BatchNorm equal halves, and what a statistic of the batch decides
    stays as it is in most large batches. About two passes of the batch. Whether a function is
    random is asked where these differ."""
    with torch.no_grad():
        try:
            for trial in _trials(x):
                _compare_examples(dag, values, trial)
        except MeasurementError:
            _require_deterministic(dag, dag.forward(x), dag.forward(x))
            raise


def _require_deterministic(dag: Dag, first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    """Raises ValueError when two evaluations of the same input differ."""
    for name in dag.order:
        if not torch.equal(first[name], second[name]) and not alike(first[name], second[name]):
            raise MeasurementError(
                f"node {name!r} is not deterministic: two evaluations of the same input "
                f"differ. Remove the randomness{_likely(dag.nodes[name].fn, _draws)}"
            )


@dataclass(frozen=True)
class _Trial:
    """Another batch; rows `here` of its outputs must be rows `there` of the outputs of the batch
    itself."""

    inputs: Tensor
    here: Tensor
    there: Tensor


BETWEEN = 4
"""Examples of the batch between two other inputs."""


def _trials(x: Tensor) -> Iterator[_Trial]:
    count = len(x)
    rows = torch.arange(count, device=x.device)
    if count == 1:  # no others that could matter: a function of it alone
        yield _Trial(torch.cat([x, x]), torch.arange(2, device=x.device), rows.expand(2))
        return
    others = x.flip(0) if x.dim() == 1 else x.flip(0).flip(-1)
    if x.is_floating_point():
        drawn = torch.Generator().manual_seed(1)
        noise = torch.randn(x.shape, generator=drawn, dtype=torch.float64, device="cpu")
        others = others * (1 + 0.1 * noise).to(x)
    drawn = torch.Generator().manual_seed(0)
    order = torch.randperm(count, generator=drawn, device="cpu").to(x.device)
    parts = []
    here = []
    start = 0
    for i, mine in enumerate(order.split(BETWEEN if count > 2 * BETWEEN else 1)):
        parts += [others[i : i + 1], x[mine]]
        here.append(torch.arange(start + 1, start + 1 + len(mine), device=x.device))
        start += 1 + len(mine)
    yield _Trial(torch.cat([*parts, others[-1:]]), torch.cat(here), order)
    half = (count + 1) // 2
    yield _Trial(x[-half:], rows[:half], rows[-half:])
    # Two at a time: of a batch of one, a squeeze would take the dimension of the examples away.
    few = ((0, count - 1), (half - 2, half - 1))  # no example is in all the trials
    for pair in few if count > 2 else ((0,), (1,)):
        there = torch.tensor(pair, device=x.device)
        yield _Trial(x[there], rows[: len(pair)], there)


def _compare_examples(dag: Dag, first: dict[str, Tensor], trial: _Trial) -> None:
    try:
        again = dag.forward(trial.inputs)
    except MeasurementError as error:
        raise MeasurementError(
            f"{error} (in a batch of {len(trial.inputs)} of the same examples: a node's "
            "function must take any number)"
        ) from error
    for name in dag.order:
        same_length = len(again[name]) == len(trial.inputs)
        if same_length and alike(again[name][trial.here], first[name][trial.there]):
            continue
        cause = _likely(dag.nodes[name].fn, _normalises)
        raise MeasurementError(
            f"node {name!r} mixes the examples of the batch: an example's output changes with the "
            "others. Per-example blocks need a function of one example, with the examples along "
            f"dimension 0 (batch_first=True, normalisation in evaluation mode){cause}"
        )


def _normalises(module: nn.Module) -> bool:
    """Whether it takes statistics of its batch."""
    is_norm = isinstance(module, nn.modules.batchnorm._BatchNorm)
    return is_norm and (module.training or module.running_mean is None)


def _draws(module: nn.Module) -> bool:
    """Whether it draws at random in its mode."""
    kinds = (nn.modules.dropout._DropoutNd, nn.MultiheadAttention, nn.RNNBase)
    rate = getattr(module, "p", getattr(module, "dropout", 0.0))
    return isinstance(module, kinds) and module.training and bool(rate)


def _likely(fn: Callable[..., Tensor], is_cause: Callable[[nn.Module], bool]) -> str:
    """What of a node's module may be the cause of a failure."""
    modules = fn.modules() if isinstance(fn, nn.Module) else ()
    found = next((type(m).__name__ for m in modules if is_cause(m)), "")
    return f": {found}, call .eval()" if found else ""
