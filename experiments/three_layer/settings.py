"""Settings that every study of the three-layer network has."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.printed import Judged
from runner import contract as c
from runner.kinds.dataset import GaussianData
from runner.kinds.metric import WsBoundMetric
from runner.kinds.model import ThreeLayerModel
from runner.kinds.training import DescentTraining

STOP_RULES = {"fitted": "calibrated", "printed": "printed"}
"""Protocol of a search -> its stop rule, as a reader knows it."""
PROTOCOLS = tuple(STOP_RULES)
ACTIVATIONS = ("sigmoid", "tanh", "softplus", "gelu", "linear")


@dataclass(frozen=True, kw_only=True)
class ThreeLayerStudy(Judged):
    """Data, network and training of a study: see the YAML file of an experiment."""

    dataset: GaussianData
    model: ThreeLayerModel = c.since(ThreeLayerModel())
    metric: WsBoundMetric = c.since(WsBoundMetric())
    training: DescentTraining


@dataclass(frozen=True, kw_only=True)
class DecidedStudy(ThreeLayerStudy):
    """A study with settings that say how its claims are decided."""

    level: float = c.report_only(
        0.01, above=0, below=1, help="of the tests; 0.01 is the paper's one star"
    )
    share: float = c.report_only(
        0.8,
        above=0,
        below=1,
        help=(
            "of the data sets that must agree before a claim is decided; of the "
            "points of each, where a claim is about all"
        ),
    )
    data_sets: int = c.report_only(
        3, above=0, help="fewer of them leave a claim about data inconclusive"
    )
