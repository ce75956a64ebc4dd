"""Settings of full-batch descent."""

from __future__ import annotations

from dataclasses import dataclass

from runner.contract.schema import kind, one_of, positive


@dataclass(frozen=True)
class DescentTraining:
    """Full-batch gradient descent from many starts (WS bound, Appendix C; HSR, Section VI)."""

    kind: str = kind("descent")
    starts: int = 500
    steps: int = 10000
    half_range: float = 10.0

    def __post_init__(self) -> None:
        one_of("training.kind", self.kind, ("descent",))
        for name in ("starts", "steps", "half_range"):
            positive(f"training.{name}", getattr(self, name))
