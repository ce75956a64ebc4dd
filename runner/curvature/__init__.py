"""The shared curvature engine: inter-layer Hessian blocks of a network stated as a graph. Imports torch only."""

from runner.curvature.blocks import exact_blocks, gauss_newton_blocks
from runner.curvature.checks import check_before_measuring
from runner.curvature.composition import Composition, Concatenated, Residual, WeightedSum
from runner.curvature.estimators import (
    Estimate,
    couplings,
    frobenius_norms,
    gn_gaps,
    lanczos_extremes,
    spectral_norms,
    stable_ranks,
)
from runner.curvature.graph import Dag, Node
from runner.curvature.jacobians import (
    block_jacobians,
    interaction_radius,
    lyapunov_exponents,
    lyapunov_log_norm,
    mean_spectral_norms,
    spectral_radius,
)
from runner.curvature.low_rank import (
    GaussNewtonFactors,
    LowRank,
    gauss_newton_factors,
    pull_back,
    rank_for_accuracy,
    truncate,
    truncation_bound,
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
from runner.curvature.operators import BlockOperator, CurvatureOperator
from runner.curvature.parametric import parameter_hessian, parametric_blocks, parametric_terms
from runner.curvature.paths import Contribution, path_decomposition, paths
from runner.curvature.split import BlockSplit, split_blocks

__all__ = [
    "BlockOperator",
    "BlockSplit",
    "Composition",
    "Concatenated",
    "Contribution",
    "CurvatureOperator",
    "Dag",
    "Estimate",
    "GaussNewtonFactors",
    "LowRank",
    "Node",
    "Residual",
    "WeightedSum",
    "assemble",
    "block_jacobians",
    "block_metrics",
    "check_before_measuring",
    "coupling",
    "couplings",
    "effective_dimension",
    "exact_blocks",
    "frobenius_norms",
    "gap_by_distance",
    "gauss_newton_blocks",
    "gauss_newton_factors",
    "gn_gap",
    "gn_gap_of_sums",
    "gn_gaps",
    "interaction_radius",
    "lanczos_extremes",
    "lyapunov_exponents",
    "lyapunov_log_norm",
    "mean_spectral_norms",
    "negative_curvature_mass",
    "parameter_hessian",
    "parametric_blocks",
    "parametric_terms",
    "path_decomposition",
    "paths",
    "pull_back",
    "rank_for_accuracy",
    "resonance",
    "spectral_norms",
    "spectral_radius",
    "split_blocks",
    "stable_rank",
    "stable_ranks",
    "truncate",
    "truncation_bound",
]
