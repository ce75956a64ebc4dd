"""That the user's model stays the same between two measurements that belong together."""

from __future__ import annotations

from torch import Tensor

from runner.curvature.graph.dag import Dag
from runner.curvature.graph.state import reachable


class Fingerprint:
    """Identity, version and sum of every tensor that a graph is made of, to notice that one has changed."""

    def __init__(self, dag: Dag, **others: Tensor) -> None:
        found = reachable(dag)
        self.owners = [
            (f"{label}.{key}", module, key, t)
            for label, module in found.modules.values()
            for key, t in (*module._parameters.items(), *module._buffers.items())
            if t is not None
        ]
        self.tensors: dict[int, tuple[str, Tensor]] = dict(found.tensors)
        self.tensors |= {id(t): (label, t) for label, _, _, t in self.owners}
        self.tensors |= {id(t): (key, t) for key, t in others.items()}
        self.marks = self._marks()

    def _marks(self) -> list[tuple[int, int, float]]:
        tensors = [t.detach() for _, t in self.tensors.values()]
        sums = [float(t.sum()) if t.numel() and not t.is_complex() else 0.0 for t in tensors]
        return [
            (0 if t.is_inference() else t._version, t.data_ptr(), s)
            for (_, t), s in zip(self.tensors.values(), sums, strict=True)
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
