"""Formulas of the paper on inter-layer Hessian blocks over a graph ("DAG"), each checked against automatic
differentiation."""

from runner.audit.dag_blocks import FORMULAS as BLOCKS
from runner.audit.dag_bounds import FORMULAS as BOUNDS
from runner.audit.dag_parameters import FORMULAS as PARAMETERS
from runner.audit.dag_ranks import FORMULAS as RANKS
from runner.audit.formula import Formula

FORMULAS: tuple[Formula, ...] = (*BLOCKS, *PARAMETERS, *BOUNDS, *RANKS)
