"""Every formula of the scalar-spectrum paper that was checked, in the order of the paper."""

from runner.audit.formula import Formula
from runner.audit.scalar_bias import FORMULAS as BIAS
from runner.audit.scalar_linear import FORMULAS as LINEAR
from runner.audit.scalar_relu import FORMULAS as RELU

FORMULAS: tuple[Formula, ...] = LINEAR + RELU + BIAS
