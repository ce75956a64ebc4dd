"""Labels that share figures of the inter-layer experiments, in the order of their styles."""

from runner.report.plot_style import PlotStyles

STYLES = PlotStyles(
    ("plain", "residual", "bottleneck", "diamond", "attention", "relu_mlp", "plain_sn", "baseline"),
    ("resnet18", "plain_resnet18"),
    ("sigmoid", "tanh", "softplus", "gelu", "linear", "silu", "relu", "leaky_relu"),
    ("init", "final", "mid"),
    ("sum", "cat"),
    ("exact", "stochastic"),
    ("measured", "paper", "bound"),
    ("gn", "tensor", "full"),
    ("train", "test", "validation"),
)
