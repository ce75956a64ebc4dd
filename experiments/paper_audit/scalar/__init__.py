"""The scalar-spectrum paper: every Hessian eigenvalue and eigenvector of one-hidden-layer scalar networks."""

from experiments.paper_audit.papers import read
from experiments.paper_audit.scalar import bias, linear, relu
from experiments.paper_audit.scalar.effects import NUMBERS

PAPER = read(__file__, (bias, linear, relu), numbers=NUMBERS)
