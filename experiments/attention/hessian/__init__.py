"""Attention, Sections G-I: the bounds on softmax attention and its Hessian against measured values.

A cell is one size, radius and way of looking for instances: random, aligned, or gradient ascent on the ratio of the
measured value to the bound, which says how loose the bound is at the worst instance found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from runner.contract.experiment import (
    Analysis,
    Cell,
    Context,
    Experiment,
    SettingError,
    Table,
    Tables,
    free,
    grid,
    one_of,
    positive,
    report_only,
)

SEARCHES = ("gaussian", "rank one", "ascent")


@dataclass(frozen=True, kw_only=True)
class AttentionHessian(Experiment):
    """Settings, each explained in conf/experiment/attention_hessian.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Bounds on the Hessian of softmax attention against measured values"
    paper: ClassVar[str] = "Attention"
    reproduces: ClassVar[str] = "Lemmas G.2-G.4, H.3-H.10, I.1-I.3; sharper constants"

    search: list[str] = grid()
    tokens: list[int] = grid()
    width: list[int] = grid()
    radius: list[float] = grid()
    instances: int = free()
    near: float = free()
    checked: int = free()
    ascent_entries: int = report_only(8)
    ascent_radius: list[float] = grid()
    ascent_starts: int = free()
    ascent_steps: int = free()
    ascent_rate: float = free()

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("experiment.search", self.search, SEARCHES)
        for name in ("tokens", "width", "instances", "checked", "ascent_starts", "ascent_steps", "ascent_rate"):
            positive(f"experiment.{name}", getattr(self, name))
        for name in ("radius", "ascent_radius"):
            for value in getattr(self, name):
                if not value > 1:
                    raise SettingError(f"experiment.{name}: expected values above 1 (Assumption G.1), found {value}")
        if not 0 < self.near < 0.5:
            raise SettingError(f"experiment.near: expected a value between 0 and 0.5, found {self.near}")
        if not self.cells():
            raise SettingError(
                "experiment: expected at least one cell, found none; the ascent covers "
                f"n d <= {self.ascent_entries} (experiment.ascent_entries) only"
            )

    def cells(self) -> list[Cell]:
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
                        found.append(Cell(params, self._seconds(tokens * width, ascent), 0.4))
        return found

    def _seconds(self, entries: int, ascent: bool) -> float:
        if ascent:
            return round(0.2 + 0.035 * self.ascent_steps, 2)
        return round(0.2 + 1.5e-6 * self.instances * entries**2.5, 2)

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.attention.hessian.measure import measure

        return measure(self, cell, ctx)

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.attention.hessian.report import AttentionHessianAnalysis

        return AttentionHessianAnalysis(self, tables)
