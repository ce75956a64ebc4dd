"""A network at one step: its operators, first gradients, costs of one product, and identity."""

from __future__ import annotations

import hashlib
import time
import warnings
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from runner.contract.experiment import torch_generator
from runner.curvature import LayerOperator, ParameterOperator
from runner.diagnose.settings import Request
from runner.diagnose.target import Snapshot

TOGETHER = 8
"""Vectors that are multiplied at once when a product is timed."""
LEAST_BUDGET = 1 << 20
LONG = 0.5
"""Seconds of gradients that are not taken again to be timed."""


class FirstGradients(NamedTuple):
    """The mean loss, the norm of its gradient, a hash of loss and gradient of every batch, and the
    seconds that they took."""

    loss: float
    norm: float
    content: str
    seconds: float


class Problem:
    """A snapshot and the options it is measured with.

    Raises ValueError for a network whose curvature cannot be measured.
    """

    def __init__(self, snapshot: Snapshot, options: Request) -> None:
        self.snapshot = snapshot
        self.options = options
        self.preparing = 0.0
        """Seconds of the checks and the timed products, a cost of the part `network`."""
        self.started = self.clock()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            self.operator: ParameterOperator = self._build(ParameterOperator, snapshot.batches)
            self.first = self._first_gradients()
        first = {(warning.filename, warning.lineno): warning for warning in reversed(caught)}
        self.warnings = [" ".join(str(warning.message).split()) for warning in first.values()]

    def _build(self, kind: Any, data: Any, **more: Any) -> Any:
        options = self.options
        settings: dict[str, Any] = {
            "output": options.output or None,
            "batch_dim": options.batch_dim,
            "memory_budget": options.budget,
        }
        if kind is LayerOperator:
            settings["layers"] = list(options.nodes) or None
        return kind(self.snapshot.module, self.snapshot.loss, data, **{**settings, **more})

    @cached_property
    def layers(self) -> LayerOperator:
        """The Hessian between the named outputs. Raises ValueError where it cannot be measured."""
        operator: LayerOperator = self._build(LayerOperator, self.snapshot.batches)
        return operator

    @property
    def weights(self) -> list[float]:
        """What the batches weigh that weigh anything."""
        return [share for share in self.operator.shares if share > 0]

    def of_batches(self, kind: Any, **more: Any) -> list[Any]:
        """An operator for each of these batches."""
        budget = max(LEAST_BUDGET, self.options.budget // len(self.weights))
        settings = {"memory_budget": budget, "check": False, **more}
        pairs = zip(self.operator.shares, self.snapshot.batches, strict=True)
        return [self._build(kind, batch, **settings) for share, batch in pairs if share > 0]

    def generator(self, role: str) -> torch.Generator:
        """The random stream of a part."""
        return torch_generator(self.options.seed, f"diagnose/{role}")

    # ------------------------------------------------------------------ seconds

    def clock(self) -> float:
        """Processor seconds, which other processes do not change; wall seconds of other devices."""
        if self.options.device.startswith("cuda"):
            torch.cuda.synchronize()
        if self.options.device == "cpu":
            return time.process_time()
        return time.perf_counter()

    @cached_property
    def gradient(self) -> float:
        """Seconds of a gradient of all batches; where it is short, not of the first one."""
        if self.first.seconds > LONG:
            return self.first.seconds
        started = self.clock()
        for _ in self.operator.batch_gradients():
            pass
        return max(self.clock() - started, 1e-6)

    @cached_property
    def product(self) -> float:
        """Seconds of a product with one vector."""
        return self._timed(self.operator, 1)

    @cached_property
    def product_together(self) -> float:
        """Seconds of a product with one of several vectors."""
        return self._timed(self.operator, TOGETHER)

    @cached_property
    def product_between(self) -> float:
        """Seconds of a product between layers with one of several vectors."""
        return self._timed(self.layers, TOGETHER)

    def _timed(self, operator: Any, count: int) -> float:
        """Seconds of the second of two products: the first one makes graphs."""
        size = operator.shape[0]
        ones = torch.ones(size, count, dtype=operator.dtype, device=operator.device)
        seconds = 0.0
        for _ in range(2):
            started = self.clock()
            operator @ ones
            seconds = self.clock() - started
        return max(seconds, 1e-6) / count

    # ------------------------------------------------------------------ numbers and identity

    def _first_gradients(self) -> FirstGradients:
        operator = self.operator
        digest = hashlib.sha256()
        loss = 0.0
        seconds = 1e-6
        started = self.clock()
        mean = torch.zeros(operator.shape[0], dtype=torch.float64, device=operator.device)
        for place, value, gradient in operator.batch_gradients():
            seconds += self.clock() - started
            loss += operator.shares[place] * value
            mean.add_(gradient.double(), alpha=operator.shares[place])
            content = f"{place} {value:.4e} {float(gradient.norm()):.4e}".encode()
            if gradient.device.type == "cpu":  # other devices may add up in another order
                content = f"{place} {value!r}".encode() + content_of(gradient)
            digest.update(content)
            started = self.clock()
        return FirstGradients(loss, float(mean.norm()), digest.hexdigest(), seconds)

    @cached_property
    def content(self) -> str:
        """SHA-256 of the state of the module and of the first gradients."""
        digest = hashlib.sha256()
        for name, value in self.snapshot.module.state_dict(keep_vars=True).items():
            digest.update(name.encode() + content_of(value))
        digest.update(self.first.content.encode())
        return digest.hexdigest()


def content_of(value: Any) -> bytes:
    """The bytes of an entry of a state."""
    if not isinstance(value, Tensor):
        return repr(value).encode()
    head = f"{tuple(value.shape)} {value.dtype} {value.requires_grad}".encode()
    if value.layout != torch.strided or value.is_quantized:
        return head + str(value).encode()
    if value.is_meta or not value.numel():
        return head
    t = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return head + t.reshape(-1).view(torch.uint8).numpy().tobytes()
