"""Every statement of the attention paper that numbers can check, in the order of its sections."""

from __future__ import annotations

from runner.audit.attention_bounds import BOUND_FORMULAS, PROOF_STEPS, THEOREM
from runner.audit.attention_case_one import BASIC, REMAINING
from runner.audit.attention_case_two import SECOND_CASE
from runner.audit.attention_gradients import DEFINITIONS, FIRST_DERIVATIVES, LOSS
from runner.audit.attention_matrix import MATRIX_FORMS
from runner.audit.attention_tables import FIRST_CASE
from runner.audit.formula import Formula

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
