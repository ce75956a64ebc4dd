"""The runner, the command line and the shared curvature engine of hess-run."""

__version__ = "0.4.0"
