"""What may have made an identity fail: looked up after the failure, to word the message."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor, nn

from runner.curvature.basics.errors import MeasurementError, some
from runner.curvature.function.batch import Batch
from runner.curvature.function.context import changes_gradients
from runner.curvature.function.function import Function, Point
from runner.curvature.identities.derivatives import COPY, Outcome


class WrongFunction(MeasurementError):
    """An identity failed."""


def message(function: Function, outcome: Outcome) -> str:
    """One line: what was compared, how far it is apart, the likeliest cause, what to do."""
    names = [name for name in outcome.what if name]
    compared = next(text for key, text in _COMPARED.items() if outcome.identity.startswith(key))
    for identity, test, text in _CAUSES:
        if outcome.identity.startswith(identity) and (found := test(function, outcome)) is not None:
            return f"{compared} ({outcome.error:.0e}): {text.format(found)}"
    return f"{compared} ({outcome.error:.0e}{_at(names)}): {_UNKNOWN[outcome.identity[0]]}"


def _at(names: list[str]) -> str:
    return f", at {some(map(repr, names), 3)}" if names else ""


_COMPARED = {
    COPY: "second derivatives in the network's own precision differ from those of a float64 copy",
    "0": "the module with its own parameters and with copies of them gives different losses or "
    "gradients",
    "1": "two evaluations of the loss differ",
    "2": "the gradient differs from differences of the loss",
    "3": "the second derivative differs from differences of gradients",
}
_UNKNOWN = {
    "0": "they are held outside of the module's parameters (a list, a closure, a cached product): "
    "register them",
    "1": "remove the randomness, or the state that is kept between calls",
    "2": "a part of the network stops or changes gradients (detach, no_grad, a straight-through "
    "estimator, a hook); where that is meant, check='report' goes on",
    "3": "an operation has a first derivative and no right second one; write it out of other "
    "operations, or leave its parameters out; check='report' goes on",
}

Test = Callable[[Function, Outcome], str | None]


def _named(function: Function, fits: Callable[[nn.Module], bool]) -> Iterator[str]:
    for name, module in function.module.named_modules():
        if fits(module):
            yield f"{name or 'the module'} ({type(module).__name__})"


def _first(fits: Callable[[nn.Module], bool]) -> Test:
    return lambda function, _: next(_named(function, fits), None)


def _draws(module: nn.Module) -> bool:
    kinds = (nn.modules.dropout._DropoutNd, nn.MultiheadAttention, nn.RNNBase, nn.RReLU)
    rate = getattr(module, "p", getattr(module, "dropout", 0.0))
    return (
        module.training
        and isinstance(module, kinds)
        and (bool(rate) or isinstance(module, nn.RReLU))
    )


def _normalises(module: nn.Module) -> bool:
    """Whether it takes statistics of its batch, and has others."""
    kinds = nn.modules.batchnorm._BatchNorm
    return isinstance(module, kinds) and module.training and module.running_mean is not None


def cause_of_mixing(function: Function, point: Point, batch: Batch) -> str:
    """Why the loss of a batch may not be a mean over its parts, and what to do."""
    if norm := next(_named(function, _normalises), None):
        return f"({norm} takes statistics of each batch in training mode: call .eval())"
    with function.at(point, 0):
        output = function.output(batch.input)
    shapes = [tuple(t.shape) for t in (output, batch.target) if isinstance(t, Tensor)]
    if len(shapes) == 2 and 1 < len(shapes[0]) != len(shapes[1]) and shapes[0][-1] == 1:
        return f"(output {shapes[0]} and target {shapes[1]} are broadcast: give them one shape)"
    if function.seed is not None:
        return "(parts draw other numbers than the whole): give weights= as one number a batch"
    return (
        "(examples depend on each other, as in contrastive losses, or a root of a mean): use one "
        "batch, or give weights= as one number a batch"
    )


_HOOKS = "{} has hooks that change gradients: remove them while it is measured"
_CAUSES: list[tuple[str, Test, str]] = [
    ("1", lambda f, o: next(_named(f, _draws), None) if "draws" in o.what else None,
     "{} draws at random in training mode: call .eval()"),
    ("1", lambda f, o: "" if "draws" in o.what else None,
     "the module or the loss draws at random: remove the randomness, or make what is drawn an "
     "input"),
    ("1", lambda f, o: "" if "state" in o.what else None,
     "the module or the loss keeps values from one call to the next (counters, hidden states): "
     "reset them in forward"),
    ("0", _first(changes_gradients), _HOOKS),
    (COPY, lambda f, o: "",
     "an operation is wrong in that precision alone (a kernel of Triton or CUDA, compiled code), "
     "or rounds so much that nothing is left"),
    ("0", lambda f, o: some(map(repr, o.what), 3) if o.what else None,
     "{} is held outside of the module's parameters, in a list, a closure or a cached product: "
     "read it from the module at each call"),
    ("2", lambda f, o: "" if "output" in o.what else None,
     "the loss reads the parameters other than through tensors of the module's output (a penalty, "
     "or a single number that the module returns): a Gauss-Newton matrix has no part for that; "
     "leave it out, or use part='hessian'"),
    ("2", _first(changes_gradients), _HOOKS),
    ("3", _first(changes_gradients), _HOOKS),
]  # fmt: skip
