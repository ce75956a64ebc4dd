"""Recovery of the input of softmax attention from its output (Theorem J.1), as somebody would want it who has no X.

A cell is a study at a size: `contest` of all methods from blind and near starts; `certify`, Newton-Kantorovich in place
of the theorem; `theorem`, the theorem itself and the minimiser over gamma; `identify`, what makes J singular and how
much noise protects X; `layer` and `transformer`, trained targets, whose sizes are their own; `price`, the processor
time of a multiply-add of each method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.printed import Judged
from runner import contract as c
from runner.kinds.dataset import AttentionData
from runner.kinds.model import AttentionModel
from runner.kinds.training import MinibatchTraining

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
    measure = "experiments.attention.newton.measure:measure"
    analysis = "experiments.attention.newton.report:AttentionNewtonAnalysis"

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
    decrease: float = c.since(1e-4)
    lbfgs_memory: int = c.since(30)
    lbfgs_starts: int = c.since(4, free=True)
    price_steps: int = c.since(60, above=0)
    price_repeats: int = c.since(3, free=True, above=0)
    ladder: list[float] = c.setting(above=0, filled=True)
    rung_steps: int = c.setting(above=0)
    multiple: list[float] = c.setting(above=0, filled=True)
    sphere_starts: int = c.free(above=0)
    certified_steps: int = c.setting(above=0)
    scan: list[float] = c.free(above=0, filled=True)
    identify_base: dict[str, float]
    identify: dict[str, list[float]] = c.setting(keys=AXES)
    noisy_axes: list[str] = c.free()
    noise: list[float] = c.setting(above=0, filled=True)
    noise_draws: int = c.free(above=0)
    sequences: int = c.free(above=0)
    target_starts: int = c.free(above=0)
    target_steps: int = c.setting(above=0)
    transformer: dict[str, float]
    reading_noise: list[float] = c.free(at_least=0)
    dataset: AttentionData
    model: AttentionModel
    training: MinibatchTraining

    def __post_init__(self) -> None:
        super().__post_init__()
        c.one_of("experiment.noisy_axes", self.noisy_axes, list(self.identify))
        for name, wanted in (("identify_base", AXES), ("transformer", TRANSFORMER)):
            found = getattr(self, name)
            if set(found) != set(wanted):
                keys = f"{', '.join(wanted)}, found {', '.join(found)}"
                raise c.SettingError(f"experiment.{name}: expected the keys {keys}")
        for name, values in (("scan", self.scan), ("ladder", self.ladder[::-1]), ("multiple", self.multiple)):
            if values != sorted(values):
                way = "falling" if name == "ladder" else "rising"
                raise c.SettingError(f"experiment.{name}: expected {way} values, found {getattr(self, name)}")
        for size in self.size:
            self.sizes(size)

    def sizes(self, size: str) -> tuple[int, int]:
        """n and d of a size written "4x3". Raises SettingError for another form."""
        n, _, d = size.partition("x")
        if not (n.isdigit() and d.isdigit() and int(n) > 0 and int(d) > 0):
            raise c.SettingError(f"experiment.size: expected tokens x width such as '4x3', found {size!r}")
        return int(n), int(d)

    def cells(self) -> list[c.Cell]:
        """Every study of a size at every size; the others once, under the size "own"."""
        found = []
        for study in self.study:
            for size in self.size if study in SIZED else ["own"]:
                rounds: dict[str, c.Scalar] = {}
                if study in IN_ROUNDS:
                    rounds = {"progress": self.progress, "further_rounds": self.further_rounds}
                found.append(c.Cell({"study": study, "size": size, **rounds}, self._seconds(study, size), 0.5))
        return found

    def _seconds(self, study: str, size: str) -> float:
        per_problem = {"contest": 12.0, "certify": 1.0, "theorem": 0.5, "identify": 8.0, "price": 3.0}
        if study in per_problem:
            return round(per_problem[study] * self.problems, 1)
        return 2.0 * self.sequences * self.target_starts
