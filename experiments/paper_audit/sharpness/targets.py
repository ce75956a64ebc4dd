"""Which modules and functions hold printed formulas: where errors are injected."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Target:
    """Modules of one paper that hold printed formulas, and those that an import with a mutant leaves as they are."""

    modules: tuple[str, ...]
    kept: tuple[str, ...] = ()
    only: tuple[str, ...] = field(default=())  # functions to change; empty: all of them


TARGETS = {
    "ws_bound": Target(
        ("ws_bound.terms", "ws_bound.squares", "ws_bound.activations", "three_layer.pair_terms", "ws_bound.traces"),
        ("three_layer.oracle", "three_layer.checks"),
        (
            *("block_ww", "block_vv", "block_vw", "block_wv", "_square", "_lemma_four", "_lemma_five", "grams"),
            *("_sigmoid", "_tanh", "_softplus", "_gelu", "phi_matrix", "psi_matrix", "_trace_ww", "_trace_vv"),
            *("_gradient", "_summed_square", "_block_square"),
        ),
    ),
    "hsr": Target(
        ("three_layer.pair_terms", "hsr.derivatives", "hsr.gradients"),
        ("three_layer.oracle", "three_layer.checks"),
        (
            *("a_phi", "b_phi", "c_phi", "d_phi", "a_psi", "b_psi", "c_psi", "d_psi", "e_phi", "f_phi", "g_phi"),
            *("e_psi", "f_psi", "w_phi", "w_psi", "w_omega", "v_phi", "v_psi", "v_omega", "_by_w", "_by_v"),
            *("_trace", "_square", "theorem_one", "<lambda>"),
        ),
    ),
    "dag": Target(
        (
            *("dag.printed", "dag.parameters", "dag.blocks_of_attention", "dag.recursion", "dag.paths", "dag.residual"),
            *("dag.ranks", "dag.estimates", "dag.low_rank"),
        ),
        ("dag.networks", "dag.oracle", "dag.graphs", "dag.compare"),
        (
            *("equation_2", "one_sided", "compute", "routed", "path_jacobian", "sources", "algorithm_1", "pure"),
            *("third", "mixed", "right_5", "softmax_second", "softmax_first", "unrelated_with_exact", "product"),
            *("diagonal_with_exact", "example_6", "figure_1", "boundary", "theorem_93", "proposition_92"),
            *(
                "relative_rank",
                "allowed",
                "stable",
                "effective",
                "power_rate",
                "algorithm_4",
                "hutchinson",
                "total_of_paths",
            ),
            *("products", "batch_norm", "rates", "footnote_2", "equation_11", "i_1", "equation_5"),
        ),
    ),
    "scalar": Target(
        ("scalar.linear_terms", "scalar.relu", "scalar.bias_terms", "scalar.linear"),
        ("scalar.cases", "scalar.oracle"),
        (
            *("trace", "outliers", "spectrum", "outlier_vector", "sharpness_form", "right_matrix", "right_schur"),
            *("woodbury", "eq17_19", "eq24_25", "nu", "eq26", "eq27", "eq31", "eq32", "cell_matrix", "cell_values"),
            *("gradient", "single_hessian", "average_hessian", "sample_hessian", "block_hessian", "low_rank", "eq83"),
            *("eq84", "form", "eq85", "eq86_96", "simplified", "factored", "pair", "depressed", "triple", "output"),
        ),
    ),
    "attention": Target(
        ("attention.tables", "attention.case_one", "attention.case_two", "attention.gradients", "attention.matrix"),
        ("attention.terms",),
        ("<lambda>", "df01", "ds", "_dc", "_h2", "_chain", "_second"),
    ),
}
