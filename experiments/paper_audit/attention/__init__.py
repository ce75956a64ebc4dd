"""The attention paper: Hessian of softmax-attention regression with respect to its input, bounds, Newton recovery."""

from experiments.paper_audit.attention import bounds, case_one, case_two, gradients, matrix, tables, theorem
from experiments.paper_audit.attention.effects import NUMBERS
from experiments.paper_audit.papers import read

PAPER = read(__file__, (bounds, case_one, case_two, gradients, matrix, tables, theorem), numbers=NUMBERS)
