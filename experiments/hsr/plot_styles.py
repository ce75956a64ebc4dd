"""Labels that share figures of the HSR experiments, in the order of their styles."""

from runner.report.plot_style import PlotStyles

STYLES = PlotStyles(
    ("gd", "hsr", "trace", "asam", "asam_wide"),
    ("sigmoid", "tanh", "softplus", "gelu", "linear"),
    ("low", "high"),
    ("exact", "numerical"),
    ("lambda_1", "lambda_sup", "lambda_D", "lambda_inf", "lambda_2", "lambda_3"),
    ("mean_term", "std_term"),
    ("measured",),
    ("double sum", "matrix", "own", "autodiff", "differences"),
)
