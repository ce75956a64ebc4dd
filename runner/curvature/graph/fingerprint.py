"""That the user's model stays the same between two measurements that belong together."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from runner.curvature.graph.state import reachable

SPAN = 1 << 20


@cache
def _weights(device: torch.device, dtype: torch.dtype) -> Tensor:
    drawn = torch.rand(SPAN, generator=torch.Generator().manual_seed(0), dtype=dtype, device="cpu")
    return (drawn + 0.5).to(device)


def _sum(t: Tensor) -> Tensor:
    if t.layout != torch.strided or t.is_meta or t.is_nested:
        return torch.zeros((), dtype=torch.float64)
    flat = (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t).reshape(-1)
    dtype = torch.float64 if flat.dtype == torch.float64 else torch.float32
    weights = _weights(t.device, dtype)
    if len(flat) <= SPAN:
        return flat.to(dtype).dot(weights[: len(flat)]).double().cpu()
    sums = [(i + 1) * piece.to(dtype).dot(weights[: len(piece)]) for i, piece in enumerate(flat.split(SPAN))]
    return torch.stack(sums).sum().double().cpu()


class Fingerprint:
    """Identity, version and a weighted sum of every tensor that graphs and modules are made of, to notice a change.

    The weights of the sum differ from entry to entry: a change through `.data` has no version, and a permutation has
    the same plain sum.
    """

    def __init__(self, *made: Any, **others: Tensor) -> None:
        found = reachable(*made)
        self.owners = [
            (f"{label}.{key}", module, key, t)
            for label, module in found.modules.values()
            for key, t in (*module._parameters.items(), *module._buffers.items())
            if t is not None
        ]
        self.tensors: dict[int, tuple[str, Tensor]] = {k: v for k, v in found.tensors.items() if v[1].is_leaf}
        self.tensors |= {id(t): (label, t) for label, _, _, t in self.owners}
        self.tensors |= {id(t): (key, t) for key, t in others.items()}
        self.marks = self._marks()

    def _marks(self) -> list[tuple[int, int, float]]:
        with torch.no_grad():
            sums = [_sum(t.detach()) for _, t in self.tensors.values()]
            return [
                (0 if t.is_inference() else t._version, t.data_ptr(), s)
                for (_, t), s in zip(self.tensors.values(), torch.stack(sums).tolist() if sums else (), strict=True)
            ]

    def renew(self) -> None:
        """Takes the present state as the right one."""
        self.marks = self._marks()

    def changed(self) -> str:
        """Label of the first tensor that is not what it was, "" when all are."""
        for label, module, key, tensor in self.owners:
            if getattr(module, key, None) is not tensor:
                return label
        for (label, _), old, new in zip(self.tensors.values(), self.marks, self._marks(), strict=True):
            same = old[2] == new[2] or (old[2] != old[2] and new[2] != new[2])
            if old[:2] != new[:2] or not same:
                return label
        return ""
