"""Networks of two branches and a merge (DAG, Example 6 and Exp. 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runner.contract import kind, setting, since
from runner.models.kinds.initial import INITIAL, initial_setting


@dataclass(frozen=True)
class DiamondModel:
    """Stem, two branches of blocks, merge, head; length and merge are the experiment's grid.

    width: of stem and branches. norm: LayerNorm in them.
    """

    kind: str = kind("diamond", stored="mlp")
    width: int = setting(32, above=0)
    norm: bool = True
    initial: str = since("named", free=True, choices=INITIAL)

    def network(self, *, outputs: int, branch_depth: int, merge: str, activation: str) -> dict[str, Any]:
        """The builder `diamond` and its keyword arguments."""
        shape: dict[str, Any] = {
            "branch_depth": branch_depth,
            "merge": merge,
            "activation": activation,
            "width": self.width,
        }
        shape |= {} if self.norm else {"norm": False}
        return {**initial_setting(self.initial), "builder": "diamond", "outputs": outputs, **shape}
