"""Settings of full-batch descent."""

from __future__ import annotations

from dataclasses import dataclass

from runner.contract import kind, setting


@dataclass(frozen=True)
class DescentTraining:
    """Full-batch gradient descent from many starts (WS bound, Appendix C; HSR, Section VI)."""

    kind: str = kind("descent")
    starts: int = setting(500, above=0)
    steps: int = setting(10000, above=0)
    half_range: float = setting(10.0, above=0)
