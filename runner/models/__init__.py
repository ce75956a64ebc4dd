"""Networks of the experiments, each stated as a graph of named stages (see `Network`)."""

from runner.models.attention import attention_regressor, positionwise_mlp
from runner.models.blocks import ACTIVATIONS, Block, SpectralLinear, SumMerge, activation
from runner.models.diamond import diamond, graph_distance
from runner.models.mlp import bottleneck_mlp, mlp
from runner.models.network import Network, Stage, default_init
from runner.models.resnet import resnet18

__all__ = [
    "ACTIVATIONS",
    "Block",
    "Network",
    "SpectralLinear",
    "Stage",
    "SumMerge",
    "activation",
    "attention_regressor",
    "bottleneck_mlp",
    "default_init",
    "diamond",
    "graph_distance",
    "mlp",
    "positionwise_mlp",
    "resnet18",
]
