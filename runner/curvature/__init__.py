"""The shared curvature engine: inter-layer Hessian blocks of a network stated as a graph. Imports torch only."""

from runner.curvature.blocks import exact_blocks, gauss_newton_blocks
from runner.curvature.composition import Composition
from runner.curvature.graph import Dag, Node
from runner.curvature.split import BlockSplit, split_blocks
from runner.curvature.structure import Concatenated, Residual, WeightedSum

__all__ = [
    "BlockSplit",
    "Composition",
    "Concatenated",
    "Dag",
    "Node",
    "Residual",
    "WeightedSum",
    "exact_blocks",
    "gauss_newton_blocks",
    "split_blocks",
]
