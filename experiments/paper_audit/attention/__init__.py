"""Every statement of the attention paper that numbers can check, in the order of its sections."""

from __future__ import annotations

from experiments.paper_audit.attention.bounds import BOUND_FORMULAS, PROOF_STEPS, THEOREM
from experiments.paper_audit.attention.case_one import BASIC, REMAINING
from experiments.paper_audit.attention.case_two import SECOND_CASE
from experiments.paper_audit.attention.gradients import DEFINITIONS, FIRST_DERIVATIVES, LOSS
from experiments.paper_audit.attention.matrix import MATRIX_FORMS
from experiments.paper_audit.attention.tables import FIRST_CASE
from experiments.paper_audit.formula import Formula

FORMULAS: tuple[Formula, ...] = (
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
