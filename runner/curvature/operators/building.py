"""What an operator needs to know of its network before it is measured: layers' outputs, the loss,
the weights."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from runner.curvature.basics.errors import MeasurementError, require_counts
from runner.curvature.basics.removed import refuse_removed_value
from runner.curvature.basics.vectors import Values
from runner.curvature.function.batch import Batch, layouts
from runner.curvature.function.data import CHECKED, Data, Settings
from runner.curvature.function.function import Function, NotScalar, Point, gradients
from runner.curvature.function.variables import Kinds, Perturbations, kind_of
from runner.curvature.identities.verdicts import Verdicts
from runner.curvature.identities.weights import adds_up
from runner.curvature.products.of_batch import PARTS

LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross_entropy": nn.functional.cross_entropy,
    "mse": nn.functional.mse_loss,
}


LOOKED_AT = 8
"""Batches, and parts of each, that a loss may be infinite or undefined in before it is refused."""
T = TypeVar("T")


def loss_of(given: Any) -> Any:
    """The loss, by its name or itself. Raises ValueError for what is none."""
    loss = given
    if isinstance(given, str):
        loss = LOSSES.get(given, given)
    if loss is not None and (not callable(loss) or isinstance(loss, type)):
        raise MeasurementError(
            f"expected a loss(output, target) or one of {list(LOSSES)}, found {loss!r}"
        )
    return loss


def require_part(part: object) -> None:
    """Raises ValueError for what is none."""
    refuse_removed_value("part", part)
    if part not in PARTS:
        raise MeasurementError(f"expected part as one of {list(PARTS)}, found {part!r}")


def require_options(module: object, part: object, settings: Settings) -> None:
    """Raises ValueError for what is none."""
    require_part(part)
    check = settings.check
    if check not in (True, False, "report"):
        raise MeasurementError(f"expected check as True, 'report' or False, found {check!r}")
    require_counts(0, batch_dim=settings.batch_dim)
    budget = settings.memory_budget
    if not isinstance(budget, int | float) or not budget > 0:
        raise MeasurementError(f"expected memory_budget in bytes, above 0, found {budget!r}")
    if not isinstance(module, nn.Module):
        raise MeasurementError(f"expected an nn.Module, found {type(module).__name__}")


def require_weights(modules: Mapping[str, nn.Module]) -> None:
    """Raises ValueError for weights that are not there or that a call changes, and under
    autocast."""
    devices = {"cpu"}
    for name, m in modules.items():
        if vars(m).get("max_norm") is not None:
            raise MeasurementError(
                f"module {name!r} rescales its weights when it is called: set max_norm=None"
            )
        for p in (*m._parameters.values(), *m._buffers.values()):
            if reason := _without_values(p):
                raise MeasurementError(f"module {name!r} has {reason}")
        for p in m._parameters.values():
            if p is not None:
                devices.add(p.device.type)
            if "meta" in devices:
                raise MeasurementError(
                    f"module {name!r} has weights on the meta device: load them before measuring"
                )
    for device in devices:
        if torch.is_autocast_enabled(device):
            raise MeasurementError(
                f"autocast is on ({device}): half-precision products have errors of about 1e-2; "
                "measure outside of it"
            )


def _without_values(p: Tensor | None) -> str:
    """Why a parameter or buffer cannot be read; "" where it can."""
    if p is not None and nn.parameter.is_lazy(p):
        return "no weights yet (a lazy module): call the network once"
    if type(p).__name__ == "DTensor":
        return "weights that are spread over processes: measure the module before it is sharded"
    return ""


def record_layers(function: Function, data: Data) -> None:
    """The outputs of the layers, with all examples and with fewer: what the perturbations have the
    shape of."""
    variables = function.variables
    batch = data.first
    layout = data.layout
    assert isinstance(variables, Perturbations)
    if layout is not None and layout.examples == 1:
        batch, layout = layout.doubled(batch)

    def fewer() -> Iterator[tuple[Kinds, int]]:
        if layout is None or layout.examples < 2:
            return
        n = layout.examples
        shares = ((0, n - 1), (0, 1), (n - 1, n), (0, (n + 1) // 2))
        for start, stop in shares:
            yield _recorded(function, layout.cut(batch, start, stop), kind_of), stop - start

    def outputs() -> tuple[Values, int, Values]:
        assert layout is not None
        few, part = next(layout.mixed(batch, CHECKED))
        rolled = _with_slopes(function, part.rolled(few))
        return _with_slopes(function, few), part.examples, rolled

    examples = 1 if layout is None else layout.examples
    variables.settle(_recorded(function, batch, kind_of), examples, fewer, outputs)
    for name in variables.uncalled:
        if name in variables.asked:
            raise MeasurementError(
                f"layer {name!r} is never called (a fused function may read its weights)"
            )


def require_dimension(function: Function, data: Data, verdicts: Verdicts) -> None:
    """Fails where the loss is a mean over parts along the other one of the first two dimensions of
    the input, and not along that of the examples."""
    here = data.settings.batch_dim
    if here > 1 or adds_up(function, data.first, data.layout, here, CHECKED):
        return
    other = 1 - here
    for layout in layouts(data.first, other):
        if layout.along_input and adds_up(function, data.first, layout, other, CHECKED):
            verdicts.fail(
                f"the loss is a mean over parts along dimension {other} of the input, and not "
                f"along dimension {here}: the examples lie there, give batch_dim={other}"
            )
            return


def _with_slopes(function: Function, piece: Batch) -> Values:
    """Outputs of the layers next to the slopes of the loss by them: the outputs of a layer that is
    initialised to zero do not tell which row belongs to which example."""
    variables = function.variables
    assert isinstance(variables, Perturbations)
    function.averages = True
    try:
        with function.at(Point({}), 1):
            return variables.with_slopes(lambda: function.evaluate(piece)[1], gradients)
    finally:
        function.averages = False


def _recorded(function: Function, piece: Batch, see: Callable[[Tensor], T]) -> dict[str, T]:
    """What `see` gives of the outputs of the layers on some examples."""
    variables = function.variables
    assert isinstance(variables, Perturbations)

    def run() -> None:
        with function.at(Point({})):
            function.evaluate(piece)

    def forward() -> None:
        with function.at(Point({})):
            function.output(piece.input)

    try:
        return variables.record(run, see)
    except NotScalar:
        return variables.record(forward, see)


def find_sample(
    function: Function, data: Data, few: int, required: bool
) -> tuple[Batch, int] | None:
    """A batch, and the first of a few of its examples whose loss is finite (not all of ignored
    labels), and not zero where there are such. A loss of one value for each example is accepted.

    Raises ValueError where none is finite and they are required."""
    try:
        return _sample(function, data, few, required)
    except NotScalar:
        accept_rows(function, data, data.few(CHECKED))
        return _sample(function, data, few, required)


def _sample(function: Function, data: Data, few: int, required: bool) -> tuple[Batch, int] | None:
    point = Point(function.variables.values)
    value = math.nan
    finite = None
    for batch in itertools.islice(data, LOOKED_AT):
        layout = data.layout_of(batch)
        examples = 1 if layout is None else layout.examples
        for start in range(0, examples, max(few, examples // LOOKED_AT)):
            value = float(function.value(point, data.some(batch, start, few)))
            if math.isfinite(value) and value != 0:
                return batch, start
            if math.isfinite(value) and finite is None:
                finite = batch, start
    if required and finite is None:
        raise MeasurementError(
            f"the loss is not finite ({value}): look at the weights and the data"
        )
    return finite


def accept_rows(function: Function, data: Data, batch: Batch) -> None:
    """A loss of several values: they must be one, or a few, for each example of a batch. Raises
    ValueError."""
    layout = data.layout_of(batch)
    point = Point(function.variables.values)
    shape = _shape_of_loss(function, point, batch)
    if shape is None:
        return
    refused = MeasurementError(
        f"the loss returned values of shape {shape}: expected a scalar, or one value for each "
        "example in the order of the examples"
    )
    examples = data.count(batch)
    if layout is None or examples < 2:
        raise refused
    rows, rest = divmod(shape[0], examples)
    expected = (rows * (examples - 1), *shape[1:])
    fewer = _shape_of_loss(function, point, layout.cut(batch, 0, examples - 1))
    if rest or fewer != (None if math.prod(expected) == 1 else expected):
        raise refused
    function.rows_checked.add(shape[1:])


def _shape_of_loss(function: Function, point: Point, batch: Batch) -> tuple[int, ...] | None:
    """None for a single value."""
    try:
        function.value(point, batch)
    except NotScalar as error:
        return error.shape
    return None
