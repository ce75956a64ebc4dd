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
