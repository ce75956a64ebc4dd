"""The attention paper: Hessian of softmax-attention regression with respect to its input, bounds, Newton recovery."""

from experiments.paper_audit.attention.bounds import BOUND_FORMULAS, PROOF_STEPS
from experiments.paper_audit.attention.case_one import BASIC, REMAINING
from experiments.paper_audit.attention.case_two import SECOND_CASE
from experiments.paper_audit.attention.effects import NUMBERS
from experiments.paper_audit.attention.gradients import DEFINITIONS, FIRST_DERIVATIVES, LOSS
from experiments.paper_audit.attention.matrix import MATRIX_FORMS
from experiments.paper_audit.attention.tables import FIRST_CASE
from experiments.paper_audit.attention.theorem import FORMULAS as THEOREM
from experiments.paper_audit.papers import read

FORMULAS = (
    *DEFINITIONS,
    *FIRST_DERIVATIVES,
    *BASIC,
    *FIRST_CASE,
    *REMAINING,
    *SECOND_CASE,
    *MATRIX_FORMS,
    *LOSS,
    *BOUND_FORMULAS,
    *PROOF_STEPS,
    *THEOREM,
)
PAPER = read(__file__, FORMULAS, numbers=NUMBERS)
