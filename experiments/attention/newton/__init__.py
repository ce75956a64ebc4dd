"""Recovery of the input of softmax attention from its output (Theorem J.1), as somebody would want it who has no X.

A cell is a study at a size: `contest` of all methods from blind and near starts; `certify`, Newton-Kantorovich in place
of the theorem; `theorem`, the theorem itself and the minimiser over gamma; `identify`, what makes J singular and how
much noise protects X; `layer` and `transformer`, trained targets, whose sizes are their own; `price`, the processor
time of a multiply-add of each method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.printed import Judged
from runner.contract.experiment import (
    Analysis,
    Cell,
    Context,
    Scalar,
    SettingError,
    Table,
    Tables,
    free,
    grid,
    non_negative,
    not_empty,
    one_of,
    positive,
    report_only,
    since,
)
from runner.data.attention import AttentionData
from runner.models.kinds.attention import AttentionModel
from runner.training.kinds.minibatch import MinibatchTraining

NEWTON = ("full", "line search", "truncated CG")
KINDS = (*NEWTON, "l-bfgs", "levenberg-marquardt")
METHODS = (*KINDS, *(f"{name}, continued" for name in KINDS))
STUDIES = ("contest", "certify", "theorem", "identify", "layer", "transformer", "price")
SIZED = (*STUDIES[:3], "price")
IN_ROUNDS = ("contest", "layer", "transformer")
AXES = ("tokens", "width", "rank", "value_rank", "similarity", "score_scale", "causal")
TRANSFORMER = ("tokens", "width", "heads", "steps", "rate")


@dataclass(frozen=True, kw_only=True)
class AttentionNewton(Judged):
    """Settings, each explained in conf/experiment/attention_newton.yaml."""

    version: ClassVar[int] = 2
    title: ClassVar[str] = "Recovery of the attention input"
    paper: ClassVar[str] = "Attention"
    claimed: ClassVar[str] = "attention_newton"
    reproduces: ClassVar[str] = "Theorem J.1; blind recovery, certified balls, identifiability, trained targets"
    uncertified: ClassVar[str] = "they step with the closed forms that the cells of attention_hessian certify"

    study: list[str] = grid()
    size: list[str] = grid()
    score_scale: float
    problems: int = free()
    recovered: float
    method: list[str]
    blind_starts: int = free()
    distance: list[float]
    near_starts: int = free()
    steps: dict[str, int]
    progress: float = report_only(0.5)  # a parameter of the cells that step in rounds, and so is the next
    further_rounds: int = report_only(4)
    tolerance: float
    decrease: float = since(1e-4)
    lbfgs_memory: int = since(30)
    lbfgs_starts: int = since(4, free=True)
    price_steps: int = since(60)
    price_repeats: int = since(3, free=True)
    ladder: list[float]
    rung_steps: int
    multiple: list[float]
    sphere_starts: int = free()
    certified_steps: int
    scan: list[float] = free()
    identify_base: dict[str, float]
    identify: dict[str, list[float]]
    noisy_axes: list[str] = free()
    noise: list[float]
    noise_draws: int = free()
    sequences: int = free()
    target_starts: int = free()
    target_steps: int
    transformer: dict[str, float]
    reading_noise: list[float] = free()
    dataset: AttentionData
    model: AttentionModel
    training: MinibatchTraining

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("experiment.study", self.study, STUDIES)
        one_of("experiment.method", self.method, METHODS)
        one_of("experiment.steps", list(self.steps), KINDS)
        one_of("experiment.identify", list(self.identify), AXES)
        one_of("experiment.noisy_axes", self.noisy_axes, list(self.identify))
        for name, wanted in (("identify_base", AXES), ("transformer", TRANSFORMER)):
            found = getattr(self, name)
            if set(found) != set(wanted):
                raise SettingError(
                    f"experiment.{name}: expected the keys {', '.join(wanted)}, found {', '.join(found)}"
                )
        for name in ("method", "distance", "scan", "multiple", "noise", "ladder"):
            not_empty(f"experiment.{name}", getattr(self, name))
            positive(f"experiment.{name}", 1 if name == "method" else getattr(self, name))
        counts = ("problems", "blind_starts", "near_starts", "rung_steps", "sphere_starts", "certified_steps")
        for name in (
            *counts,
            "noise_draws",
            "price_steps",
            "price_repeats",
            "sequences",
            "target_starts",
            "target_steps",
            "further_rounds",
            "score_scale",
            "recovered",
            "tolerance",
        ):
            positive(f"experiment.{name}", getattr(self, name))
        non_negative("experiment.reading_noise", self.reading_noise)
        if not 0 < self.progress < 1:  # every start must end
            raise SettingError(f"experiment.progress: expected a value between 0 and 1, found {self.progress}")
        for name, values in (("scan", self.scan), ("ladder", self.ladder[::-1]), ("multiple", self.multiple)):
            if values != sorted(values):
                way = "falling" if name == "ladder" else "rising"
                raise SettingError(f"experiment.{name}: expected {way} values, found {getattr(self, name)}")
        for size in self.size:
            self.sizes(size)

    def sizes(self, size: str) -> tuple[int, int]:
        """n and d of a size written "4x3". Raises SettingError for another form."""
        n, _, d = size.partition("x")
        if not (n.isdigit() and d.isdigit() and int(n) > 0 and int(d) > 0):
            raise SettingError(f"experiment.size: expected tokens x width such as '4x3', found {size!r}")
        return int(n), int(d)

    def cells(self) -> list[Cell]:
        """Every study of a size at every size; the others once, under the size "own"."""
        found = []
        for study in self.study:
            for size in self.size if study in SIZED else ["own"]:
                rounds: dict[str, Scalar] = {}
                if study in IN_ROUNDS:
                    rounds = {"progress": self.progress, "further_rounds": self.further_rounds}
                found.append(Cell({"study": study, "size": size, **rounds}, self._seconds(study, size), 0.5))
        return found

    def _seconds(self, study: str, size: str) -> float:
        per_problem = {"contest": 12.0, "certify": 1.0, "theorem": 0.5, "identify": 8.0, "price": 3.0}
        if study in per_problem:
            return round(per_problem[study] * self.problems, 1)
        return 2.0 * self.sequences * self.target_starts

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.attention.newton import certify, contest, identify, prices, regularised, targets

        study = str(cell.params["study"])
        if study == "identify":
            return _tables(identify.identify_rows(self, ctx))
        if study == "layer":
            return _tables({"targets": targets.layer_rows(self, ctx)})
        if study == "transformer":
            return _tables(targets.transformer_rows(self, ctx))
        n, d = self.sizes(str(cell.params["size"]))
        if study == "contest":
            return _tables(contest.contest_rows(self, n, d, ctx))
        if study == "price":
            return _tables({"prices": prices.price_rows(self, n, d, ctx)})
        if study == "certify":
            return _tables({"balls": certify.certificate_rows(self, n, d, ctx)})
        return _tables(regularised.theorem_tables(self, n, d, ctx))

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.attention.newton.report import AttentionNewtonAnalysis

        return AttentionNewtonAnalysis(self, tables)


def _tables(rows: dict[str, list[dict[str, Any]]]) -> dict[str, Table]:
    return {name: {key: [row[key] for row in found] for key in found[0]} for name, found in rows.items() if found}
