"""The WS-bound paper: Wolkowicz–Styan upper bound of the largest Hessian eigenvalue in closed form."""

from experiments.paper_audit.papers import read
from experiments.paper_audit.ws_bound.activations import ACTIVATION_FORMULAS
from experiments.paper_audit.ws_bound.limits import LIMIT_FORMULAS
from experiments.paper_audit.ws_bound.squares import SQUARE_FORMULAS
from experiments.paper_audit.ws_bound.traces import TRACES

FORMULAS = (*TRACES, *SQUARE_FORMULAS, *LIMIT_FORMULAS, *ACTIVATION_FORMULAS)
PAPER = read(__file__, FORMULAS)
