"""The shared curvature engine: inter-layer Hessian blocks of a network stated as a graph. Imports torch only."""

from runner.curvature.blocks import exact_blocks, gauss_newton_blocks
from runner.curvature.checks import check_before_measuring
from runner.curvature.composition import Composition, Concatenated, Residual, WeightedSum
from runner.curvature.graph import Dag, Node
from runner.curvature.jacobians import (
    block_jacobians,
    interaction_radius,
    lyapunov_exponents,
    lyapunov_log_norm,
    mean_spectral_norms,
    spectral_radius,
)
from runner.curvature.metrics import (
    assemble,
    block_metrics,
    coupling,
    effective_dimension,
    gap_by_distance,
    gn_gap,
    gn_gap_of_sums,
    negative_curvature_mass,
    resonance,
    stable_rank,
)
from runner.curvature.split import BlockSplit, split_blocks

__all__ = [
    "BlockSplit",
    "Composition",
    "Concatenated",
    "Dag",
    "Node",
    "Residual",
    "WeightedSum",
    "assemble",
    "block_jacobians",
    "block_metrics",
    "check_before_measuring",
    "coupling",
    "effective_dimension",
    "exact_blocks",
    "gap_by_distance",
    "gauss_newton_blocks",
    "gn_gap",
    "gn_gap_of_sums",
    "interaction_radius",
    "lyapunov_exponents",
    "lyapunov_log_norm",
    "mean_spectral_norms",
    "negative_curvature_mass",
    "resonance",
    "spectral_radius",
    "split_blocks",
    "stable_rank",
]
