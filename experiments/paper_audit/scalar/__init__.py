"""The scalar-spectrum paper: every Hessian eigenvalue and eigenvector of one-hidden-layer scalar networks."""

from experiments.paper_audit.papers import read
from experiments.paper_audit.scalar.bias import FORMULAS as BIAS
from experiments.paper_audit.scalar.effects import NUMBERS
from experiments.paper_audit.scalar.linear import FORMULAS as LINEAR
from experiments.paper_audit.scalar.relu import FORMULAS as RELU

FORMULAS = (*LINEAR, *RELU, *BIAS)
PAPER = read(__file__, FORMULAS, numbers=NUMBERS)
