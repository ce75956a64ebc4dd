"""What makes a diagnosis a mistake rather than a measurement: one line before anything is written."""

from __future__ import annotations

import torch

from runner.contract import SettingError
from runner.curvature import MeasurementError
from runner.diagnose.problem import Problem


def check(problem: Problem) -> None:
    """Raises SettingError for a module in training mode, empty batches, names that no submodule has, and a loss without
    gradient or that is no mean: a sum, random, not finite, one value for each example, every output with every target.
    """
    from runner.curvature.graph.tracing.calls import check_evaluation, unwrapped
    from runner.curvature.graph.tracing.points import chosen

    where = f"target: step {problem.snapshot.step}"
    try:
        check_evaluation(problem.snapshot.module)
    except ValueError as error:
        raise SettingError(f"{where}: {error}") from error
    try:
        chosen(unwrapped(problem.module), list(problem.options.nodes) or None)
    except ValueError as error:
        raise SettingError(f"nodes: {error}") from error
    try:
        examples = problem.examples
    except ValueError as error:
        raise SettingError(f"{where}: {error}") from error
    if 0 in examples:
        raise SettingError(f"{where}: batch {examples.index(0)} has no examples; expected at least one in each batch")
    if not problem.parameters:
        raise SettingError(f"{where}: no parameter of the module requires a gradient; unfreeze some: requires_grad_()")
    try:
        problem.first_gradients  # noqa: B018  measured here once, and kept
        _check_loss(problem)
    except MeasurementError as error:
        raise SettingError(f"{where}: {error}") from error
    except Exception as error:  # the user's code may raise anything
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise SettingError(f"{where}: loss(module(input), target) has no gradient: {line}") from error


def _check_loss(problem: Problem) -> None:
    """Of the first batch. A mean of the parts of a batch is asked for later, where it matters."""
    from runner.curvature.graph.tracing.calls import unwrapped
    from runner.curvature.parameters.batches import Rows
    from runner.curvature.parameters.checks import check_loss
    from runner.curvature.parameters.model import Model, scalar_loss

    options, batch = problem.options, problem.batches[0]
    model = Model(unwrapped(problem.module), problem.loss, options.output or None)
    with torch.no_grad():
        scalar_loss(problem.loss(model.call(problem.parameters, batch[0]), batch[1]))
    rows = Rows(options.batch_dim, options.shared)
    check_loss(model, dict(problem.parameters), rows, batch, None, "", False)
