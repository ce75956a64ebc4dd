"""Labels that share figures, in the order of their styles."""

from runner.report.plot_style import PlotStyles

STYLES = PlotStyles(
    ("sigmoid", "tanh", "softplus", "gelu", "linear"),
    ("low", "high"),
    ("N=3", "N=10"),
    ("fitted", "printed"),
    ("lambda_1", "lambda_sup", "loss"),
    ("scaled", "cancelling"),  # paths of Theorem 7
)
