"""Errors that say where, what was expected, what was found and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import SupportsIndex

import torch
from torch import Tensor


class MeasurementError(ValueError):
    """A measurement that would be wrong or cannot be made; the message names the node and the
    remedy."""


class EvaluationError(MeasurementError):
    """A network, its loss or their gradient fails on a batch; on another it may be defined."""


class NoSecondDerivative(MeasurementError):
    """A gradient of a network or its loss cannot be differentiated."""


LOSS = "the loss"
COMPLEX = (
    "the loss reads a complex tensor of the output: let the module return torch.view_as_real of it"
)
_ADVICE = {
    "attention": (
        "run under torch.nn.attention.sdpa_kernel(SDPBackend.MATH), or write softmax(QK^T)V out"
    ),
    "embedding_bag": (
        "write it out (an nn.EmbeddingBag as nn.Embedding and a sum), or leave its parameters out"
    ),
    "hardsigmoid": "write it out as F.hardtanh(x / 6 + 0.5, 0, 1)",
    "": (
        "write it out of other operations, take torch.compile off (module._orig_mod), "
        "or leave its parameters out"
    ),
}


_KNOWN = ("not implemented", "differentiate twice", "double backward")
"""What torch says of an operation without a second derivative."""


@contextmanager
def _derivatives(kind: type[MeasurementError], what: str, where: str) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        text = f"the {what} of {where} fails: {first_line(error)}"
        if any(words in str(error) for words in _KNOWN):
            text = (
                f"{where} uses an operation without a second derivative ({first_line(error)}): "
                f"{_advice(where, error)}"
            )
        raise kind(text) from error


first_derivatives = partial(_derivatives, EvaluationError, "gradient")
"""Turns torch's error while a loss is differentiated into an EvaluationError."""
second_derivatives = partial(_derivatives, NoSecondDerivative, "second derivative")
"""Turns torch's error while a gradient is differentiated into a NoSecondDerivative that says what
to do."""


def _advice(where: str, error: Exception) -> str:
    if where == LOSS:
        return "write it out of other operations"
    return next(advice for word, advice in _ADVICE.items() if word in str(error))


def no_derivatives(bad: str) -> MeasurementError:
    """Of values that are not finite; bad: as first_not_finite says it."""
    return MeasurementError(
        f"{bad}: there are no derivatives there. Look at the data and the weights"
    )


def node_failure(name: str, inputs: Sequence[object], error: Exception) -> EvaluationError:
    """The error of a node's function with the node's name, what it was given and, where it can be
    told, the remedy."""
    text = first_line(error).rstrip(".")
    given = ", ".join(describe(t) for t in inputs)
    return EvaluationError(
        f"node {name!r} failed on {given}: {type(error).__name__}: {text}{_remedy(text)}"
    )


def batch_failure(
    given: Sequence[object], target: Sequence[object], error: Exception, alone: bool
) -> EvaluationError:
    """The error of a module or its loss on a batch, with what they were given. alone: the module
    returns its loss."""
    text = first_line(error).rstrip(".")
    inputs, targets = (", ".join(map(describe, values)) or "nothing" for values in (given, target))
    what = f"loss(module(input), target) failed on input {inputs} and target {targets}"
    advice = "Check the shapes and dtypes of the data and the range of the labels"
    if alone:
        what = f"module(input) failed on input {inputs}"
        advice = (
            "With loss=None all of a batch is its input: (x, y) for module(x, y), (x, None) for "
            "module(x), or a dict"
        )
    return EvaluationError(f"{what}: {type(error).__name__}: {text}. {advice}")


def describe(value: object) -> str:
    """Shape and dtype of a tensor, type name of anything else."""
    if isinstance(value, Tensor):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return type(value).__name__


def _remedy(text: str) -> str:
    low = text.lower()
    if "positional argument" in low:
        return ". Check Node.parents: fn takes one argument for each parent, in that order"
    if "inference tensor" in low:
        return ". Its weights were made under torch.inference_mode: make or load them outside of it"
    if "dtype" in low or "scalar type" in low:
        return (
            ". Give inputs and weights one dtype: x.to(dtype) and Dag.to(dtype), or model.to(dtype)"
        )
    if "shape" in low or "size" in low or "dimension" in low:
        return ". Check the widths: the node's function and the outputs of its parents do not fit"
    return ""


def expect_tensor(name: str, value: object) -> Tensor:
    """The node's output. Raises MeasurementError for a tuple, a dict or anything else that is no
    tensor."""
    if isinstance(value, Tensor):
        return value
    kinds = {
        tuple: "lambda h: f(h)[0]",
        list: "lambda h: f(h)[0]",
        dict: "lambda h: f(h)['logits']",
    }
    pick = next((how for kind, how in kinds.items() if isinstance(value, kind)), "return a tensor")
    raise MeasurementError(
        f"node {name!r} returned a {type(value).__name__}: expected one tensor; pick it, e.g. "
        f"{pick}"
    )


def first_not_finite(values: dict[str, Tensor]) -> str:
    """Which node's output holds NaN or infinity first, and for which example; "" when all are
    finite."""
    for name, value in values.items():
        if not value.is_floating_point() or bool(value.isfinite().all()):
            continue
        bad = ~value.flatten(1).isfinite().all(1)
        where = f"the input {name!r}" if name == "input" else f"the output of node {name!r}"
        return f"{where} is not finite (NaN or infinity) for example {int(bad.nonzero()[0])}"
    return ""


def require_counts(least: int, **given: object) -> None:
    """Raises ValueError unless each is a whole number of at least `least`."""
    for name, value in given.items():
        if not isinstance(value, SupportsIndex) or isinstance(value, bool) or int(value) < least:
            raise ValueError(
                f"expected {name} as a whole number of at least {least}, got {value!r}"
            )


def first_line(error: Exception) -> str:
    """The first line of an error's message; its type where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def explained(explain: Callable[[Exception], MeasurementError]) -> Iterator[None]:
    """Raises explain(error) for an error of the user's code that runs inside, except for one that
    is explained already or is about memory, which no change to that code would mend."""
    try:
        yield
    except (MeasurementError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise explain(error) from error


def some(names: Iterable[object], most: int = 5) -> str:
    """The first names of many: "1, 2, 3 and 9 more"."""
    found = [str(name) for name in names]
    rest = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + rest
