"""What a report says of its spread: rounding, variance components, further seeds (`protocol.companions`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

from experiments.dag.protocol import crossed, further, rounding, spread_figures
from experiments.dag.protocol.companions import FURTHER, ORDERS, ROUNDING
from runner.contract import Analysis, Tables

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from runner.stats import Statistic

NIL = 1e-6
"""A mean that is no more than the rounding of a zero."""


class SpreadAnalysis(Analysis):
    """Readings that compare an experiment's cells with those of its companions; every one empty without them.

    reference: name of the file of printed values. A subclass gives `measured`, and `quantities` for the components.
    """

    reference: ClassVar[str] = ""

    def over(self, name: str) -> Self | None:
        """The same analysis of a companion's tables; None where it has no cells."""
        tables = self.beside.get(name)
        return None if tables is None else replace(self, tables=tables, beside={})

    def quantities(self, tables: Tables) -> pd.DataFrame | None:
        """Long table of what the components are of: keys, metric, checkpoint, seed, images, value."""
        return None

    def rounded(self, measured: pd.DataFrame) -> pd.DataFrame:
        """Measured values with the columns `rounding_std` and `rounding_df`, where trainings were repeated."""
        other = self.over(ROUNDING)
        values = None if other is None else other.measured()
        return measured if values is None else rounding.with_rounding(measured, values)

    def spread_statistics(self) -> list[Statistic]:
        """Rows of kind "rounding", "variance" (crossed) and "typical"."""
        return [*self._rounding_rows, *self._crossed_rows, *self._further_rows]

    @cached_property
    def _rounding_rows(self) -> list[Statistic]:
        other, own = self.over(ROUNDING), self.measured()
        values = None if other is None else other.measured()
        return [] if own is None or values is None else list(rounding.rows(own, values, "rounding"))

    @cached_property
    def _crossed_rows(self) -> list[Statistic]:
        from experiments.dag.protocol.published import PUBLISHED_SEEDS

        own = self.quantities(self.tables)
        orders = {name: tables for name, tables in self.beside.items() if name in ORDERS}
        if own is None or not orders:
            return []
        others = {name: found for name, t in orders.items() if (found := self.quantities(t)) is not None}
        values = crossed.gathered(own[own["seed"].isin(PUBLISHED_SEEDS)], others)
        keys = [c for c in own.columns if c not in ("seed", "images", "value")]
        return list(crossed.rows(values, keys, "components"))

    @cached_property
    def _further_rows(self) -> list[Statistic]:
        from runner.report.collect import reference_path
        from runner.report.printed import read_reference

        other, path = self.over(FURTHER), reference_path(self.reference)
        values = None if other is None else other.measured()
        if values is None or path is None:
            return []
        return list(further.rows(values, read_reference(path), "further_seeds"))

    def spread_figures(self) -> Mapping[str, Callable[[], Figure]]:
        """Figures of those kinds that there are."""
        found: dict[str, Callable[[], Figure]] = {}
        if rows := self._rounding_rows:
            found["rounding"] = lambda: spread_figures.rounding(rows)
        if parts := self._crossed_rows:
            found["components"] = lambda: spread_figures.components(parts)
        if typical := self._further_rows:
            found["further_seeds"] = lambda: spread_figures.further_seeds(typical)
        return found

    def spread_notes(self) -> list[str]:
        """One sentence for each kind."""
        return [t for t in (self._rounding_note(), *self._crossed_notes(), further.said(self._further_rows)) if t]

    def _rounding_note(self) -> str:
        rows = [s for s in self._rounding_rows if s.statistic > 0 and abs(s.mean) > NIL and "init" not in s.group]
        if not rows:
            return ""
        rows.sort(key=lambda s: s.statistic)
        middle, worst = rows[len(rows) // 2], rows[-1]
        where = f"{worst.name.split(':')[0]} ({worst.group})"
        return (
            f"Rounding (same network, data and order, inputs changed by 1e-7): after training it moves a value by "
            f"{middle.statistic:.2f} times the standard deviation between seeds in the median of {len(rows)} values "
            f"(two unrelated seeds: 1.41 times), most in {where}: {worst.std:.2g} at a "
            f"mean of {worst.mean:.4g}, {worst.statistic:.2f} times, from {worst.n_a} pairs."
        )

    def _crossed_notes(self) -> list[str]:
        by: dict[tuple[str, str], list[Statistic]] = {}
        for s in self._crossed_rows:
            if "checkpoint=final" in s.group:
                by.setdefault((s.name.split(":")[0], s.group), []).append(s)
        found = []
        for (metric, group), parts in by.items():
            paper = [s for s in parts if s.label_a != "set of images"]
            whole = sum(s.std**2 for s in paper)
            if whole > 0:
                said = ", ".join(
                    f"{s.label_a} {100 * s.std**2 / whole:.0f} % ({s.note.split('; ')[-1]})" for s in paper
                )
                images = next((s for s in parts if s.label_a == "set of images"), None)
                left = f"; it leaves out {images.std:.2g} between sets of images" if images and images.std > 0 else ""
                found.append(f"What the ± of {metric} ({group}) consists of: {whole**0.5:.2g}, of which {said}{left}.")
        return found
