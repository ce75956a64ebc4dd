"""Data parallelism: sums over the processes of a torch.distributed group, and what they must agree
on before; modules whose parameters are spread over processes."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from runner.curvature.function.context import ONE_AT_A_TIME
from runner.curvature.function.errors import MeasurementError

P = ParamSpec("P")
T = TypeVar("T")


class _Failed(NamedTuple):
    line: str


class Processes:
    """The processes of `group`, each with its own share of the data; None: this one alone."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.size = 1
        self.rank = 0
        if group is not None:
            self.size = dist.get_world_size(group)
            self.rank = dist.get_rank(group)
        self.met = False

    def gather(self, told: T, same: Mapping[str, Any]) -> list[T]:
        """`told` of every process in the order of ranks. Raises MeasurementError in all of them
        where one has failed, or `same` differs."""
        if self.size == 1:
            return [told]
        self.met = True
        found = [None] * self.size
        dist.all_gather_object(found, (told, same), group=self.group)
        everyone: list[Any] = found
        for rank, (other, _) in enumerate(everyone):
            if isinstance(other, _Failed):
                raise MeasurementError(f"process {rank} failed: {other.line}")
        first = everyone[0][1]
        for rank, (_, theirs) in enumerate(everyone):
            for what in {**first, **theirs}:
                if not _equal(first.get(what), theirs.get(what)):
                    raise MeasurementError(
                        f"{what} differs between process 0 and process {rank}: expected the same "
                        "module (buffers included) and options in every process, and data alone "
                        "of its own"
                    )
        return [other for other, _ in everyone]

    def agree(self, check: Callable[[], None]) -> None:
        """Raises MeasurementError in all processes where the check fails in one."""
        if self.size == 1:
            return check()
        told = ""
        failure = None
        try:
            check()
        except MeasurementError as error:  # the others wait for this process
            told = str(error)
            failure = error
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, told, group=self.group)
        if failure is not None:
            raise failure
        for rank, text in enumerate(found):
            if text:
                raise MeasurementError(f"process {rank} failed: {text}")

    def sum(self, make: Callable[[Tensor], Tensor], vectors: Tensor) -> Tensor:
        """The sum over the processes of make(vectors), of the shape and dtype of the vectors.

        Raises MeasurementError in all processes where make fails in one, or their vectors differ.
        """
        if self.size == 1:
            return make(vectors)
        marks = torch.zeros(self.size, dtype=torch.float64, device=vectors.device)
        failure = None
        found = vectors
        try:
            found = make(vectors)
            marks[self.rank] = _weighted_sum(vectors).nan_to_num(0, 0, 0)
        except Exception as error:  # it is raised below: the others wait for this process
            failure = error
            marks[self.rank] = torch.nan
        dist.all_reduce(marks, group=self.group)
        if failure is not None:
            raise failure
        told = marks.tolist()
        for rank, mark in enumerate(told):
            if math.isnan(mark):
                raise MeasurementError(f"process {rank} failed during this product; it tells why")
        if not all(_equal(mark, told[0]) for mark in told):
            raise MeasurementError(
                "the processes multiply different vectors: give every process the same, or the "
                "same generator=torch.Generator().manual_seed(0)"
            )
        total = found.to(torch.promote_types(found.dtype, torch.float32))
        dist.all_reduce(total, group=self.group)
        return total.to(vectors.dtype)

    def first(self, tensor: Tensor) -> Tensor:
        """The tensor of the first process."""
        if self.size > 1:
            dist.broadcast(tensor, group=self.group, group_src=0)
        return tensor


def sums_of(tensors: Mapping[str, Tensor]) -> dict[str, object]:
    """A number of each tensor, which tells whether two are the same."""
    return {name: float(_weighted_sum(t.detach())) for name, t in tensors.items()}


_SPAN = 1 << 20


@functools.cache
def _weights(device: torch.device, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(_SPAN, generator=generator, dtype=dtype, device="cpu")
    return (drawn + 0.5).to(device)


def _weighted_sum(t: Tensor) -> Tensor:
    """The sum of the entries with weights that differ from one to the next, a scalar on the
    tensor's device."""
    flat = (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t).reshape(-1)
    dtype = torch.float32
    if flat.dtype == torch.float64:
        dtype = torch.float64
    weights = _weights(t.device, dtype)
    sums = []
    for i, piece in enumerate(flat.split(_SPAN)):
        sums.append((i + 1) * piece.to(dtype).dot(weights[: len(piece)]))
    return torch.stack(sums).sum()


def _equal(one: Any, other: Any) -> bool:
    """Numbers may differ by the rounding of other processors."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-5) or (one != one and other != other)
    return bool(one == other)


def together(build: Callable[Concatenate[Any, P], None]) -> Callable[Concatenate[Any, P], None]:
    """A constructor that sets self.processes first and gathers last: where it fails in one process
    before, the others raise as well and wait for nobody. It reads the module while no other thread
    has replaced its tensors."""

    @functools.wraps(build)
    def built(self: Any, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with ONE_AT_A_TIME:
                build(self, *args, **kwargs)
        except Exception as error:
            processes = getattr(self, "processes", None)
            if processes is not None and not processes.met:
                with suppress(MeasurementError):  # told to the others, among them this one
                    processes.gather(_Failed(str(error) or type(error).__name__), {})
            raise

    return built


def gathered(module: nn.Module) -> tuple[nn.Module, dict[str, Tensor]]:
    """A copy with whole parameters of a module that FSDP2 (fully_shard) has spread over processes,
    and what this one holds of each; any other module itself. Every process must call it."""
    if "torch.distributed.fsdp" not in sys.modules:
        return module, {}
    from torch.distributed.fsdp import FSDPModule

    if not any(isinstance(m, FSDPModule) for m in module.modules()):
        return module, {}
    for m in module.modules():
        if isinstance(m, FSDPModule):
            m.reshard()
    spread: dict[str, Any] = {
        k: p for k, p in module.named_parameters() if type(p).__name__ == "DTensor"
    }
    with torch.no_grad():
        shares = {name: p.to_local() for name, p in spread.items()}
        whole = {id(p): nn.Parameter(p.full_tensor(), p.requires_grad) for p in spread.values()}
    copies: dict[Any, Any] = {}
    for m in module.modules():
        line = type(m).__mro__
        kind = line[0]
        if FSDPModule in line:
            kind = line[line.index(FSDPModule) + 1]
        copies[m] = object.__new__(kind)
    for m, copied in copies.items():
        copied.__dict__ = {k: v.copy() if isinstance(v, dict) else v for k, v in vars(m).items()}
        copied._parameters = {k: whole.get(id(p), p) for k, p in m._parameters.items()}
        copied._modules = {k: copies.get(child) for k, child in m._modules.items()}
        for hooks in (copied._forward_pre_hooks, copied._forward_hooks):
            for key in [
                k
                for k, h in hooks.items()
                if getattr(h, "__module__", "").startswith("torch.distributed.")
            ]:
                del hooks[key]
    return copies[module], shares
