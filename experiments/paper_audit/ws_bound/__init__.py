"""The WS-bound paper: Wolkowicz–Styan upper bound of the largest Hessian eigenvalue in closed form."""

from experiments.paper_audit.papers import read
from experiments.paper_audit.ws_bound import activations, limits, squares, traces

PAPER = read(__file__, (activations, limits, squares, traces))
