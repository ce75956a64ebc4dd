"""What is checked of a stated graph and its batch before anything is measured.

- values that are not finite have no derivatives;
- blocks of the examples need examples that do not depend on each other (BatchNorm in training mode
  mixes them), and a network that is the same at every call (dropout in training mode draws);
- a loss that is not the mean of the losses of the examples makes every block wrong by a factor.

The last two are identity 4 of a function, at a point nearby: what parts of the batch give is what
the whole batch gives. Backwards without a second derivative are found where they are differentiated
(derivatives.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from runner.curvature.basics.errors import (
    MeasurementError,
    first_not_finite,
    no_derivatives,
)
from runner.curvature.basics.trees import alike, tolerance
from runner.curvature.graphs.dag import Dag
from runner.curvature.graphs.derivatives import Evaluation, evaluate
from runner.curvature.graphs.losses import CrossEntropy, MeanSquaredError
from runner.curvature.graphs.state import measuring

ENOUGH = 8
"""Examples of which the parts are not so few that a network treats them as no batch."""
DISPLACED = 1e-3
"""Size of the perturbations of the nodes at the point nearby."""


def checked_evaluation(dag: Dag, x: Tensor, y: Tensor, *, finite: bool = True) -> Evaluation:
    """The evaluation of the batch, after every check but the memory's; the model is left as it was.

    finite=False lets NaN and infinity pass, for callers that report them with their result. Raises
    ValueError."""
    with measuring(dag):
        if len(x) != len(y):
            raise MeasurementError(
                f"expected as many targets as examples, got {len(y)} targets for {len(x)} examples"
            )
        evaluation = checked_network(dag, x, finite=finite)
        if not first_not_finite(evaluation.values):
            output = evaluation.values[dag.output]
            _check_loss(dag, output, dag.loss.targets(output, y))
    return evaluation


def checked_network(dag: Dag, x: Tensor, *, finite: bool = True) -> Evaluation:
    """The same of a network alone, without its loss."""
    if len(x) == 0:
        raise MeasurementError("the batch is empty: expected at least one example")
    evaluation = evaluate(dag, x)
    bad = first_not_finite(evaluation.values)
    if bad and finite:
        raise no_derivatives(bad)
    closed_forms = evaluation.structures.keys() == set(dag.order)
    if not (bad or closed_forms):  # these neither mix examples nor draw
        _check_examples(dag, x, evaluation)
    return evaluation


def _parts(count: int) -> tuple[Tensor, Tensor]:
    """Places of the examples of two uneven parts, in no order that the batch may have."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0), device="cpu")
    first = max(1, count // 3)
    return order[:first], order[first:]


def _at_least(count: int, x: Tensor) -> Tensor:
    """The batch, followed by others like it until there are so many examples."""
    generator = torch.Generator().manual_seed(0)
    batches = [x]
    while len(x) * len(batches) < count:
        other = x.roll(len(batches), -1)
        if x.is_floating_point():
            noise = torch.randn(x.shape, generator=generator, device="cpu")
            other = other * (1 + 0.1 * noise).to(x)
        batches.append(other)
    return torch.cat(batches)


def _check_examples(dag: Dag, x: Tensor, evaluation: Evaluation) -> None:
    """Raises ValueError where parts of the batch give other outputs than the whole."""
    x = _at_least(ENOUGH, x)
    shift = _displacement(dag, evaluation.values)
    with torch.no_grad():
        whole = _forward(dag, x, shift)
        for part in _parts(len(x)):
            _compare_outputs(dag, whole, x, part.to(x.device), shift)


def _check_loss(dag: Dag, output: Tensor, y: Tensor) -> None:
    """Raises ValueError where the losses of parts of the batch are not that of the whole."""
    if isinstance(dag.loss, CrossEntropy | MeanSquaredError):
        return
    if y.shape[:1] != output.shape[:1]:
        raise MeasurementError(
            f"expected one target per example: {output.shape[0]} examples, targets of shape "
            f"{tuple(y.shape)}"
        )
    if len(y) == 1:
        output = torch.cat([output, output])
        y = torch.cat([y, y])
    noise = torch.randn(output.shape, generator=torch.Generator().manual_seed(1), device="cpu")
    near = output + DISPLACED * noise.to(output)
    # A trained network's own losses may be so small that a sum hides among roundings.
    with torch.no_grad():
        for outputs in (near, near.roll(1, 0).flip(1)):
            _compare_losses(dag.loss.value, outputs, y)


def _displacement(dag: Dag, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A small perturbation of every node, the same for all examples."""
    generator = torch.Generator().manual_seed(1)
    shift = {}
    for v in dag.order:
        if values[v].is_floating_point():
            noise = torch.randn(values[v].shape[1:], generator=generator, device="cpu")
            shift[v] = DISPLACED * noise.to(values[v])
    return shift


def _compare_outputs(
    dag: Dag, whole: Mapping[str, Tensor], x: Tensor, part: Tensor, shift: Mapping[str, Tensor]
) -> None:
    """Raises ValueError where the examples of a part have other outputs than in the whole batch."""
    values = _forward(dag, x[part], shift)
    for name in dag.order:
        if len(values[name]) == len(part) and alike(values[name], whole[name][part]):
            continue
        _require_deterministic(dag, dag.forward(x, shift), dag.forward(x, shift))
        cause = _likely(dag.nodes[name].fn, _normalises)
        raise MeasurementError(
            f"node {name!r} mixes the examples of the batch: an example's output changes with the "
            "others. Per-example blocks need a function of one example, with the examples along "
            f"dimension 0 (batch_first=True, normalisation in evaluation mode){cause}"
        )


def _forward(dag: Dag, x: Tensor, shift: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Outputs of another number of examples than the batch has."""
    try:
        return dag.forward(x, shift)
    except MeasurementError as error:
        raise MeasurementError(
            f"{error} (in a batch of {len(x)} examples: a node's function must take any number)"
        ) from error


def _require_deterministic(
    dag: Dag, first: Mapping[str, Tensor], second: Mapping[str, Tensor]
) -> None:
    """Raises ValueError when two evaluations of the same input differ."""
    for name in dag.order:
        if not torch.equal(first[name], second[name]) and not alike(first[name], second[name]):
            raise MeasurementError(
                f"node {name!r} is not deterministic: two evaluations of the same input "
                f"differ. Remove the randomness{_likely(dag.nodes[name].fn, _draws)}"
            )


def _compare_losses(
    loss: Callable[[Tensor, Tensor], Tensor],
    output: Tensor,
    y: Tensor,
) -> None:
    """Raises ValueError unless the loss of the batch is the mean of those of its parts, or each
    example's loss is that in its part."""
    whole = loss(output, y)
    if not bool(whole.isfinite().all()):
        return
    cut = [part.to(y.device) for part in _parts(len(y))]
    parts = [loss(output[part], y[part]) for part in cut]
    allowed = tolerance(output.dtype)
    if whole.dim() == 1:
        pairs = zip(parts, cut, strict=True)
        if all(alike(of_part, whole[part]) for of_part, part in pairs):
            return
    else:
        sizes = [len(part) for part in cut]
        weighed = [size * value for size, value in zip(sizes, parts, strict=True)]
        mean = float(sum(weighed)) / sum(sizes)
        scale = max(abs(float(value)) for value in (whole, *parts))
        if abs(float(whole) - mean) <= allowed * scale:
            return
    again = loss(output, y)
    if not torch.equal(whole, again) and not alike(whole, again):
        raise MeasurementError(
            f"the loss is not deterministic: {float(whole.mean())!r}, then "
            f"{float(again.mean())!r} for the same output and target"
        )
    if whole.dim() == 1:
        raise MeasurementError(
            "an example's loss depends on the rest of the batch: return the loss of each alone"
        )
    total = float(sum(parts))
    hint = "an example that the loss ignores?"
    if abs(float(whole) - total) <= allowed * abs(total):
        hint = "it looks like a sum: use reduction='mean' or 'none'"
    raise MeasurementError(
        f"the loss of the batch, {float(whole):.6g}, is not the mean of its examples' losses, "
        f"{mean:.6g} ({hint}). Return the mean over the examples, or one value per example"
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
