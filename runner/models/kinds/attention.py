"""One softmax-attention layer for regression over tokens (DAG, Exp. 5 and Appendix N.7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runner.contract.schema import kind, one_of, positive


@dataclass(frozen=True)
class AttentionModel:
    """q, k, v without bias, softmax(q kᵀ/√d) v, mean over tokens, linear head. width: d, that of the tokens."""

    kind: str = kind("attention")
    width: int = 16

    def __post_init__(self) -> None:
        one_of("model.kind", self.kind, ("attention",))
        positive("model.width", self.width)

    def network(self) -> dict[str, Any]:
        """The builder `attention_regressor` and its keyword arguments."""
        return {"builder": "attention_regressor", "width": self.width}
