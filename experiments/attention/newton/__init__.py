"""Attention, Theorem J.1: recovery of the input of softmax attention from its output by Newton's method.

A cell is one size, regularisation and noise. In it, all methods start from the same points at controlled distances of
the minimiser; cells at the base regularisation also follow the minimiser over gamma, cells at the base regularisation
and noise hold Theorem J.1 against numbers and count what one step costs.
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
    non_negative,
    not_empty,
    one_of,
    positive,
)

METHODS = ("full", "line search", "truncated CG", "l-bfgs")


@dataclass(frozen=True, kw_only=True)
class AttentionNewton(Experiment):
    """Settings, each explained in conf/experiment/attention_newton.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Recovery of the attention input by Newton's method"
    paper: ClassVar[str] = "Attention"
    reproduces: ClassVar[str] = "Theorem J.1; basin, order and cost of Newton's method against L-BFGS"

    tokens: list[int] = grid()
    width: list[int] = grid()
    gamma: list[float] = grid()
    noise: list[float] = grid()
    base_tokens: int
    base_width: int
    base_gamma: float
    base_noise: float
    method: list[str]
    distance: list[float]
    score_scale: float
    problems: int = free()
    starts: int = free()
    steps: int
    lbfgs_starts: int = free()
    lbfgs_steps: int
    tolerance: float
    reached: float
    recovered: float
    shown: list[float] = free()
    scan: list[float] = free()
    repeats: int = free()

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("experiment.method", self.method, METHODS)
        for name in ("method", "distance", "scan"):
            not_empty(f"experiment.{name}", getattr(self, name))
        for name in (
            "tokens",
            "width",
            "base_tokens",
            "base_width",
            "distance",
            "score_scale",
            "problems",
            "starts",
            "steps",
            "lbfgs_starts",
            "lbfgs_steps",
            "tolerance",
            "reached",
            "recovered",
            "scan",
        ):
            positive(f"experiment.{name}", getattr(self, name))
        for name in ("gamma", "noise", "base_gamma", "base_noise", "repeats"):
            non_negative(f"experiment.{name}", getattr(self, name))
        one_of("experiment.shown", self.shown, self.distance)
        if self.scan != sorted(self.scan):
            raise SettingError(f"experiment.scan: expected rising values, found {self.scan}")
        if not self.cells():
            raise SettingError(
                "experiment: expected at least one cell, found none; a cell differs from the base point "
                f"(tokens {self.base_tokens}, width {self.base_width}, gamma {self.base_gamma:g}, noise "
                f"{self.base_noise:g}) along one axis only"
            )

    def cells(self) -> list[Cell]:
        """Combinations that leave the base point along one axis: the size, gamma, or noise."""
        found = []
        for params in self.combinations():
            size = params["tokens"] == self.base_tokens and params["width"] == self.base_width
            gamma, noise = params["gamma"] == self.base_gamma, params["noise"] == self.base_noise
            if (size and (gamma or noise)) or (gamma and noise):
                entries = int(params["tokens"]) * int(params["width"])
                found.append(Cell(params, self._seconds(entries), 0.4))
        return found

    def _seconds(self, entries: int) -> float:
        newton = 0.0015 * self.steps * entries
        lbfgs = 3e-4 * self.lbfgs_steps * self.lbfgs_starts * len(self.distance)
        return round(0.2 + self.problems * (newton + lbfgs), 2)

    def follows(self, cell: Cell) -> bool:
        """Whether the minimiser is followed over gamma in this cell."""
        return bool(cell.params["gamma"] == self.base_gamma)

    def tests_theorem(self, cell: Cell) -> bool:
        """Whether Theorem J.1 and the cost of a step are measured in this cell."""
        return self.follows(cell) and bool(cell.params["noise"] == self.base_noise)

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.attention.newton.measure import measure

        return measure(self, cell, ctx)

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.attention.newton.report import AttentionNewtonAnalysis

        return AttentionNewtonAnalysis(self, tables)
