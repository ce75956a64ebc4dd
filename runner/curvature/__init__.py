"""The shared curvature engine: inter-layer Hessian blocks of a network stated as a graph. Imports torch only."""

from runner.curvature.certificate import Certifiable, Certificate, verify
from runner.curvature.exact.blocks import exact_blocks, gauss_newton_blocks
from runner.curvature.exact.paths import Contribution, path_decomposition, paths
from runner.curvature.exact.split import BlockSplit, split_blocks
from runner.curvature.graph.checks import check_before_measuring
from runner.curvature.graph.composition import Composition, Concatenated, Residual, WeightedSum
from runner.curvature.graph.dag import Dag, Node
from runner.curvature.graph.from_module import TracedDag, trace_module
from runner.curvature.matrix_free.estimators import (
    Estimate,
    couplings,
    frobenius_norms,
    gn_gaps,
    lanczos_extremes,
    spectral_norms,
    stable_ranks,
)
from runner.curvature.matrix_free.operators import BlockOperator, CurvatureOperator
from runner.curvature.metrics.inter_layer import (
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
from runner.curvature.metrics.jacobians import (
    block_jacobians,
    interaction_radius,
    lyapunov_exponents,
    lyapunov_log_norm,
    mean_spectral_norms,
    spectral_radius,
)
from runner.curvature.metrics.low_rank import (
    GaussNewtonFactors,
    LowRank,
    gauss_newton_factors,
    pull_back,
    rank_for_accuracy,
    truncate,
    truncation_bound,
)
from runner.curvature.metrics.measure import inter_layer_metrics
from runner.curvature.metrics.ratios import PairMetrics
from runner.curvature.parameters.dense import parameter_hessian, parametric_blocks, parametric_terms

__all__ = [
    "BlockOperator",
    "BlockSplit",
    "Certifiable",
    "Certificate",
    "Composition",
    "Concatenated",
    "Contribution",
    "CurvatureOperator",
    "Dag",
    "Estimate",
    "GaussNewtonFactors",
    "LowRank",
    "Node",
    "PairMetrics",
    "Residual",
    "TracedDag",
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
    "inter_layer_metrics",
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
    "trace_module",
    "truncate",
    "truncation_bound",
    "verify",
]
