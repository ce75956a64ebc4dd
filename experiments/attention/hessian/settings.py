"""Attention, Sections G-I: the bounds on softmax attention and its Hessian against measured values.

A cell is one size, radius and way of looking for instances: random, aligned, or gradient ascent on the ratio of the
measured value to the bound, which says how loose the bound is at the worst instance found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from runner import contract as c

SEARCHES = ("gaussian", "rank one", "ascent")


@dataclass(frozen=True, kw_only=True)
class AttentionHessian(c.Experiment):
    """Settings, each explained in conf/experiment/attention_hessian.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Bounds on the Hessian of softmax attention against measured values"
    paper: ClassVar[str] = "Attention"
    reproduces: ClassVar[str] = "Lemmas G.2-G.4, H.3-H.10, I.1-I.3; sharper constants"
    measure = "experiments.attention.hessian.measure:measure"
    analysis = "experiments.attention.hessian.report:AttentionHessianAnalysis"

    search: list[str] = c.grid(choices=SEARCHES)
    tokens: list[int] = c.grid(above=0)
    width: list[int] = c.grid(above=0)
    radius: list[float] = c.grid(above=1)
    instances: int = c.free(above=0)
    near: float = c.free(above=0, below=0.5)
    checked: int = c.free(above=0)
    ascent_entries: int = c.report_only(8)
    ascent_radius: list[float] = c.grid(above=1)
    ascent_starts: int = c.free(above=0)
    ascent_steps: int = c.free(above=0)
    ascent_rate: float = c.free(above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.cells():
            raise c.SettingError(
                "experiment: expected at least one cell, found none; the ascent covers "
                f"n d <= {self.ascent_entries} (experiment.ascent_entries) only"
            )

    def cells(self) -> list[c.Cell]:
        """Random searches over every size and radius, the ascent over small sizes and its own radii."""
        found = []
        for search in self.search:
            for tokens in self.tokens:
                for width in self.width:
                    ascent = search == "ascent"
                    if ascent and tokens * width > self.ascent_entries:
                        continue
                    for radius in self.ascent_radius if ascent else self.radius:
                        params: dict[str, str | int | float] = {
                            "search": search,
                            "tokens": tokens,
                            "width": width,
                            "radius": radius,
                        }
                        found.append(c.Cell(params, self._seconds(tokens * width, ascent), 0.4))
        return found

    def _seconds(self, entries: int, ascent: bool) -> float:
        if ascent:
            return round(0.2 + 0.035 * self.ascent_steps, 2)
        return round(0.2 + 1.5e-6 * self.instances * entries**2.5, 2)
