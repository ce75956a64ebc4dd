"""Every formula of the scalar-spectrum paper that was checked, in the order of the paper."""

from experiments.paper_audit.formula import Formula
from experiments.paper_audit.scalar.bias import FORMULAS as BIAS
from experiments.paper_audit.scalar.linear import FORMULAS as LINEAR
from experiments.paper_audit.scalar.relu import FORMULAS as RELU

FORMULAS: tuple[Formula, ...] = LINEAR + RELU + BIAS
