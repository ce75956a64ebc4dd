"""One snapshot with everything that its parts share: the graph, the operator, the price of a gradient."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from runner.contract import seeding
from runner.curvature import TracedDag, trace_module
from runner.curvature.graph.tracing.batches import arguments_of, count_examples
from runner.curvature.graph.tracing.points import picked
from runner.diagnose.target import Snapshot

NAMED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"cross_entropy": F.cross_entropy, "mse": F.mse_loss}


@dataclass(frozen=True)
class Options:
    """What the command was asked for, as far as it changes numbers."""

    nodes: tuple[str, ...] = ()
    seed: int = 42
    device: str = "cpu"
    eigenvalues: int = 10
    memory_gib: float = 1.0
    threads: int = 1
    output: str = ""
    batch_dim: int = 0
    shared: tuple[str, ...] = ()

    @property
    def memory(self) -> int:
        """Bytes for one measurement."""
        return int(self.memory_gib * (1 << 30))


@dataclass(frozen=True)
class Gradient:
    """The price of one gradient of all batches: seconds of the clock below and on the wall, bytes kept between its
    passes."""

    seconds: float
    wall: float
    bytes: int


@dataclass(frozen=True)
class FirstGradients:
    """Mean loss over all examples, and the norm of its gradient; loss and norm of each batch."""

    value: float
    norm: float
    values: tuple[float, ...]
    norms: tuple[float, ...]


class Problem:
    """A snapshot and the options it is measured with."""

    def __init__(self, snapshot: Snapshot, options: Options) -> None:
        self.snapshot, self.options = snapshot, options
        self.module: nn.Module = snapshot.module
        self.batches = snapshot.batches
        self.told: dict[str, Any] = {}
        """What telling a price found out, for the next one (pricing.py)."""
        self.building = 0.0
        """Seconds that the operator over the parameters took to be built."""
        self.started = self.clock()
        self.pricing = 0.0
        """Seconds that checks and telling the price took: part of what the network's own part costs."""
        self.loss: Callable[[Any, Any], Tensor] = (
            NAMED[snapshot.loss] if isinstance(snapshot.loss, str) else snapshot.loss
        )

    def clock(self) -> float:
        """Seconds of the processor, which other processes do not stretch; on the wall for other devices."""
        if self.options.device.startswith("cuda"):
            torch.cuda.synchronize()
        return time.process_time() if self.options.device == "cpu" else time.perf_counter()

    def seconds(self, code: Callable[[], Any], times: int = 3) -> float:
        """Of the fastest of several runs: what disturbs one only adds."""
        found = []
        for _ in range(times):
            started = self.clock()
            code()
            found.append(self.clock() - started)
        return max(min(found), 1e-6)

    def generator(self, role: str) -> torch.Generator:
        """The random stream of a part."""
        return seeding.torch_generator(self.options.seed, f"diagnose/{role}")

    @cached_property
    def dag(self) -> TracedDag:
        """The graph between the named outputs, of the first batch. Raises ValueError where a module mixes examples."""
        nodes = list(self.options.nodes) or None
        options = self.options
        return trace_module(
            self.module, self.snapshot.loss, self.batches[0], nodes,
            output=options.output or None, batch_dim=options.batch_dim, shared=options.shared,
        )  # fmt: skip

    @cached_property
    def sizes(self) -> dict[str, int]:
        """d_v of every node of the graph, and of the input."""
        with torch.no_grad():
            return {name: t[0].numel() for name, t in self.dag.forward(self.dag.x).items()}

    @cached_property
    def operator(self) -> Any:
        """The Hessian in the trained parameters, over all batches. Raises ValueError where it does not exist."""
        from runner.curvature import ParameterOperator

        options, started = self.options, self.clock()
        found = ParameterOperator(
            self.module, self.loss, self.batches, memory_budget=options.memory,
            output=options.output or None, batch_dim=options.batch_dim, shared=options.shared,
        )  # fmt: skip
        self.building = self.clock() - started
        return found

    @cached_property
    def smooth(self) -> Any:
        """Its Gauss-Newton part. Raises ValueError where it does not exist."""
        return self.operator.with_part("gauss_newton")

    @cached_property
    def matrix(self) -> Tensor:
        """The whole Hessian in float64, (n, n), from n products."""
        found = self.operator.dense().double()
        return (found + found.mT) / 2

    @cached_property
    def eigen(self) -> tuple[Tensor, Tensor]:
        """Its eigenvalues, ascending, and eigenvectors."""
        values, vectors = torch.linalg.eigh(self.matrix.cpu())
        return values, vectors

    @cached_property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that are trained."""
        return {name: p for name, p in self.module.named_parameters() if p.requires_grad}

    @cached_property
    def size(self) -> int:
        """Number of trained parameters."""
        return sum(p.numel() for p in self.parameters.values())

    @cached_property
    def examples(self) -> list[int]:
        """Examples in each batch: rows of the first tensor of its input."""
        options = self.options
        return [count_examples(arguments_of(given), options.batch_dim, options.shared) for given, _ in self.batches]

    @cached_property
    def first_gradients(self) -> FirstGradients:
        """Of all batches, once."""
        total = sum(self.examples)
        values: list[float] = []
        norms: list[float] = []
        mean: Tensor | None = None
        for batch, count in zip(self.batches, self.examples, strict=True):
            found, gradient = self.batch_gradient(batch)
            values.append(float(found))
            norms.append(float(gradient.double().norm()))
            part = gradient.double() * (count / total)
            mean = part if mean is None else mean.add_(part)
        assert mean is not None
        value = sum(n * v for n, v in zip(self.examples, values, strict=True)) / total
        return FirstGradients(value, float(mean.norm()), tuple(values), tuple(norms))

    @cached_property
    def gradient(self) -> Gradient:
        """Measured, after one that warms up."""
        kept = 0

        def pack(t: Tensor) -> Tensor:
            nonlocal kept
            kept += t.numel() * t.element_size()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            self.batch_gradient(self.batches[0])
        kept += 2 * sum(p.numel() * p.element_size() for p in self.parameters.values())
        walls = []

        def all_of_them() -> None:
            started = time.perf_counter()
            for batch in self.batches:
                self.batch_gradient(batch)
            walls.append(time.perf_counter() - started)

        return Gradient(self.seconds(all_of_them, 5), min(walls), kept)

    def batch_gradient(self, batch: tuple[Any, Any]) -> tuple[Tensor, Tensor]:
        """(loss, flat gradient) of one batch."""
        args, kwargs = arguments_of(batch[0])
        with torch.enable_grad():
            found = self.module(*args, **kwargs)
            if self.options.output:
                found = tree_leaves(found)[picked(found, self.options.output, "output")]
            value = self.loss(found, batch[1])
            if not isinstance(value, Tensor):
                raise TypeError(f"the loss returned a {type(value).__name__}, expected a scalar tensor (no .item())")
            value = value.mean()
            grads = torch.autograd.grad(value, list(self.parameters.values()), allow_unused=True)
        flat = [
            torch.zeros_like(p).flatten() if g is None else g.flatten()
            for g, p in zip(grads, self.parameters.values(), strict=True)
        ]
        return value.detach(), torch.cat(flat)
