"""Settings of the two experiments on softmax attention.

AttentionHessian (Sections G to I): the bounds against measured values. A cell is a size, a radius
and a kind of instance: random, aligned, or found by gradient ascent on the ratio of the measured
value to the bound.

AttentionNewton (Theorem J.1): recovery of the input X from the output, without access to X (blind
recovery). A cell is a study at a size: `contest` of all methods from blind and near starts;
`certify`, Newton–Kantorovich in place of the theorem; `theorem`, the theorem itself and the
minimiser over gamma; `layer`, a trained layer, whose size is its own.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from experiments.printed import Judged
from runner import contract as c
from runner.kinds.dataset import AttentionData
from runner.kinds.model import AttentionModel
from runner.kinds.training import MinibatchTraining

SEARCHES = ("gaussian", "rank one", "ascent")
NEWTON = ("full", "line search", "truncated CG")
KINDS = (*NEWTON, "l-bfgs", "levenberg-marquardt")
METHODS = (*KINDS, *(f"{name}, continued" for name in KINDS))
SECONDS = {"contest": 12.0, "certify": 1.0, "theorem": 0.5}
"""Studies that have a size, with their cost for each problem."""
STUDIES = (*SECONDS, "layer")
IN_ROUNDS = ("contest", "layer")
RETIRED: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("retired.toml").read_text(encoding="utf-8")
)
"""Settings of studies that were removed, which the ids of stored cells contain."""


@dataclass(frozen=True, kw_only=True)
class AttentionHessian(c.Experiment):
    """Settings, each explained in conf/experiment/attention_hessian.yaml."""

    title = "Bounds on the Hessian of softmax attention against measured values"
    paper = "Attention"
    paper_seeds = tuple(range(42, 47))
    reproduces = "Lemmas G.2-G.4, H.3-H.10, I.1-I.3; sharper constants"
    measure = "experiments.attention.measure:measure"
    analysis = "experiments.attention.hessian_report:AttentionHessianAnalysis"

    search: list[str] = c.grid(choices=SEARCHES)
    tokens: list[int] = c.grid(above=0)
    width: list[int] = c.grid(above=0)
    radius: list[float] = c.grid(above=1)
    instances: int = c.free(above=0)
    near: float = c.free(above=0, below=0.5)
    checked: int = c.free(above=0)
    ascent_entries: int = c.report_only(8, at_least=0)
    ascent_radius: list[float] = c.grid(above=1)
    ascent_starts: int = c.free(above=0)
    ascent_steps: int = c.free(above=0)
    ascent_rate: float = c.free(above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.cells():
            raise c.SettingError(
                "experiment: expected at least one cell, found none; the ascent covers n d <= "
                f"{self.ascent_entries} (experiment.ascent_entries) only"
            )

    def cells(self) -> list[c.Cell]:
        """Random searches over every size and radius, the ascent over small sizes and its own
        radii."""
        cells = []
        searches = product(self.search, self.tokens, self.width)
        for search, tokens, width in searches:
            ascent = search == "ascent"
            if ascent and tokens * width > self.ascent_entries:
                continue
            seconds = self._seconds(tokens * width, ascent)
            for radius in self.ascent_radius if ascent else self.radius:
                params: dict[str, c.Scalar] = {"search": search, "tokens": tokens, "width": width}
                cell = c.Cell(params | {"radius": radius}, seconds, 0.4)
                cells.append(cell)
        return cells

    def _seconds(self, entries: int, ascent: bool) -> float:
        if ascent:
            return round(0.2 + 0.035 * self.ascent_steps, 2)
        return round(0.2 + 1.5e-6 * self.instances * entries**2.5, 2)


@dataclass(frozen=True, kw_only=True)
class AttentionNewton(Judged):
    """Settings, each explained in conf/experiment/attention_newton.yaml."""

    version = 2
    title = "Recovery of the attention input"
    paper = "Attention"
    paper_seeds = tuple(range(42, 47))
    claimed = "attention_newton"
    reproduces = "Theorem J.1; blind recovery, certified balls, a trained layer"
    uncertified = "they step with the closed forms that the cells of attention_hessian certify"
    retired: ClassVar[dict[str, Any]] = RETIRED
    measure = "experiments.attention.newton_measure:measure"
    analysis = "experiments.attention.newton_report:AttentionNewtonAnalysis"

    study: list[str] = c.grid(choices=STUDIES)
    size: list[str] = c.grid()
    score_scale: float = c.setting(above=0)
    problems: int = c.free(above=0)
    recovered: float = c.setting(above=0)
    method: list[str] = c.setting(choices=METHODS, filled=True)
    blind_starts: int = c.free(above=0)
    distance: list[float] = c.setting(above=0, filled=True)
    near_starts: int = c.free(above=0)
    steps: dict[str, int] = c.setting(keys=KINDS)
    # Parameters of the cells that step in rounds; below 1, since every start must end.
    progress: float = c.report_only(0.5, above=0, below=1)
    further_rounds: int = c.report_only(4, above=0)
    tolerance: float = c.setting(above=0)
    decrease: float = c.since(1e-4, at_least=0, below=1)
    lbfgs_memory: int = c.since(30, above=0)
    lbfgs_starts: int = c.since(4, free=True, above=0)
    ladder: list[float] = c.setting(above=0, filled=True)
    rung_steps: int = c.setting(above=0)
    multiple: list[float] = c.setting(above=0, filled=True)
    sphere_starts: int = c.free(above=0)
    certified_steps: int = c.setting(above=0)
    scan: list[float] = c.free(above=0, filled=True)
    sequences: int = c.free(above=0)
    target_starts: int = c.free(above=0)
    target_steps: int = c.setting(above=0)
    dataset: AttentionData
    model: AttentionModel
    training: MinibatchTraining

    def __post_init__(self) -> None:
        super().__post_init__()
        rising = {"scan": self.scan, "ladder": self.ladder[::-1], "multiple": self.multiple}
        for name, values in rising.items():
            if values != sorted(values):
                way = "rising"
                if name == "ladder":
                    way = "falling"
                raise c.SettingError(
                    f"experiment.{name}: expected {way} values, found {getattr(self, name)}"
                )
        for size in self.size:
            self.sizes(size)

    def sizes(self, size: str) -> tuple[int, int]:
        """n and d of a size written "4x3". Raises SettingError for another form."""
        n, _, d = size.partition("x")
        if not (n.isdigit() and d.isdigit() and int(n) > 0 and int(d) > 0):
            raise c.SettingError(
                f"experiment.size: expected tokens x width such as '4x3', found {size!r}"
            )
        return int(n), int(d)

    def cells(self) -> list[c.Cell]:
        """Every study that has a size at every size; the others once, under the size "own"."""
        cells = []
        for study in self.study:
            for size in self.size if study in SECONDS else ["own"]:
                params: dict[str, c.Scalar] = {"study": study, "size": size}
                if study in IN_ROUNDS:
                    params |= {"progress": self.progress, "further_rounds": self.further_rounds}
                seconds = self._seconds(study)
                cells.append(c.Cell(params, seconds, 0.5))
        return cells

    def _seconds(self, study: str) -> float:
        if study in SECONDS:
            return round(SECONDS[study] * self.problems, 1)
        return 2.0 * self.sequences * self.target_starts
