"""Names, arguments and values of the version before: what to write instead, for one version."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from runner.curvature.basics.errors import MeasurementError

F = TypeVar("F", bound=Callable[..., Any])

NAMES = {
    "CurvatureOperator": "LayerOperator(dag.as_module(), dag.loss, (x, y), dag.order)",
    "closed_form": "from runner.closed_form import three_layer, scalar, attention",
    "diagonal_estimate": "curvlinops.hutchinson_diag(as_curvlinops(operator), products)",
    "discarded_coupling": "inter_layer_metrics(operator, ranks=False).phi",
    "load": "torch.load(path), or numpy.load(path) for a file that save wrote",
    "save": "torch.save(result.to_dict(), path), or numpy.savez for arrays",
    "trace_module": (
        "LayerOperator(module, loss, (x, y), layers), which has .blocks(), products and "
        "inter_layer_metrics(operator), or state a graph with Dag"
    ),
}
"""Public names, and what to write instead."""
FISHER = (
    "for softmax cross-entropy, logistic loss and squared error the Fisher matrix is the "
    "Gauss-Newton matrix up to a factor: write part='gauss_newton'; for other losses use curvlinops"
)
ARGUMENTS = {
    "budget": (
        "ask for fewer products or probes, or stop it (Ctrl-C): the KeyboardInterrupt has .partial"
    ),
    "likelihood": FISHER,
    "process_group": (
        "sum the products of the processes' operators, as docs/recipes/several_processes.md does"
    ),
}
"""Keyword arguments, and what to write instead."""
GRAPHS = {"inter_layer_metrics": "graph_metrics(dag, x, y)"}
"""Functions that took a `Dag` as well, and what to write for one."""
VALUES = {
    "part='fisher'": FISHER,
    "part='empirical_fisher'": "use EFLinearOperator of curvlinops, which the estimators take",
}
"""Arguments with values, and what to write instead."""


def removed_name(name: str) -> ImportError | None:
    """The error for a public name of the version before; None for any other."""
    if name in NAMES:
        return ImportError(f"{name} has been removed: write {NAMES[name]}")
    return None


def refuse_removed_value(argument: str, value: object) -> None:
    """Raises ValueError for a value of the version before, with what to write instead."""
    given = f"{argument}={value!r}"
    if given in VALUES:
        raise MeasurementError(f"{given} has been removed: {VALUES[given]}")


def refuses_removed(function: F) -> F:
    """The function, which refuses arguments of the version before with what to write instead."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if function.__name__ in GRAPHS and args and type(args[0]).__name__ == "Dag":
            name = function.__name__
            raise MeasurementError(f"{name}(dag, ...) has been removed: write {GRAPHS[name]}")
        for name in kwargs.keys() & ARGUMENTS.keys():
            raise MeasurementError(f"{name}= has been removed: {ARGUMENTS[name]}")
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]
