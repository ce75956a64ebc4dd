"""Curvature during a training, every k steps, without a trace in it; and over saved checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from runner.curvature.basics.errors import MeasurementError, require_counts
from runner.curvature.basics.plots import frame
from runner.curvature.function.context import placed, random_state, write_back
from runner.curvature.operators.users import LayerOperator, ParameterOperator
from runner.curvature.pairs.metrics import inter_layer_metrics
from runner.curvature.spectra.eigenpairs import top_eigenpairs
from runner.curvature.spectra.traces import trace_estimate
from runner.curvature.uses.checkpoints import checkpoint_files, load_state

if TYPE_CHECKING:
    from pandas import DataFrame

Row = dict[str, Any]
OF_PARAMETERS = ("groups", "part")
"""Settings that numbers between layers do not have: those are of their Hessian."""


def monitor(  # noqa: PLR0913 (public: each is an option)
    module: nn.Module,
    loss: Any,
    data: Any,
    every: int = 100,
    *,
    eigenvalues: int = 1,
    trace: int = 0,
    layers: Iterable[str] = (),
    measures: Mapping[str, Callable[[Any], Any]] | None = None,
    seed: int | None = None,
    **settings: Any,
) -> Monitor:
    """Measure curvature every k steps of a training.

    Parameters
    ----------
    module, loss, data
        As for `ParameterOperator`. Data: a fixed batch or a list of batches, not the batch of the
        step.
    every
        Steps between measurements.
    eigenvalues
        How many of the largest Hessian eigenvalues; 0 for none.
    trace
        Products for the trace of the Hessian, at least 4; 0 for none.
    layers
        Names of submodules between whose outputs R, C, D and gap are measured.
    measures
        Further numbers: column → function of the `ParameterOperator`, which returns a number or a
        result with `value`.
    seed
        Without it, the network is measured in evaluation mode. With it, in its own mode with one
        fixed draw, so that dropout is a function of the weights.
    settings
        Further arguments of `ParameterOperator`, such as `part`, `groups` and `weights`; `layers`
        are measured with them as well, except `part` and `groups`.

    Returns
    -------
    Monitor
        A callable that takes the number of the step and returns the row that was measured, or None.

    Raises
    ------
    ValueError
        As `ParameterOperator`, at the first measurement. Later failures, such as a loss that is not
        finite, become the column `reason` of their row: a training is not stopped.

    Notes
    -----
    The training goes on as if nothing had been measured: modes, buffers, `.grad`, and the random
    states of torch, numpy and Python are as they were. What `ParameterOperator` checks is checked
    at the first measurement alone. A search for eigenvalues starts from the vectors that the one
    before found (`start=` of `top_eigenpairs`).

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from runner.curvature import monitor
    >>> net, data = nn.Linear(3, 2), (torch.ones(8, 3), torch.zeros(8, 2))
    >>> watch = monitor(net, nn.MSELoss(), data, every=10, eigenvalues=2)
    >>> for step in range(21):
    ...     row = watch(step)  # after optimizer.step()
    >>> [row["step"] for row in watch.rows]
    [0, 10, 20]
    """
    require_counts(1, every=every)
    require_counts(0, eigenvalues=eigenvalues, trace=trace)
    names = [layers]
    if not isinstance(layers, str):
        names = list(layers)
    asked = {"eigenvalues": eigenvalues, "trace": trace, "layers": names}
    return Monitor(module, loss, data, every, asked, dict(measures or {}), seed, settings)


@dataclass(eq=False, repr=False)
class Monitor:
    """Rows of curvature by step: see `monitor`. vectors: of the eigenvalues found last, (n, k)."""

    module: nn.Module
    loss: Any
    data: Any
    every: int
    asked: dict[str, Any]
    measures: dict[str, Callable[[Any], Any]]
    seed: int | None
    settings: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    vectors: Tensor | None = None

    def __call__(self, step: int) -> Row | None:
        """Measures when `step` is a multiple of `every`."""
        if step % self.every == 0:
            return self.measure(step)
        return None

    def measure(self, step: int) -> Row:
        """Measures now, and keeps the row."""
        row = self._measured(step)
        self.rows.append(row)
        return row

    def over_checkpoints(self, files: str | Iterable[str | Path]) -> list[Row]:
        """One row for each saved state, read into the module, which is then as before.

        Parameters
        ----------
        files
            State files of torch.save in order, or a pattern such as "runs/step*.pt", whose files
            are ordered by the numbers in their names; the last number is the step. A state is a
            state_dict, alone or under "state_dict", "model_state_dict" or "model".

        Raises
        ------
        ValueError
            For a pattern without files, and a file without a state that fits the module.
        """
        earlier = len(self.rows)
        tensors = [*self.module.parameters(), *self.module.buffers()]
        with placed(self.module.modules(), {}), restored(tensors):
            for step, path in checkpoint_files(files):
                load_state(self.module, path)
                self.rows.append(self._measured(step) | {"file": str(path)})
        return self.rows[earlier:]

    def to_frame(self) -> DataFrame:
        """The rows, indexed by step."""
        return frame(self.rows, ["step"])

    def __repr__(self) -> str:
        return f"Monitor(every {self.every} steps, {len(self.rows)} rows)"

    def _measured(self, step: int) -> Row:
        began = time.monotonic()
        row: Row = {"step": step}
        try:
            with module_as_before(self.module, self.seed is None):
                row |= self._numbers()
        except MeasurementError as error:
            if not self.rows:
                raise
            row["reason"] = " ".join(str(error).split())
        return row | {"seconds": time.monotonic() - began}

    def _numbers(self) -> Row:
        row: Row = {}
        settings: Row = {"check": not self.rows}
        if self.seed is not None:
            settings["seed"] = self.seed
        about = self.module, self.loss, self.data
        if self.asked["eigenvalues"] or self.asked["trace"] or self.measures:
            row |= self._of(ParameterOperator(*about, **{**settings, **self.settings}))
        if layers := self.asked["layers"]:
            shared = {k: v for k, v in self.settings.items() if k not in OF_PARAMETERS}
            row |= _between(LayerOperator(*about, layers, **{**settings, **shared}))
        return row

    def _of(self, operator: ParameterOperator) -> Row:
        row: Row = {}
        if count := self.asked["eigenvalues"]:
            pairs = top_eigenpairs(
                operator, min(count, operator.shape[0]), start=self.vectors, progress=False
            )
            self.vectors = None if pairs.reason else pairs.vectors
            for i, (value, error) in enumerate(zip(pairs.value, pairs.error, strict=True)):
                row[f"lambda_{i + 1}"] = float(value)
                row[f"lambda_{i + 1}_error"] = float(error)
            _explain(row, pairs.reason)
        if self.asked["trace"]:
            estimate = trace_estimate(operator, self.asked["trace"], progress=False)
            row["trace"] = estimate.value
            row["trace_error"] = estimate.error
            _explain(row, estimate.reason)
        for name, measure in self.measures.items():
            row[name] = _number(measure(operator))
        return row


def _explain(row: Row, reason: str) -> None:
    """Why numbers of the row are NaN, if they are."""
    if reason:
        row["reason"] = reason


def _between(operator: LayerOperator) -> Row:
    """R, C, D and gap of all pairs of layers."""
    row: Row = {}
    for (v, w), pair in inter_layer_metrics(operator, progress=False).items():
        for name in ("R", "C", "D", "gap"):
            row[f"{name}[{v}, {w}]"] = getattr(pair, name).value
    return row


def _number(value: Any) -> float:
    return float(getattr(value, "value", value))


@contextmanager
def module_as_before(module: nn.Module, evaluation: bool) -> Iterator[None]:
    """Modes, buffers, gradients and random states afterwards are what they were before.

    `module.eval()` is not called: layers that override it write to their weights.
    """
    modes = {m: m.training for m in module.modules()}
    gradients = [(p, p.grad) for p in module.parameters()]
    try:
        with random_state(), restored(module.buffers()):
            for m in modes:
                m.training = m.training and not evaluation
            yield
    finally:
        for m, training in modes.items():
            m.training = training
        for parameter, gradient in gradients:
            parameter.grad = gradient


@contextmanager
def restored(tensors: Iterable[Tensor]) -> Iterator[None]:
    """The tensors afterwards have the values that they had before."""
    kept = [(t, t.detach().clone()) for t in tensors]
    try:
        yield
    finally:
        write_back(kept)
