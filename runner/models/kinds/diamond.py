"""Networks of two branches and a merge (DAG, Example 6 and Exp. 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runner.contract.schema import SettingError, kind, one_of, positive, since
from runner.models.kinds.initial import INITIAL, initial_setting


@dataclass(frozen=True)
class DiamondModel:
    """Stem, two branches of blocks with LayerNorm, merge, head; length and merge are the experiment's grid.

    width: of stem and branches. norm: LayerNorm in them; the builder knows no other.
    """

    kind: str = kind("diamond", stored="mlp")
    width: int = 32
    norm: bool = True
    initial: str = since("named", free=True)

    def __post_init__(self) -> None:
        one_of("model.kind", self.kind, ("diamond",))
        one_of("model.initial", self.initial, INITIAL)
        positive("model.width", self.width)
        if not self.norm:
            raise SettingError("model.norm: expected true (the branches have LayerNorm), found false")

    def network(self, *, outputs: int, branch_depth: int, merge: str, activation: str) -> dict[str, Any]:
        """The builder `diamond` and its keyword arguments."""
        shape = {"branch_depth": branch_depth, "merge": merge, "activation": activation, "width": self.width}
        return {**initial_setting(self.initial), "builder": "diamond", "outputs": outputs, **shape}
